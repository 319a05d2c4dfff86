"""Start, watch and read a data-parallel training on the fabric's endpoints, one process in each.

For: running the same job with and without faults, and its iterations' times and losses. Not for: what a
process computes (ddp_worker.py), or starting a job again after it died (restart.py). Source: our design. All
times are CLOCK_MONOTONIC, so they can be compared with those of faults.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed import waiting
from testbed.fabric import links
from testbed.fabric.model import Endpoint
from twinbed import BackendError, ScenarioError

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

_LOOK_EVERY_S = 0.05
_WORKER = "testbed.fabric.apps.ddp_worker"
_CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True, slots=True)
class Training:
    """A training job. Raises ScenarioError for an impossible value.

    iterations: number of iterations. batch: images per process and iteration. seed: seed of all random
    numbers. timeout_s: time for which gloo waits for a silent peer before the job fails, s (torch's default:
    1,800). save_every: iterations between two checkpoints (0: none). port: port of the first process's
    rendezvous, in its namespace.
    """

    iterations: int = 200
    batch: int = 32
    seed: int = 0
    timeout_s: float = 60.0
    save_every: int = 0
    port: int = 29500

    def __post_init__(self) -> None:
        for name, least in (("iterations", 1), ("batch", 1), ("seed", 0), ("save_every", 0)):
            if getattr(self, name) < least:
                raise ScenarioError(f"training.{name} is {getattr(self, name)}, expected at least {least}")
        if not self.timeout_s > 0:
            raise ScenarioError(f"training.timeout_s is {self.timeout_s}, expected seconds above zero")


@dataclass(frozen=True, slots=True)
class Trained:
    """The record of a job's processes: n iterations from `first` on.

    ready_ns: time at which all processes could begin (0: never).
    ended_ns: int64[n], time at which the last process finished each iteration.
    loss: float64[ranks, n], training loss. save_s: float64[k], duration of each checkpoint, s.
    digests: hash of every rank's final model; () if the job did not finish.
    errors: a line of every rank that failed.
    """

    first: int
    ready_ns: int
    ended_ns: Whole
    loss: Floats
    save_s: Floats
    digests: tuple[str, ...]
    errors: tuple[str, ...]

    @property
    def iteration_s(self) -> Floats:
        """Time from the previous iteration's end (or ready_ns) to each iteration's end, float64[n], s."""
        return np.diff(self.ended_ns, prepend=self.ready_ns) * 1e-9

    @property
    def reached(self) -> int:
        """Number of iterations done since the job's beginning."""
        return self.first + len(self.ended_ns)


