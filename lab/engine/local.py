"""Units of work over several processes, with progress, that leave nothing behind when they are stopped.

For: running what is independent side by side (lab.runs.runner). Not for: what the work is.

A worker ends by itself, unwinding what it does, when the parent stops the work or dies: all workers read from
a pipe that nothing is ever written to and whose other end the parent alone holds, so that either is its end.
Ctrl-C in a terminal reaches the workers too, and is left to the parent. Processes are spawned, not forked:
the libraries we import have threads.
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
"""For a stopped worker to leave nothing half-written; what it leaves then, the store sweeps."""


class _StoppedError(BaseException):
    """The parent wants no more; no `except Exception` may eat it."""


class _Here:
    """What a worker process knows."""

    said: SimpleQueue[tuple[str, float]]
    working = False


def run_units(
    work: Callable[[Unit, Progress], Done], units: Sequence[Unit], jobs: int, progress: Progress | None
) -> list[Done]:
    """`work` on each unit in `jobs` processes; what came of them, in the units' order.

    work: a module's function; it, the units and results are pickled, and it may report progress, which
    `progress` is told of in this process. Whatever `work` or `progress` raises, and KeyboardInterrupt, stops
    all work and passes through when no worker is left. BackendError when a worker was killed.
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
            for each in ended:
                _raise_of(each)
    return [each.result() for each in futures]


def cores() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def _pool(
    context: SpawnContext, jobs: int
) -> Iterator[tuple[ProcessPoolExecutor, SimpleQueue[tuple[str, float]]]]:
    said: SimpleQueue[tuple[str, float]] = context.SimpleQueue()
    end, held = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(jobs, context, _begin, (said, end))
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


def _begin(said: SimpleQueue[tuple[str, float]], end: Connection) -> None:
    """Makes this process a worker."""
    _Here.said = said
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_watch, args=(end,), daemon=True).start()


def _watch(end: Connection) -> None:
    """Waits until nobody holds the pipe's other end; then this process is to end.

    A signal reaches Python code only when the main thread runs some: one that has just gone to wait for a
    lock that a sibling died with would never hear it. So whoever is idle is ended from here, and so is work
    that does not unwind in time.
    """
    end.poll(None)
    told, deadline = False, time.monotonic() + _UNWIND_S
    while _Here.working and time.monotonic() < deadline:
        if not told:
            os.kill(os.getpid(), signal.SIGTERM)
            told = True
        time.sleep(_POLL_S)
    os._exit(0)


def _stop(_signal: int, _frame: FrameType | None) -> None:
    if _Here.working:
        raise _StoppedError
    os._exit(0)


def _work(work: Callable[[Unit, Progress], Done], unit: Unit) -> Done:
    try:
        _Here.working = True
        return work(unit, _say)
    except _StoppedError:
        # Nobody waits for what this was to return, and there is nothing to do after it.
        os._exit(0)
    finally:
        _Here.working = False


def _say(label: str, fraction: float) -> None:
    _Here.said.put((label, fraction))
