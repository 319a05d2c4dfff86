"""The parts of the tutorial that tests/wheel cannot try: the command that needs root, and the links."""

import os
import re
from pathlib import Path

import pytest

from tests import pages


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/sys/fs/cgroup", os.W_OK), reason="making cgroups needs root"
)
def test_the_tutorials_recording_works_as_it_stands(tmp_path):
    texts = [block.text for block in pages.blocks(pages.TUTORIAL) if block.language == "bash"]
    assert len(texts) == 1
    # Root needs no sudo, and a machine for tests may have none.
    pages.run(['sudo() { "$@"; }\n' + text for text in texts], tmp_path)
    assert (tmp_path / "mine.parquet").exists()


def test_the_tutorials_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", pages.TUTORIAL.read_text()):
        assert Path(pages.TUTORIAL.parent / target).exists(), target
