"""Runs a page's request in the background: a child process with progress, an end, and a way to cancel it.

For: the queue of all visitors' jobs, waiting for a turn, starting `lab.explorer.worker`, following it
across a page's reruns, and ending it by its own pid. Not for: the work itself. A `Job` lives in the
session's state. The child is ended and waited for when the session ends, when the visitor has left, when it
takes too long, or when the explorer ends. No process and no temporary file stays.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lab.explorer import limits
from lab.explorer.worker import AnyRequest
from twinbed import BackendError
from twinbed.text import counted

_GRACE_S = 5.0
"""Time from SIGTERM, on which the store tidies up, to SIGKILL, s. After SIGKILL, the next opening of the
store tidies up."""
_LOOK_S = 0.5
"""Interval at which a job checks whether its visitor is still there, s."""


class Queue:
    """The jobs of all visitors in order of arrival. workers: number of jobs that run at once; length: number
    of further jobs that may wait. Any thread may call every method."""

    def __init__(self, workers: int, length: int) -> None:
        self._workers, self._length = workers, length
        self._changed = threading.Condition()
        self._waiting: list[object] = []
        self._running: list[object] = []

    def enter(self, ticket: object) -> None:
        """Put the job at the end of the queue. Raises BackendError if all places are taken."""
        with self._changed:
            free = self._workers - len(self._running)
            if len(self._waiting) >= self._length + free:
                raise BackendError(
                    f"{counted(len(self._running), 'question')} of other visitors running and "
                    f"{len(self._waiting)} waiting are the most here; try again in some minutes"
                )
            self._waiting.append(ticket)

    def place(self, ticket: object) -> int:
        """Return the job's place among those that wait, 1 for the next one; 0 if it runs or has left."""
        with self._changed:
            return self._waiting.index(ticket) + 1 if ticket in self._waiting else 0

    def take(self, ticket: object, timeout_s: float) -> bool:
        """Wait for the job's turn, at most `timeout_s`. Returns whether it came; `leave` ends it."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_next(ticket), timeout_s):
                return False
            self._waiting.remove(ticket)
            self._running.append(ticket)
            self._changed.notify_all()
            return True

    def leave(self, ticket: object) -> None:
        """Give up the job's turn or its place."""
        with self._changed:
            for tickets in (self._waiting, self._running):
                if ticket in tickets:
                    tickets.remove(ticket)
            self._changed.notify_all()

    def _is_next(self, ticket: object) -> bool:
        return len(self._running) < self._workers and self._waiting[:1] == [ticket]


QUEUE = Queue(limits.shared().workers, limits.shared().waiting)
"""The queue of this server."""