class Job(AbstractContextManager["Job"]):
    """A job's processes. Leaving the context ends those that still run."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], folder: Path, attempt: int) -> None:
        self._processes = tuple(processes)
        self._attempt = attempt
        self.folder = folder

    def wait(self, within_s: float) -> bool:
        """Wait until all processes ended well (True) or one failed (False), else raise BackendError."""
        until = time.monotonic() + within_s
        poll = select.poll()
        pidfds = {
            os.pidfd_open(process.pid): process for process in self._processes if process.poll() is None
        }
        try:
            for pidfd in pidfds:
                poll.register(pidfd, select.POLLIN)
            left = len(pidfds)
            while left and not any(process.returncode for process in self._processes):
                ended = poll.poll(max(until - time.monotonic(), 0.0) * 1e3)
                if not ended:
                    raise BackendError(f"{self.folder}: the job has not ended within {within_s:g} s")
                for pidfd, _ in ended:
                    poll.unregister(pidfd)
                    pidfds[pidfd].wait()
                    left -= 1
        finally:
            for pidfd in pidfds:
                os.close(pidfd)
        return not any(process.returncode for process in self._processes)

    def wait_computing(self, within_s: float) -> None:
        """Wait until an iteration is done or the job has ended. Raises BackendError after within_s."""
        record = self.folder / f"{_stem(self._attempt, 0)}.jsonl"

        def computing_or_ended() -> bool:
            ended = any(process.poll() is not None for process in self._processes)
            return ended or any("iteration" in line for line in _lines(record))

        if not waiting.until(computing_or_ended, within_s, _LOOK_EVERY_S):
            raise BackendError(f"{self.folder}: the job computes nothing after {within_s:g} s")

    def __exit__(self, *_: object) -> None:
        links.end(*self._processes)


def start(training: Training, places: Sequence[Endpoint], folder: Path, *, attempt: int = 0) -> Job:
    """Start a process at every endpoint. The job continues from the folder's checkpoint, if there is one.

    attempt: number of the start in this folder, from 0. Every start has its own records (`read`). Raises
    BackendError if PyTorch is not installed.
    """
    _check_torch()
    folder.mkdir(parents=True, exist_ok=True)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank, place in enumerate(places):
            spec = _spec(training, places, folder, rank, attempt)
            processes.append(_start_one(spec, place, folder / f"{_stem(attempt, rank)}.json"))
    except BaseException:
        links.end(*processes)
        raise
    return Job(processes, folder, attempt)


def run(training: Training, places: Sequence[Endpoint], folder: Path, *, within_s: float) -> Trained:
    """Run a job from beginning to end. Raises BackendError if it fails or takes longer than within_s."""
    with start(training, places, folder) as job:
        well = job.wait(within_s)
    trained = read(folder, len(places))
    if not well:
        raise BackendError(f"{folder}: the training failed: {'; '.join(trained.errors) or 'see its output'}")
    return trained


def read(folder: Path, ranks: int, *, attempt: int = 0) -> Trained:
    """Return the record of an ended job. If the job died, it has the iterations that all ranks finished."""
    records = [_lines(folder / f"{_stem(attempt, rank)}.jsonl") for rank in range(ranks)]
    steps = [[line for line in record if "iteration" in line] for record in records]
    done = min(map(len, steps))
    lines = [line for record in records for line in record]
    ready = [line for line in lines if "ready_ns" in line]
    digests = tuple(line["digest"] for line in lines if "digest" in line)
    return Trained(
        first=max((line["first"] for line in ready), default=0),
        ready_ns=max((line["ready_ns"] for line in ready), default=0) if len(ready) == ranks else 0,
        ended_ns=np.array([[step["ended_ns"] for step in rank[:done]] for rank in steps], np.int64).max(
            axis=0
        ),
        loss=np.array([[step["loss"] for step in rank[:done]] for rank in steps], np.float64),
        save_s=np.array([line["save_ns"] for line in records[0] if "save_ns" in line], np.float64) * 1e-9,
        digests=digests if len(digests) == ranks else (),
        errors=tuple(line["error"] for line in lines if "error" in line),
    )


def _spec(
    training: Training, places: Sequence[Endpoint], folder: Path, rank: int, attempt: int
) -> dict[str, Any]:
    return {
        "rank": rank,
        "world": len(places),
        "master": places[0].address,
        "port": training.port,
        "timeout_s": training.timeout_s,
        "iterations": training.iterations,
        "batch": training.batch,
        "seed": training.seed,
        "save_every": training.save_every,
        "checkpoint": str(folder / _CHECKPOINT),
        "record": str(folder / f"{_stem(attempt, rank)}.jsonl"),
    }


def _start_one(spec: dict[str, Any], place: Endpoint, path: Path) -> subprocess.Popen[bytes]:
    path.write_text(json.dumps(spec), encoding="utf-8")
    with path.with_suffix(".log").open("wb") as log:
        return links.popen_in(
            place.namespace,
            [sys.executable, "-m", _WORKER, str(path)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            environment={"GLOO_SOCKET_IFNAME": place.device},
        )


def _check_torch() -> None:
    # torch is not imported here, because that takes seconds; the job's processes import it.
    if find_spec("torch") is None:
        raise BackendError("training needs PyTorch, which is not installed: pip install 'twinbed[cloud]'")


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    # A process may have been ended while it wrote, so an incomplete last line is left out.
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def _stem(attempt: int, rank: int) -> str:
    return f"start-{attempt}-rank-{rank}"
