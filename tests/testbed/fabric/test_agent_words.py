"""The words of the agent's process before it serves."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from testbed.fabric import agent_process


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (None, "cannot be written: No such file or directory; name a file in a folder that is there"),
        (PermissionError(errno.EPERM, "Operation not permitted"), "Operation not permitted: run it as root"),
    ],
)
def test_what_the_machine_refuses_is_one_line_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reason, said: str
) -> None:
    def serve(kind, settings, say, every_s) -> None:
        if reason is not None:
            raise reason
        say({})

    monkeypatch.setattr(agent_process, "serve", serve)
    assert agent_process.main(["--status", str(tmp_path / "nowhere" / "x")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Errno" not in error
    assert error.count("\n") == 1
