"""Work in several processes, and what is left of it when it is stopped: nothing."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.engine import local as parallel
from lab.engine.local import cores, run_units
from twinbed import BackendError, ScenarioError


def squared(unit, progress):
    progress(f"unit {unit}", 1.0)
    return unit * unit


def refuse(unit, progress):
    raise ScenarioError(f"unit {unit}: refused")


def die(unit, progress):
    os.kill(os.getpid(), signal.SIGKILL)


def mark_and_linger(folder, progress):
    """Leaves a mark while it works, and takes it away however it ends."""
    mark = Path(folder) / str(os.getpid())
    try:
        mark.touch()
        progress("began", 0.0)
        time.sleep(60)
    finally:
        mark.unlink(missing_ok=True)


def test_results_come_in_the_units_order_and_progress_from_all_of_them():
    seen = []
    made = run_units(squared, range(7), 2, lambda label, fraction: seen.append((label, fraction)))
    assert made == [0, 1, 4, 9, 16, 25, 36]
    assert sorted(seen) == [(f"unit {unit}", 1.0) for unit in range(7)]
    assert multiprocessing.active_children() == []


def test_what_a_unit_raises_is_raised_here_and_no_worker_stays():
    with pytest.raises(ScenarioError, match="refused"):
        run_units(refuse, range(3), 2, None)
    assert multiprocessing.active_children() == []


def test_a_worker_that_is_killed_is_an_error_of_the_machine():
    with pytest.raises(BackendError, match="a worker process was killed"):
        run_units(die, range(2), 2, None)
    assert multiprocessing.active_children() == []


@pytest.mark.slow
@pytest.mark.parametrize("reason", [KeyboardInterrupt, RuntimeError])
def test_stopping_from_here_unwinds_the_workers_at_once(tmp_path, reason):
    def stop(label, fraction):
        raise reason

    began = time.monotonic()
    with pytest.raises(reason):
        run_units(mark_and_linger, [str(tmp_path)] * 4, 2, stop)
    assert time.monotonic() - began < 30
    assert list(tmp_path.iterdir()) == []
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed(tmp_path):
    program = (
        "import sys; from lab.engine.local import run_units\n"
        "from tests.lab.engine.test_parallel import mark_and_linger\n"
        "if __name__ == '__main__': run_units(mark_and_linger, [sys.argv[1]] * 2, 2, None)"
    )
    script = tmp_path / "parent.py"
    script.write_text(program)
    marks = tmp_path / "marks"
    marks.mkdir()
    parent = subprocess.Popen(
        [sys.executable, str(script), str(marks)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])},
    )
    deadline = time.monotonic() + 60
    while len(list(marks.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = [int(mark.name) for mark in marks.iterdir()]
    assert len(workers) == 2
    parent.kill()
    parent.wait()
    while any(Path(f"/proc/{each}").exists() for each in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{each}").exists() for each in workers)
    assert list(marks.iterdir()) == []


def test_there_is_a_cpu_to_work_on():
    assert cores() >= 1


def wait_deaf(said, end, lock, ready):
    """An idle worker whose signal is lost: in C code, waiting for a lock that nobody gives back."""
    parallel.begin(said, end)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    ready.set()
    lock.acquire()


def test_an_idle_worker_ends_with_its_parent_even_if_no_signal_reaches_it():
    context = multiprocessing.get_context("spawn")
    lock, ready, said = context.Lock(), context.Event(), context.SimpleQueue()
    end, held = context.Pipe(duplex=False)
    lock.acquire()
    worker = context.Process(target=wait_deaf, args=(said, end, lock, ready))
    worker.start()
    assert ready.wait(60)
    held.close()
    worker.join(30)
    ended = worker.exitcode
    worker.kill()
    worker.join()
    assert ended == 0
    end.close()
    said.close()
