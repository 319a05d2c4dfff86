"""The enclosure does not see what other programs mount and unmount."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.faults import enclosure
from tests.patience import PATIENCE_S


@pytest.mark.root
def test_a_mount_that_another_program_made_below_tmp_is_not_inside(cgroups: None, tmp_path: Path) -> None:
    reason = enclosure.why_not()
    if reason is not None:
        pytest.skip(reason)
    if not tmp_path.is_relative_to("/tmp"):
        pytest.skip("pytest's folders are not below /tmp")
    outside = tmp_path / "of others"
    outside.mkdir()
    look = "import sys; sys.exit(sys.argv[1] in open('/proc/self/mountinfo').read())"
    subprocess.run(["mount", "-t", "tmpfs", "none", str(outside)], check=True)
    try:
        assert enclosure.run(("-c", look, str(tmp_path)), tmp_path, PATIENCE_S) == 0
    finally:
        subprocess.run(["umount", str(outside)], check=True)