Phase = Literal["waiting", "running", "done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Status:
    """The progress of a job.

    phase; place: place in the queue while it waits, 1 for the next; label: policy that is being simulated;
    fraction: share of the whole request that is done, 0 to 1; rows: parts of the answer that have come so
    far, in order; runs: ids, when done; answer: further results of the child, when done; message: one line,
    when failed; elapsed_s: time since the job was started, up to its end, s.
    """

    phase: Phase = "waiting"
    place: int = 0
    label: str = ""
    fraction: float = 0.0
    rows: tuple[dict[str, Any], ...] = ()
    runs: tuple[str, ...] = ()
    answer: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    elapsed_s: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.phase not in ("waiting", "running")


def _always() -> bool:
    return True


class _Work:
    """The state that a Job and its thread share. It is separate from Job, so that the thread keeps no Job
    alive.

    process: the child, None before it is started.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._status = Status()
        self._began = time.monotonic()
        self._unwanted = threading.Event()
        self._too_late = ""
        self.process: subprocess.Popen[str] | None = None

    @property
    def unwanted(self) -> bool:
        return self._unwanted.is_set()

    def read(self) -> Status:
        with self._lock:
            if self._status.ended:
                return self._status
            return replace(self._status, elapsed_s=time.monotonic() - self._began)

    def change(self, **values: Any) -> None:
        with self._lock:
            self._status = replace(self._status, **values, elapsed_s=time.monotonic() - self._began)

    def stop(self, reason: str = "") -> None:
        """End the child, if there is one, and wait for its end. reason: why the job has failed, empty if it
        is cancelled."""
        self._too_late = self._too_late or reason
        self._unwanted.set()
        if self.process is not None:
            _end(self.process)

    def finish(self, outcome: dict[str, Any], code: int) -> None:
        """Set how the job ended. outcome: the child's last message; code: its exit status."""
        if "runs" in outcome:
            self.change(phase="done", fraction=1.0, runs=tuple(outcome["runs"]))
        elif "answer" in outcome:
            self.change(phase="done", fraction=1.0, answer=outcome["answer"])
        elif self.unwanted and not self._too_late:
            self.change(phase="cancelled")
        else:
            self.change(phase="failed", message=self._too_late or outcome.get("error") or _death(code))


class Job:
    """One request that a child process carries out when its turn has come.

    present: whether the visitor is connected; queue: whose turn it is; run_s: longest time of the child, s;
    leave_s: how long the visitor may be away, s. Raises BackendError if the queue is full.
    """

    def __init__(
        self,
        request: AnyRequest,
        present: Callable[[], bool] = _always,
        *,
        queue: Queue = QUEUE,
        run_s: float = limits.RUN_S,
        leave_s: float = limits.LEAVE_S,
    ) -> None:
        self._work, self._queue = _Work(), queue
        try:
            queue.enter(self._work)
        except BaseException:
            _remove(request.folder)
            raise
        self._finalizer = weakref.finalize(self, self._work.stop)
        watch = Watch(present, leave_s)
        self._thread = threading.Thread(
            target=_carry_out, args=(request, self._work, queue, watch, run_s), daemon=True
        )
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The child's process id, None before it is started."""
        process = self._work.process
        return None if process is None else process.pid

    def status(self) -> Status:
        """Return the job's progress. Never blocks."""
        return replace(self._work.read(), place=self._queue.place(self._work))

    def cancel(self) -> None:
        """End the child and wait for its end. Nothing half-written stays. Has no effect after the end."""
        self._work.stop()
        self._thread.join()

    def wait(self, timeout_s: float) -> Status:
        """Block until the job has ended, at most `timeout_s` seconds."""
        self._thread.join(timeout_s)
        return self.status()


class Watch:
    """Tells when a visitor has been away for `leave_s`."""

    def __init__(self, present: Callable[[], bool], leave_s: float) -> None:
        self._present, self._leave_s = present, leave_s
        self._seen = time.monotonic()

    def left(self) -> bool:
        """Return whether the visitor has left and will not return."""
        if self._present():
            self._seen = time.monotonic()
        return time.monotonic() - self._seen > self._leave_s


def _carry_out(request: AnyRequest, work: _Work, queue: Queue, watch: Watch, run_s: float) -> None:
    """Wait for the job's turn, run its child to the end, and remove its folder."""
    try:
        while not queue.take(work, _LOOK_S):
            if work.unwanted or watch.left():
                work.change(phase="cancelled")
                return
        _run(request, work, watch, run_s)
    finally:
        queue.leave(work)
        _remove(request.folder)


def _run(request: AnyRequest, work: _Work, watch: Watch, run_s: float) -> None:
    try:
        process = work.process = subprocess.Popen(
            [sys.executable, "-m", request.module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    except OSError as error:
        work.change(phase="failed", message=f"The simulation cannot be started: {error}")
        return
    work.change(phase="running")
    outcome: dict[str, Any] = {}
    reader = threading.Thread(target=_follow, args=(process, request, work, outcome), daemon=True)
    reader.start()
    deadline = time.monotonic() + run_s
    while reader.is_alive():
        if work.unwanted or watch.left():
            work.stop()
        elif time.monotonic() > deadline:
            work.stop(
                f"The runs took longer than {run_s / 60:g} minutes, which is the most here: choose fewer "
                "policies, fewer containers or less time, or use the command line."
            )
        reader.join(_LOOK_S)
    work.finish(outcome, process.wait())


def _follow(
    process: subprocess.Popen[str], request: AnyRequest, work: _Work, outcome: dict[str, Any]
) -> None:
    """Hand the request to the child and read its messages to the end."""
    assert process.stdout is not None
    assert process.stdin is not None
    # A child that died at once shows the reason in its exit status.
    with contextlib.suppress(OSError):
        process.stdin.write(request.to_json() + "\n")
        process.stdin.flush()
    with process.stdout:
        for line in process.stdout:
            message = json.loads(line)
            if "label" in message:
                work.change(label=message["label"], fraction=message["fraction"])
            elif "row" in message:
                work.change(rows=(*work.read().rows, message["row"]))
            else:
                outcome.update(message)
    process.wait()
    with contextlib.suppress(OSError):
        process.stdin.close()


def _remove(folder: str) -> None:
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def _death(code: int) -> str:
    if code == -signal.SIGKILL:
        return "The simulation was killed by the system, most likely for want of memory."
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return f"The simulation ended {how} before it was finished; see the explorer's own output."


def _end(process: subprocess.Popen[str]) -> None:
    """Send SIGTERM, wait for the child to tidy up, then send SIGKILL. Returns when the child has ended."""
    if process.poll() is not None:
        return
    os.kill(process.pid, signal.SIGTERM)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
