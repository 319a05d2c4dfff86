"""Carries out units in processes of this machine. Stopped processes leave nothing behind.

For: the engine `local`, and the engine that `--engine` names. Not for: the order of the units nor repeating
them (running.py). One process means this one.

A worker ends by itself, and unwinds its work, when the parent stops the work or dies. All workers read from a
pipe to which nothing is written and whose other end only the parent holds, so the end of the pipe means
either of the two. Ctrl-C in a terminal reaches the workers too, but they leave it to the parent. Processes
are spawned and not forked, because the libraries that we import have threads. A worker does not run the
user's script again: it needs nothing of it, and a script without a guard would start the work once more.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.queues import SimpleQueue
from types import FrameType
from typing import Any

from lab.ask.kind import Progress
from lab.engine.ports import Engine, Outcome, Places, Session, Unit, Work
from twinbed import BackendError, InvariantError, ScenarioError

_POLL_S = 0.05
_UNWIND_S = 10.0
"""Time in which a stopped worker may clean up, s. The store sweeps the leftovers after that."""


_MAIN = threading.Lock()
"""Held while __main__ is changed."""


class _StoppedError(BaseException):
    """The parent has stopped the work. It is not an Exception, so `except Exception` cannot swallow it."""


class _Worker:
    """State of a worker process."""

    said: SimpleQueue[tuple[str, float]]
    working = False


class Local:
    """The engine `local`. jobs: number of parallel processes; 1: this process alone."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    @contextmanager
    def session(self, work: Work[Any, Any], progress: Progress | None) -> Iterator[Session]:
        """Return the engine, started; see lab.engine.ports.Engine."""
        if self.jobs == 1:
            yield _Here(work, progress)
            return
        processes = _Processes(work, progress, self.jobs)
        try:
            yield processes
        finally:
            processes.close()


class _Here:
    """This process as a worker: `ended` runs one unit."""

    width = 1

    def __init__(self, work: Work[Any, Any], progress: Progress | None) -> None:
        self._work, self._progress = work, progress or _ignore
        self._waiting: deque[tuple[int, Unit[Any]]] = deque()

    def submit(self, number: int, unit: Unit[Any]) -> None:
        self._waiting.append((number, unit))

    def ended(self) -> Sequence[Outcome[Any]]:
        number, unit = self._waiting.popleft()
        raised: list[Exception] = []

        def guarded(label: str, fraction: float) -> None:
            try:
                self._progress(label, fraction)
            except Exception as error:
                raised.append(error)
                raise

        outcome = carried_out(self._work, number, unit, guarded)
        # An exception of `progress` is meant for the caller. It is no failure of the unit.
        if raised:
            raise raised[0]
        return [outcome]


class _Processes:
    """Several worker processes."""

    def __init__(self, work: Work[Any, Any], progress: Progress | None, jobs: int) -> None:
        self._work, self._progress, self.width = work, progress, jobs
        self._under_way: dict[Future[Outcome[Any]], int] = {}
        self._open()

    def submit(self, number: int, unit: Unit[Any]) -> None:
        try:
            with _MAIN, _without_script():
                future = self._executor.submit(_in_worker, self._work, number, unit)
        except BrokenProcessPool:
            # A worker died between two calls. Its unit and all others of the pool lose this attempt.
            future = Future()
            future.set_exception(BrokenProcessPool())
        self._under_way[future] = number

    def ended(self) -> Sequence[Outcome[Any]]:
        done, _ = wait(self._under_way, timeout=_POLL_S, return_when=FIRST_COMPLETED)
        while not self._said.empty():
            label, fraction = self._said.get()
            if self._progress is not None:
                self._progress(label, fraction)
        outcomes, broken = [], False
        for future in done:
            number = self._under_way.pop(future)
            error = future.exception()
            if error is None:
                outcomes.append(future.result())
            elif isinstance(error, BrokenProcessPool):
                outcomes.append(_lost(number))
                broken = True
            else:
                raise error
        if broken:
            # All other workers end with their pool.
            outcomes += [_lost(number) for number in self._under_way.values()]
            self._under_way.clear()
            self.close()
            self._open()
        return outcomes

    def _open(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._said: SimpleQueue[tuple[str, float]] = context.SimpleQueue()
        self._end, self._held = context.Pipe(duplex=False)
        self._executor = ProcessPoolExecutor(self.width, context, begin, (self._said, self._end))

    def close(self) -> None:
        """Stop all work, and return when no worker is left."""
        if not self._under_way:
            self._executor.shutdown(wait=True)
        self._held.close()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._end.close()
        self._said.close()


@contextmanager
def _without_script() -> Iterator[None]:
    """Hide which script is __main__. multiprocessing reads it when it spawns a worker, which would run it."""
    own = sys.modules["__main__"].__dict__
    hidden: dict[str, Any] = {name: own[name] for name in ("__file__", "__spec__") if name in own}
    own.pop("__file__", None)
    own["__spec__"] = None
    try:
        yield
    finally:
        own.update(hidden)


def cores() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def carried_out(
    work: Work[Any, Any], number: int, unit: Unit[Any], progress: Progress, places: Places | None = None
) -> Outcome[Any]:
    """Do a unit of work in this process. Return its result, or the error that it raised.

    places: path of each file on this machine; None: the files' own paths."""
    began = time.monotonic()
    here = {file: file for file in unit.files} if places is None else places
    try:
        done, error = work(unit.asked, here, progress), None
    except Exception as failed:
        done, error = None, failed
    return Outcome(number, done, error, seconds=time.monotonic() - began)


def portable(outcome: Outcome[Any]) -> Outcome[Any]:
    """Return the outcome with an error that another process can read."""
    try:
        pickle.loads(pickle.dumps(outcome.error))
    except Exception:
        error = outcome.error
        return replace(outcome, error=InvariantError(f"{type(error).__name__}: {error}"))
    return outcome


def _lost(number: int) -> Outcome[Any]:
    text = "a worker process was killed, perhaps for want of memory; --jobs 1 needs the least"
    return Outcome(number, error=BackendError(text), lost=True)


def _ignore(_label: str, _fraction: float) -> None:
    pass


def begin(said: SimpleQueue[tuple[str, float]], end: Connection) -> None:
    """Make this process a worker."""
    _Worker.said = said
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGALRM, _stop)
    sys.unraisablehook = _stop_again
    threading.Thread(target=_watch, args=(end,), daemon=True).start()


