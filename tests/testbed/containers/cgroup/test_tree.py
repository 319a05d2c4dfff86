"""Groups that cannot be removed are named, with what the user can do."""

from __future__ import annotations

import pytest

from testbed.containers.cgroup import tree
from twinbed import BackendError


def test_a_process_that_does_not_die_is_named_with_the_cure(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tree, "REMOVAL_TIMEOUT_S", 0.0)
    monkeypatch.setattr(tree, "send", lambda *_: None)
    group = tmp_path / "twinbed" / "run-1"
    group.mkdir(parents=True)
    procs = group / "cgroup.procs"
    procs.write_text("12\n7\n")
    with pytest.raises(BackendError) as refused:
        tree.remove([group])
    assert "a killed process in it does not die; see what it waits for with ps " in str(refused.value)
    assert str(refused.value).endswith(
        "-p 7,12 and end that, or restart the machine; until then no run can begin"
    )
    procs.write_text("")
    with pytest.raises(BackendError, match="run-1: cannot be removed, the kernel still uses it; try again"):
        tree.remove([group])
