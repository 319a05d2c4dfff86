"""Checkpoint and restart: the job that dies with its path, and starts again from its last save.

For: what a training without redundancy loses, measured; the counterpart of twin.fabric.checkpoints. Not for:
the job itself (training.py, ddp_worker.py): saving and loading are torch's own.

The supervisor knows what one in production knows: a process that ended with an error. It ends the others,
waits until the path is back, and starts all of them again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed.fabric.apps.training import Floats, Trained, Training, read, start
from testbed.fabric.model import Endpoint
from twinbed import BackendError

_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Life:
    """One start of a job until its end. started_ns: its processes; noticed_ns: one had ended, with an error
    or because all was done; back_ns: all processes were gone and the path was back (0: was not asked)."""

    started_ns: int
    noticed_ns: int
    back_ns: int
    trained: Trained


@dataclass(frozen=True, slots=True)
class Losses:
    """Of each death, float64[n] seconds. detect_s: from the last iteration's end until it was noticed;
    path_s: from then until the path was back; start_s: until the processes computed again; redo_s: until what
    had been done once was done again."""

    detect_s: Floats
    path_s: Floats
    start_s: Floats
    redo_s: Floats

    @property
    def total_s(self) -> Floats:
        """float64[n]: in which the job came no further than it had been."""
        return self.detect_s + self.path_s + self.start_s + self.redo_s


def run_to_end(
    training: Training,
    places: Sequence[Endpoint],
    folder: Path,
    *,
    path_is_back: Callable[[], bool],
    within_s: float,
) -> list[Life]:
    """The job's lives, the last of which did all the work. Raises BackendError if within_s do not suffice."""
    until = time.monotonic() + within_s
    lives: list[Life] = []
    while True:
        started_ns = time.monotonic_ns()
        with start(training, places, folder, attempt=len(lives)) as job:
            well = job.wait(max(until - time.monotonic(), 0.0))
            noticed_ns = time.monotonic_ns()
        back_ns = 0
        if not well:
            _wait(path_is_back, until, folder)
            back_ns = time.monotonic_ns()
        trained = read(folder, len(places), attempt=len(lives))
        lives.append(Life(started_ns, noticed_ns, back_ns, trained))
        if well:
            return lives


def losses(lives: Sequence[Life]) -> Losses:
    """What each death cost. Of a job that died again before it had done all again, the rest counts there."""
    rows = []
    reached = 0
    for life, following in itertools.pairwise(lives):
        before, after = life.trained, following.trained
        reached = max(reached, before.reached)
        # One that never computed has spent all of its time on starting.
        last_ns = int(before.ended_ns[-1]) if len(before.ended_ns) else before.ready_ns or life.noticed_ns
        ready_ns = after.ready_ns or following.noticed_ns
        again = min(reached - after.first, len(after.ended_ns))
        redone_ns = int(after.ended_ns[again - 1]) if again > 0 else ready_ns
        steps_ns = [last_ns, life.noticed_ns, life.back_ns, ready_ns, redone_ns]
        rows.append(np.diff(steps_ns) * 1e-9)
    return Losses(*np.array(rows, np.float64).reshape(-1, 4).T)


def curve(lives: Sequence[Life]) -> Floats:
    """float64[ranks, iterations]: the loss of each iteration as it was computed last."""
    most = lives[-1].trained.reached
    found = np.full((len(lives[-1].trained.loss), most), np.nan)
    for life in lives:
        done = life.trained
        found[:, done.first : done.reached] = done.loss
    return found


def _wait(path_is_back: Callable[[], bool], until: float, folder: Path) -> None:
    while not path_is_back():
        if time.monotonic() > until:
            raise BackendError(f"{folder}: the job died, and its path did not come back in time")
        time.sleep(_LOOK_EVERY_S)
