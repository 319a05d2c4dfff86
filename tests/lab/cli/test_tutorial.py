"""The tutorial's commands work as they stand, in the order in which they stand there."""

import os
import re
from pathlib import Path

import pytest

from tests import pages

PAGE = pages.ROOT / "docs" / "tutorial.md"


def cgroups_can_be_made() -> bool:
    return os.geteuid() == 0 and Path("/sys/fs/cgroup").is_dir() and os.access("/sys/fs/cgroup", os.W_OK)


@pytest.mark.slow
def test_the_tutorials_commands_work_as_they_stand(tmp_path):
    blocks = [block for block in pages.blocks(PAGE) if block.language in ("sh", "bash")]
    assert len(blocks) >= 8
    possible = ("sh", "bash") if cgroups_can_be_made() else ("sh",)
    pages.run((block.text for block in blocks if block.language in possible), tmp_path)
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_the_tutorials_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text()):
        assert (PAGE.parent / target).exists(), target
