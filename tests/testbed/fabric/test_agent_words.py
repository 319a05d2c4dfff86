"""The words of the agent's process where it cannot serve."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.fabric import agent_process
from testbed.fabric.place import Place
from twinbed import BackendError


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


@pytest.mark.parametrize("every", ["0", "-1", "nan", "inf"])
def test_a_time_between_reports_that_is_none_is_refused(
    every: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agent_process.main(["--every-s", every]) == 2
    assert capsys.readouterr().err == f"--every-s {every}: expected seconds, at least 0.01\n"


def test_rules_that_the_kernel_does_not_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_process.FlowerRules, "works", lambda: False)
    with pytest.raises(
        BackendError, match=r"^--rules flower: this kernel does not have it; use --rules bpf$"
    ):
        agent_process.applier_for("flower", 1, Place((), 0))


BEGINS = """
import os, runpy, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "control.reconciler.model":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
runpy.run_module("testbed.fabric.agent", run_name="__main__", alter_sys=True)
"""


def test_ctrl_c_while_the_agent_is_still_loading_leaves_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", BEGINS], capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGINT
    assert done.stderr == b""
