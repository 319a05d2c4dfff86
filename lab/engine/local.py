"""Runs units of work in several processes, with progress, and leaves nothing behind when they are stopped.

For: running independent work side by side (lab.runs.runner). Not for: the work itself.

A worker ends by itself, and unwinds its work, when the parent stops the work or dies. All workers read
from a pipe that nothing is written to and whose other end only the parent holds, so the end of the pipe
means either. Ctrl-C in a terminal reaches the workers too, but they leave it to the parent. Processes are
spawned and not forked, because the libraries that we import have threads.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.queues import SimpleQueue
from types import FrameType
from typing import Any, TypeVar

from twinbed import BackendError

Unit = TypeVar("Unit")
Done = TypeVar("Done")
Progress = Callable[[str, float], None]

_POLL_S = 0.05
_UNWIND_S = 10.0
"""Time in which a stopped worker may clean up; the store sweeps what it leaves after that."""


class _StoppedError(BaseException):
    """The parent wants no more work. It is no Exception, so `except Exception` cannot swallow it."""


class _Worker:
    """State of a worker process."""

    said: SimpleQueue[tuple[str, float]]
    working = False


def run_units(
    work: Callable[[Unit, Progress], Done], units: Sequence[Unit], jobs: int, progress: Progress | None
) -> list[Done]:
    """Return the results of `work` on each unit, made in `jobs` processes, in the order of the units.

    work: a function of a module; it, the units and the results are pickled. It may report progress, which
    is passed to `progress` in this process. Whatever `work` or `progress` raises, and KeyboardInterrupt,
    stops all work and passes through when no worker is left. Raises BackendError if a worker was killed.
    """
    context = multiprocessing.get_context("spawn")
    with _pool(context, jobs) as (executor, said):
        futures = [executor.submit(_work, work, unit) for unit in units]
        waiting: set[Future[Done]] = set(futures)
        while waiting:
            ended, waiting = wait(waiting, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            while not said.empty():
                label, fraction = said.get()
                if progress is not None:
                    progress(label, fraction)
            for future in ended:
                _raise_of(future)
    return [future.result() for future in futures]


def cores() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def _pool(
    context: SpawnContext, jobs: int
) -> Iterator[tuple[ProcessPoolExecutor, SimpleQueue[tuple[str, float]]]]:
    said: SimpleQueue[tuple[str, float]] = context.SimpleQueue()
    end, held = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(jobs, context, begin, (said, end))
    try:
        yield executor, said
        executor.shutdown(wait=True)
    finally:
        held.close()
        executor.shutdown(wait=True, cancel_futures=True)
        end.close()
        said.close()


def _raise_of(future: Future[Any]) -> None:
    try:
        future.result()
    except BrokenProcessPool:
        raise BackendError(
            "a worker process was killed, perhaps for want of memory; --jobs 1 needs the least"
        ) from None


def begin(said: SimpleQueue[tuple[str, float]], end: Connection) -> None:
    """Make this process a worker."""
    _Worker.said = said
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_watch, args=(end,), daemon=True).start()


def _watch(end: Connection) -> None:
    """Wait until nobody holds the other end of the pipe, then end this process.

    A signal reaches Python code only when the main thread runs some. A worker that waits for a lock which
    a sibling died with would never see it. So this thread ends an idle worker, and work that does not
    unwind in time.
    """
    end.poll(None)
    told, deadline = False, time.monotonic() + _UNWIND_S
    while _Worker.working and time.monotonic() < deadline:
        if not told:
            os.kill(os.getpid(), signal.SIGTERM)
            told = True
        time.sleep(_POLL_S)
    os._exit(0)


def _stop(_signal: int, _frame: FrameType | None) -> None:
    if _Worker.working:
        raise _StoppedError
    os._exit(0)


def _work(work: Callable[[Unit, Progress], Done], unit: Unit) -> Done:
    try:
        _Worker.working = True
        return work(unit, _say)
    except _StoppedError:
        # Nobody waits for the result, and there is nothing left to do.
        os._exit(0)
    finally:
        _Worker.working = False


def _say(label: str, fraction: float) -> None:
    _Worker.said.put((label, fraction))
