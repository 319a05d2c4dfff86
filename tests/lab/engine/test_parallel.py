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
from lab.engine.local import Local, cores
from lab.engine.ports import Unit
from lab.engine.running import run
from tests.patience import PATIENCE_S


def mark_and_linger(folder, places, progress):
    """Leaves a mark while it works, and takes it away however it ends."""
    mark = Path(folder) / str(os.getpid())
    try:
        mark.touch()
        progress("began", 0.0)
        time.sleep(2 * PATIENCE_S)
    finally:
        mark.unlink(missing_ok=True)


class Lingering:
    def __init__(self, began):
        self.began = began

    def __del__(self):
        self.began()
        time.sleep(3)


def destroy_and_linger(folder, places, progress):
    """Is stopped in a destructor, out of which no exception comes."""
    Lingering(lambda: progress("began", 0.0))
    mark_and_linger(folder, places, lambda *_: None)


def destroy_and_stop_twice(folder, places, progress):
    """Is stopped once more while it notes that a destructor swallowed the first stop."""
    ask, stops = signal.setitimer, iter([signal.SIGTERM])

    def setitimer(*arguments):
        for stop in stops:
            os.kill(os.getpid(), stop)
        return ask(*arguments)

    signal.setitimer = setitimer
    destroy_and_linger(folder, places, progress)


@pytest.mark.slow
@pytest.mark.parametrize("work", [mark_and_linger, destroy_and_linger, destroy_and_stop_twice])
@pytest.mark.parametrize("reason", [KeyboardInterrupt, RuntimeError])
def test_stopping_from_here_unwinds_the_workers_at_once(tmp_path, reason, work, capfd):
    def stop(label, fraction):
        raise reason

    began = time.monotonic()
    with pytest.raises(reason):
        list(run(Local(2), [Unit(str(tmp_path))] * 4, work, stop))
    assert time.monotonic() - began < PATIENCE_S
    assert capfd.readouterr().err == ""
    assert list(tmp_path.iterdir()) == []
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed(tmp_path):
    program = (
        "import sys; from lab.engine.local import Local; from lab.engine.ports import Unit\n"
        "from lab.engine.running import run\n"
        "from tests.lab.engine.test_parallel import mark_and_linger\n"
        "if __name__ == '__main__': list(run(Local(2), [Unit(sys.argv[1])] * 2, mark_and_linger))"
    )
    script = tmp_path / "parent.py"
    script.write_text(program)
    marks = tmp_path / "marks"
    marks.mkdir()
    parent = subprocess.Popen(
        [sys.executable, str(script), str(marks)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])},
    )
    deadline = time.monotonic() + PATIENCE_S
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
    assert ready.wait(PATIENCE_S)
    held.close()
    worker.join(PATIENCE_S)
    ended = worker.exitcode
    worker.kill()
    worker.join()
    assert ended == 0
    end.close()
    said.close()


def test_a_script_without_a_guard_is_not_run_again_by_its_workers(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("submit_s,duration_s,gpus\n0,60,1\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import twinbed as tb\n"
        "print('began')\n"
        "asked = {'name': 'one', 'policies': ['fifo'], 'cluster': {'servers': {'a': {'count': 1}},\n"
        f"    'log': {{'path': {str(log)!r}, 'format': 'csv'}}}}}}\n"
        f"swept = tb.sweep(asked, seeds=[0, 1], jobs=2, store={str(tmp_path / 'store')!r}, progress=False)\n"
        "print(len(swept.frame), len(swept.swept.failures))\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])},
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout == "began\n2 0\n"