def _watch(end: Connection) -> None:
    """Wait until no process holds the other end of the pipe, then end this process.

    A signal reaches Python code only when the main thread runs some. A worker that waits for a lock held by a
    dead sibling would never see it. So this thread ends an idle worker, and work that does not unwind in
    time.
    """
    end.poll(None)
    told, deadline = False, time.monotonic() + _UNWIND_S
    while _Worker.working and time.monotonic() < deadline:
        if not told:
            os.kill(os.getpid(), signal.SIGTERM)
            told = True
        time.sleep(_POLL_S)
    os._exit(0)


def _stop(_signal: int, frame: FrameType | None) -> None:
    if not _Worker.working:
        os._exit(0)
    while frame is not None:
        if frame.f_code is _stop_again.__code__:
            _ask_again()
            return
        frame = frame.f_back
    raise _StoppedError


def _stop_again(swallowed: sys.UnraisableHookArgs) -> None:
    """Ask once more for a stop that arrived in a destructor, which swallows exceptions. So does this hook."""
    if swallowed.exc_type is _StoppedError:
        _ask_again()
    else:
        sys.__unraisablehook__(swallowed)


def _ask_again() -> None:
    signal.setitimer(signal.ITIMER_REAL, _POLL_S)


def _in_worker(work: Work[Any, Any], number: int, unit: Unit[Any]) -> Outcome[Any]:
    try:
        _Worker.working = True
        outcome = portable(carried_out(work, number, unit, _say))
    except _StoppedError:
        # The result is no longer wanted, and no work is left.
        os._exit(0)
    finally:
        _Worker.working = False
    return outcome


def _say(label: str, fraction: float) -> None:
    _Worker.said.put((label, fraction))


def processes(jobs: int | None, usual: int) -> int:
    """Return the number of processes that a user asks for, `usual` for None. Raises ScenarioError."""
    if jobs is not None and (not isinstance(jobs, int) or jobs < 1):
        raise ScenarioError(f"jobs is {jobs!r}; it must be a whole number from 1, or None")
    return usual if jobs is None else jobs


LOCAL = "local"
_SCHEMES = ("dask://", "tcp://", "tls://")


def engine(text: str, jobs: int | None = None) -> Engine:
    """Return the engine: `local`, `dask` (workers of this machine), or a scheduler's address.

    jobs: number of processes on this machine; by default one per CPU. Raises ScenarioError for another
    text, and ModuleNotFoundError if Dask is not installed.
    """
    if text == LOCAL:
        return Local(processes(jobs, cores()))
    address = text.removeprefix("dask://")
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if text != "dask" and not (text.startswith(_SCHEMES) and host and port.isdecimal()):
        raise ScenarioError(f"--engine {text}: expected local, dask, dask://HOST:PORT, tcp://… or tls://…")
    from lab.engine.dask import Dask

    return Dask("" if text == "dask" else address, processes(jobs, cores()))


def distant(text: str, jobs: int | None = None) -> Engine | None:
    """Return the engine, or None for `local`, for which a kind defines the usual number of processes."""
    return None if text == LOCAL else engine(text, jobs)
