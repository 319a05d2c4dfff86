"""Run a job with checkpoint and restart. It dies with its path, and restarts from its last checkpoint.

For: measuring the loss of a training without redundancy. It is the counterpart of twin.fabric.checkpoints.
Not for: the job itself (training.py, ddp_worker.py); saving and loading are torch's own. Source: our design.

As in production, the supervisor only learns that a process ended with an error. It ends the others, waits
until the path works again, and starts all of them again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed import waiting
from testbed.fabric.apps.training import Floats, Trained, Training, read, start
from testbed.fabric.model import Endpoint
from twinbed import BackendError

_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Life:
    """One start of a job until its end. Times are CLOCK_MONOTONIC, ns.

    started_ns: time at which its processes started. noticed_ns: time at which the supervisor noticed the end.
    back_ns: time at which all processes were gone and the path worked again (0: not asked).
    trained: record of the life.
    """

    started_ns: int
    noticed_ns: int
    back_ns: int
    trained: Trained


@dataclass(frozen=True, slots=True)
class Losses:
    """The cost of each of n deaths of a job, float64[n], s.

    detect_s: time from the last iteration's end until the death was noticed. path_s: time from then until the
    path worked again. start_s: time from then until the processes computed again. redo_s: time from then
    until the lost iterations were done again.
    """

    detect_s: Floats
    path_s: Floats
    start_s: Floats
    redo_s: Floats

    @property
    def total_s(self) -> Floats:
        """Total time in which the job made no progress, float64[n], s."""
        return self.detect_s + self.path_s + self.start_s + self.redo_s


def run_to_end(
    training: Training,
    places: Sequence[Endpoint],
    folder: Path,
    *,
    path_is_back: Callable[[], bool],
    within_s: float,
) -> list[Life]:
    """Run a job to its end, and return its lives. Raises BackendError if it takes longer than within_s."""
    until = time.monotonic() + within_s
    lives: list[Life] = []
    while True:
        started_ns = time.monotonic_ns()
        with start(training, places, folder, attempt=len(lives)) as job:
            well = job.wait(max(until - time.monotonic(), 0.0))
            noticed_ns = time.monotonic_ns()
        back_ns = 0
        if not well:
            if not waiting.until(path_is_back, until - time.monotonic(), _LOOK_EVERY_S):
                raise BackendError(f"{folder}: the job died, and its path did not come back in time")
            back_ns = time.monotonic_ns()
        trained = read(folder, len(places), attempt=len(lives))
        lives.append(Life(started_ns, noticed_ns, back_ns, trained))
        if well:
            return lives


def losses(lives: Sequence[Life]) -> Losses:
    """Return the loss at every death. If a job died again while it redid work, the rest of the work counts
    for the later death.
    """
    rows = []
    reached = 0
    for life, following in itertools.pairwise(lives):
        before, after = life.trained, following.trained
        reached = max(reached, before.reached)
        # A life in which no iteration was computed spent all its time on starting.
        last_ns = int(before.ended_ns[-1]) if len(before.ended_ns) else before.ready_ns or life.noticed_ns
        ready_ns = after.ready_ns or following.noticed_ns
        again = min(reached - after.first, len(after.ended_ns))
        redone_ns = int(after.ended_ns[again - 1]) if again > 0 else ready_ns
        steps_ns = [last_ns, life.noticed_ns, life.back_ns, ready_ns, redone_ns]
        rows.append(np.diff(steps_ns) * 1e-9)
    return Losses(*np.array(rows, np.float64).reshape(-1, 4).T)


def curve(lives: Sequence[Life]) -> Floats:
    """Return float64[ranks, iterations]: the training loss of every iteration, as it was computed last."""
    loss = np.full((len(lives[-1].trained.loss), lives[-1].trained.reached), np.nan)
    for life in lives:
        loss[:, life.trained.first : life.trained.reached] = life.trained.loss
    return loss
