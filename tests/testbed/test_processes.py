"""Processes are signalled through handles, and conditions are waited for."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import processes, waiting


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_process_that_is_another_by_now_gets_no_signal(sleeper) -> None:
    looks = iter([[sleeper.pid], []])
    with processes.handles(lambda: next(looks)) as found:
        for handle in found.values():
            processes.send(handle, signal.SIGKILL)
    assert found == {}
    assert sleeper.poll() is None


def test_a_process_that_does_not_end_when_asked_is_killed() -> None:
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with processes.handles(lambda: [process.pid]) as found:
            assert not processes.ended(found[process.pid], 0.0)
            assert processes.end(found[process.pid], 2.0)
            assert process.wait() == -signal.SIGKILL
            processes.send(found[process.pid], signal.SIGTERM)


def test_no_handle_stays_open(sleeper) -> None:
    before = sorted(Path("/proc/self/fd").iterdir())
    with pytest.raises(KeyboardInterrupt), processes.handles(lambda: [sleeper.pid, 4194303]):
        raise KeyboardInterrupt
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_a_condition_is_waited_for_in_time_only() -> None:
    left = iter([False, False, True])
    assert waiting.until(lambda: next(left), 60.0, 0.001)
    assert not waiting.until(lambda: False, 0.01, 0.001)
    assert waiting.until(lambda: True, 0.0)
