"""Helpers of measurements that fail, hang or are interrupted leave no process, and hide no error."""

from __future__ import annotations

import select
import subprocess
import sys

import pytest

from control.fabric import Fault, FaultKind
from testbed.fabric import links, probe
from testbed.fabric.apps import streams
from testbed.fabric.apps.cycle import Cycle
from testbed.fabric.model import Endpoint
from twinbed import BackendError

NEAR, FAR = (
    Endpoint(f"tb-none-h{host}e0", "eth0", "vf0", f"10.0.{host + 1}.1", 16, f"02:00:00:00:0{host}:01", 100)
    for host in range(2)
)


class Started:
    """Starts a program in place of each command, in no namespace."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.commands: list[list[str]] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def __call__(self, namespace: str, argv: list[str], **pipes: int) -> subprocess.Popen[bytes]:
        self.commands.append(argv)
        self.processes.append(subprocess.Popen([sys.executable, "-c", self.program], **pipes))
        return self.processes[-1]


def test_a_probe_that_does_not_begin_is_ended(tmp_path, monkeypatch) -> None:
    silent = Started("import time; time.sleep(60)")
    monkeypatch.setattr(probe, "popen_in", silent)
    monkeypatch.setattr(probe, "READY_WITHIN_S", 0.2)
    with (
        pytest.raises(BackendError, match="does not start"),
        probe.probing([probe.Flows(NEAR, FAR)], tmp_path),
    ):
        raise AssertionError("it began")
    assert [process.returncode for process in silent.processes] == [-9]


def test_an_interrupt_while_a_probe_begins_ends_it(tmp_path, monkeypatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    silent = Started("import time; time.sleep(60)")
    monkeypatch.setattr(probe, "popen_in", silent)
    monkeypatch.setattr(select, "select", interrupted)
    with pytest.raises(KeyboardInterrupt), probe.probing([probe.Flows(NEAR, FAR)], tmp_path):
        raise AssertionError("it began")
    assert all(process.returncode is not None for process in silent.processes)


def test_the_server_of_streams_writes_no_reports_that_nobody_reads(monkeypatch) -> None:
    server = Started("print('Server listening on 5201', flush=True)")
    monkeypatch.setattr(links, "popen_in", server)
    report = '{"intervals": [], "end": {}, "error": "none"}'
    sent = subprocess.CompletedProcess([], 0, report, "")
    monkeypatch.setattr(links, "run_in", lambda *_given, **_more: sent)
    assert streams.measure(NEAR, FAR, seconds=1).error == "none"
    (command,) = server.commands
    assert command[command.index("--interval") + 1] == "0"


def test_a_server_of_streams_that_says_nothing_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(links, "popen_in", Started("import time; time.sleep(60)"))
    monkeypatch.setattr(streams, "_PATIENCE_S", 0.2)
    with pytest.raises(BackendError, match="iperf3 --server: does not listen"):
        streams.measure(NEAR, FAR, seconds=1)


def test_an_error_in_a_cycle_is_not_hidden_by_one_of_its_faults(monkeypatch) -> None:
    def refused(self: Cycle, fault: Fault) -> None:
        raise BackendError("the fault is refused")

    monkeypatch.setattr(Cycle, "_carried", refused)

    def run(error: Exception | None) -> None:
        fault = Fault(FaultKind.TOR, tor=0)
        with Cycle(None, [fault], down_s=0.0, up_s=0.0) as cycle:  # type: ignore[arg-type]
            cycle._thread.join()
            if error is not None:
                raise error

    with pytest.raises(ValueError, match="the block's own"):
        run(ValueError("the block's own"))
    with pytest.raises(BackendError, match="the fault is refused"):
        run(None)
