"""Runs a page's request in the background: a child process with progress, an end, and a way to cancel it.

For: starting `lab.explorer.worker`, following it across a page's reruns, and ending it by its own pid. Not
for: the work itself. A `Job` lives in the session's state. The child is ended and waited for when the session
ends, when nobody has asked for the job's status for LEASE_S (a closed tab: the session itself may live much
longer), or when the explorer ends. No process and no temporary file stays.
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
from dataclasses import dataclass, replace
from typing import Any, Literal

from lab.explorer.worker import Request

_GRACE_S = 5.0
"""Time from SIGTERM, on which the store tidies up, to SIGKILL, s. After SIGKILL, the next opening of the
store tidies up."""

LEASE_S = 180.0
"""How long a job continues without anybody asking for its status, s. Pages ask several times a second; a
browser lets a tab in the background ask once a minute."""

Phase = Literal["running", "done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Status:
    """The progress of a job.

    phase; label: policy that is being simulated; fraction: share of the whole request that is done, 0 to 1;
    runs: ids, when done; message: one line, when failed; elapsed_s: time since the start, up to the end, s.
    """

    phase: Phase = "running"
    label: str = ""
    fraction: float = 0.0
    runs: tuple[str, ...] = ()
    message: str = ""
    elapsed_s: float = 0.0


class _Followed:
    """State of the reading thread. It is separate from Job, so that the thread does not keep a Job alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._status = Status()
        self._began = time.monotonic()
        self._asked = self._began
        self.cancelled = False

    def unasked_s(self) -> float:
        return time.monotonic() - self._asked

    def read(self) -> Status:
        with self._lock:
            self._asked = time.monotonic()
            if self._status.phase == "running":
                return replace(self._status, elapsed_s=time.monotonic() - self._began)
            return self._status

    def change(self, **values: Any) -> None:
        with self._lock:
            self._status = replace(self._status, **values, elapsed_s=time.monotonic() - self._began)


class Job:
    """One request that a child process carries out. `pid` is the child's.

    lease_s: the child is ended if `status` has not been called for this long. Raises OSError if the machine
    cannot start a process.
    """

    def __init__(self, request: Request, lease_s: float = LEASE_S) -> None:
        self._followed = _Followed()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lab.explorer.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        except OSError:
            _remove(request.folder)
            raise
        self.pid = self._process.pid
        self._finalizer = weakref.finalize(self, _end, self._process)
        assert self._process.stdin is not None
        # A child that died at once says why through its exit status.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(request.to_json() + "\n")
            self._process.stdin.flush()
        self._reader = threading.Thread(
            target=_follow, args=(self._process, self._followed, request.folder), daemon=True
        )
        self._reader.start()
        threading.Thread(target=_guard, args=(self._process, self._followed, lease_s), daemon=True).start()

    def status(self) -> Status:
        """Returns the job's progress. Never blocks."""
        return self._followed.read()

    def cancel(self) -> None:
        """Ends the child and waits for its end. Nothing half-written stays. Has no effect after the end."""
        self._followed.cancelled = True
        _end(self._process)
        self._reader.join()

    def wait(self, timeout_s: float) -> Status:
        """Blocks until the child has ended, at most `timeout_s` seconds."""
        self._reader.join(timeout_s)
        return self.status()


def _follow(process: subprocess.Popen[str], followed: _Followed, folder: str) -> None:
    """Reads the child's messages to the end, reaps the child and removes its folder."""
    assert process.stdout is not None
    assert process.stdin is not None
    outcome: dict[str, Any] = {}
    with process.stdout:
        for line in process.stdout:
            message = json.loads(line)
            if "label" in message:
                followed.change(label=message["label"], fraction=message["fraction"])
            else:
                outcome = message
    code = process.wait()
    with contextlib.suppress(OSError):
        process.stdin.close()
    _remove(folder)
    if "runs" in outcome:
        followed.change(phase="done", fraction=1.0, runs=tuple(outcome["runs"]))
    elif followed.cancelled:
        followed.change(phase="cancelled")
    else:
        followed.change(phase="failed", message=outcome.get("error") or _death(code))


def _remove(folder: str) -> None:
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def _guard(process: subprocess.Popen[str], followed: _Followed, lease_s: float) -> None:
    """Ends a child whose job nobody asks about any more."""
    while process.poll() is None:
        left = lease_s - followed.unasked_s()
        if left <= 0:
            followed.cancelled = True
            _end(process)
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(left, 5.0))


def _death(code: int) -> str:
    if code == -signal.SIGKILL:
        return "The simulation was killed by the system, most likely for want of memory."
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return f"The simulation ended {how} before it was finished; the explorer's own output says more."


def _end(process: subprocess.Popen[str]) -> None:
    """Sends SIGTERM, waits for the child to tidy up, then sends SIGKILL. Returns when the child has ended."""
    if process.poll() is not None:
        return
    os.kill(process.pid, signal.SIGTERM)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
