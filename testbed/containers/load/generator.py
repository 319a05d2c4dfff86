"""A load generator that runs beside the containers. It implements testbed.containers.ports.Client.

For: starting its process, its progress, ending it, and its result. Not for: sending (sender.py). It runs
outside the run's containers, so its use counts against no limit. LoadResult.cpu_s reports it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from control.allocator.model import ServiceStats
from testbed.containers.load.main import level_path, progress_path, result_path
from testbed.containers.load.plan import LoadPlan, LoadResult, read_level, read_result, write_plan
from twinbed import BackendError

START_GRACE_S = 60.0
"""Longest time until its process is ready, s. It takes half a second of CPU."""

STOP_GRACE_S = 5.0
"""Longest time to write its result when it is stopped, s. Then it is killed."""

LEAD_S = 0.05
"""Time from `start` to second 0 of the plan, s."""

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Progress of the load. arrived: number of requests that were due so far. ended: number of requests that
    have ended. latency_s: `p50`, `p90`, `p99`, `p99.9` → latency of answered requests, s."""

    arrived: int
    ended: int
    latency_s: dict[str, float]


class LoadGenerator:
    """Sends a plan from a process of its own. As a context manager it leaves no process behind. If its maker
    is killed, its process ends by itself.

    folder: folder for its files. Raises BackendError if no file can be made there.
    """

    def __init__(self, plan: LoadPlan, folder: Path) -> None:
        self._plan = plan
        try:
            with tempfile.NamedTemporaryFile(dir=folder, prefix="load-", suffix=".npz", delete=False) as file:
                self._path = Path(file.name)
        except OSError as error:
            raise BackendError(f"{folder}: cannot be written ({error.strerror}); choose another") from None
        self._process: subprocess.Popen[bytes] | None = None
        self._level: tuple[int, int] | None = None

    @property
    def pid(self) -> int | None:
        """The id of its process; None before `start`."""
        return None if self._process is None else self._process.pid

    def start(self) -> int:
        """Start the process, wait until it is ready (about a second), and let it begin. Returns the time of
        second 0 of the plan (CLOCK_MONOTONIC, ns), which is LEAD_S from now. Raises BackendError."""
        write_plan(self._plan, self._path)
        command = (sys.executable, "-m", "testbed.containers.load.main", str(self._path))
        self._process = process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdout:
            # Unlike select(2), poll(2) takes the descriptors of a process with more than 1,024 open files.
            answer = select.poll()
            answer.register(process.stdout, select.POLLIN)
            if not answer.poll(START_GRACE_S * 1_000) or process.stdout.readline() != b"ready\n":
                self.stop()
                raise BackendError(
                    f"the load generator did not get ready (exit code {process.returncode}); see its messages"
                )
        begins_ns = time.monotonic_ns() + round(LEAD_S * _NS)
        try:
            process.stdin.write(f"{begins_ns}\n".encode("ascii"))
            process.stdin.flush()
        except BrokenPipeError:
            raise BackendError("the load generator ended before it began; repeat the run") from None
        return begins_ns

    def running(self) -> bool:
        """Return whether the generator's process still runs."""
        return self._process is not None and self._process.poll() is None

    def progress(self) -> LoadProgress | None:
        """Return the last progress report, at most a second old; None before the first one."""
        try:
            return LoadProgress(**json.loads(progress_path(self._path).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def service_level(self) -> ServiceStats | None:
        """Return the service level of the interval that has ended since the last call; None if none has
        ended. Owners of spans are the containers' positions in the deployment."""
        try:
            file = level_path(self._path).open("rb")
        except FileNotFoundError:
            return None
        with file:
            # The generator may put another file in the place of this one meanwhile.
            status = os.fstat(file.fileno())
            written = status.st_ino, status.st_mtime_ns
            if written == self._level:
                return None
            self._level = written
            return read_level(file)

    def stop(self) -> None:
        """End the generator now. Requests that have not ended stay PENDING in the result. Idempotent."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_GRACE_S)  # the process has written its result by then
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()

    def result(self) -> LoadResult:
        """Return the result of the requests, after the process has ended. Raises BackendError if the process
        died early."""
        if self._process is None or self._process.poll() is None:
            raise BackendError("the load generator has not ended; stop it before asking for its result")
        code = self._process.returncode
        if code != 0:
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            raise BackendError(f"the load generator died ({how}) and left no result; repeat the run")
        return read_result(result_path(self._path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
