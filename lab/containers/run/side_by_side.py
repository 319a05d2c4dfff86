"""Lets the policies of a question share a workload and be simulated side by side, in threads of this process.

For: the runner. The twin's passes and the tables' writer let other threads run, so two policies take little
longer than one, and the workload is in memory once. Not for: units of work of their own (lab.engine).
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from lab.ask.kind import Progress
from lab.engine.local import cores

_Made = TypeVar("_Made")


class _StoppedError(BaseException):
    """Another task has failed, or the result is no longer wanted."""


class Told:
    """Progress of tasks. A task that reports it is stopped if another one has failed.

    progress: function called with each label. parts: number of simulations of each label.
    """

    def __init__(self, progress: Progress | None, parts: int) -> None:
        self._progress, self._parts = progress, parts
        self._lock, self._over = threading.Lock(), threading.Event()
        self._done: dict[str, int] = {}

    def tell(self, label: str, fraction: float) -> None:
        """Report the finished part of one of a label's simulations, 1 at its end."""
        if self._over.is_set():
            raise _StoppedError
        with self._lock:
            done = self._done.setdefault(label, 0)
            self._done[label] += fraction == 1.0
            if self._progress is not None:
                self._progress(label, (done + fraction) / self._parts)

    def side_by_side(
        self, tasks: Sequence[Callable[[], _Made]], most: int | None = None, *, in_step: bool = False
    ) -> list[_Made]:
        """Return what the tasks return, in their order. Raises the error of the first task that fails, and
        then stops the tasks in progress. most: number of tasks at a time; None: the number of cores. in_step:
        tasks share data that one of them makes; with more than one core, all of them run at the same time."""
        threads = _threads()
        if in_step and threads > 1:
            threads = len(tasks)
        workers = min(threads, len(tasks), most or len(tasks))
        if workers == 1:
            return [task() for task in tasks]
        with ThreadPoolExecutor(workers) as pool:
            made = [pool.submit(task) for task in tasks]
            try:
                wait(made, return_when=FIRST_EXCEPTION)
                # The error of the task that failed first, not of those that were stopped because of it.
                failed = [future for future in made if future.done() and future.exception() is not None]
                for future in failed:
                    future.result()
            except BaseException:
                self._over.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return [future.result() for future in made]


def _threads() -> int:
    """Return the number of threads: one if an engine already runs processes or threads side by side."""
    alone = multiprocessing.parent_process() is None
    return cores() if alone and threading.current_thread() is threading.main_thread() else 1
