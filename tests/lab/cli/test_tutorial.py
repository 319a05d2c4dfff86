"""The tutorial's commands work as they stand, in the order in which they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(sh|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def cgroups_can_be_made() -> bool:
    return os.geteuid() == 0 and Path("/sys/fs/cgroup").is_dir() and os.access("/sys/fs/cgroup", os.W_OK)


@pytest.mark.slow
def test_the_tutorials_commands_work_as_they_stand(tmp_path):
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 8
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TWINBED_STORE": str(tmp_path / "store"),
    }
    for shell, text in blocks:
        if shell == "bash" and not cgroups_can_be_made():
            continue
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, f"{text}\n{ended.stdout}\n{ended.stderr}"
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_the_tutorials_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text()):
        assert (PAGE.parent / target).exists(), target
