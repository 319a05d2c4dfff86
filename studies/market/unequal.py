"""Asynchronous training on unequal emulated machines, measured and predicted: `python -m studies unequal`.

For: profiles of the machines, clusters of 2 to 8 workers, and one revocation. Each is a line of a file that
ships, so an interrupted measurement continues where it stopped. Also for spotDNN's predictions of the same
clusters. Not for: tables (spotdnn.py). All times are s of the monotonic clock.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

from control.recommender.spotdnn import Goal, Training, WorkerKind, predict
from control.recommender.spotdnn_fit import contention
from studies import harness
from studies.harness import Asked, TimeIsUpError
from testbed.cloud.asynchronous import Asynchronous, Machine

MEASURED = Path(__file__).with_name("measured_unequal.jsonl")
"""The measurements that ship: a cell a line, with its name."""
SMALL, MEDIUM, LARGE = (
    Machine("small", 0.08, 1024),
    Machine("medium", 0.15, 1536),
    Machine("large", 0.5, 2048),
)
SERVER_MB_S, WORKER_MB_S = 12.0, 8.0
"""Rates of the server's link and of a worker's, MB/s, in each direction."""
ALONE = {"alone-small": (SMALL,), "alone-medium": (MEDIUM,), "alone-large": (LARGE,)}
CONTENDING = {
    "contending-2": (SMALL, LARGE),
    "contending-4": (SMALL, MEDIUM, MEDIUM, LARGE),
    "contending-7": (SMALL, SMALL, SMALL, MEDIUM, MEDIUM, LARGE, LARGE),
}
JUDGED = {
    "judged-2": (MEDIUM, LARGE),
    "judged-3": (SMALL, MEDIUM, LARGE),
    "judged-4": (SMALL, SMALL, LARGE, LARGE),
    "judged-6": (SMALL, SMALL, MEDIUM, MEDIUM, LARGE, LARGE),
    "judged-8": (SMALL, SMALL, SMALL, MEDIUM, MEDIUM, MEDIUM, LARGE, LARGE),
}
REVOCATION, REVOKED = "revocation", (SMALL, MEDIUM, LARGE, LARGE)
PUSHES_EACH = 40
"""Number of measured pushes of a cluster for each of its workers."""
NOTICE_S, STEADY_S = 1.2, 12.0
"""Time between the notice of a revocation and the revocation, s, and time that is measured around it, s. In
the source 96 s passed, and a worker started in 126 s; here a worker starts in a few seconds."""
BACK = 0.8
"""Least share of the speed that must be back after a takeover."""
_START_S = 150.0
_NO_PCIE = 1e9
"""Bandwidth of a PCIe without delays, MB/s: the emulated machines have no GPU."""
Cell = dict[str, Any]


def make(asked: Asked) -> int:
    """Measure the cells that the file lacks. asked.store: the file."""
    path, check = asked.store or MEASURED, harness.clock(asked.minutes)
    try:
        for group in (ALONE, CONTENDING, JUDGED):
            held = read(path)
            _measure({name: cell for name, cell in group.items() if name not in held}, path, check)
        if REVOCATION not in read(path):
            check()
            _keep(path, REVOCATION, revocation())
    except TimeIsUpError as error:
        harness.say(f"unequal: {error}")
    return 0


def _measure(cells: Mapping[str, tuple[Machine, ...]], path: Path, check: Callable[[], None]) -> None:
    if not cells:
        return
    check()
    # A process that trained with other batches before computes at another speed, so each is a new one.
    ranks = max(len(cells), *map(len, cells.values()))
    with Asynchronous(ranks, SERVER_MB_S, WORKER_MB_S) as cluster:
        for rank, (name, machines) in enumerate(cells.items(), start=1):
            check()
            ranked = dict(enumerate(machines, start=rank if len(machines) == 1 else 1))
            measured = cluster.measure_cluster(ranked, PUSHES_EACH * len(machines), within_s=_START_S)
            _keep(path, name, asdict(measured))


def revocation() -> Cell:
    """Measure a revocation: a notice at which the replacement starts, then SIGKILL. The other workers
    continue."""
    ranked, spare = dict(enumerate(REVOKED, start=1)), len(REVOKED) + 1
    victim = spare - 1
    with Asynchronous(spare, SERVER_MB_S, WORKER_MB_S) as cluster:
        cluster.kill(spare)
        cluster.train(ranked)
        cluster.settle(_START_S)
        begun_s = time.monotonic()
        cluster.watch(STEADY_S)
        notice_s = time.monotonic()
        cluster.start_again(spare, ranked[victim])
        cluster.watch(NOTICE_S)
        cluster.kill(victim)
        killed_s = time.monotonic()
        cluster.settle(_START_S)
        settled_s = time.monotonic()
        cluster.watch(STEADY_S)
        pushes = cluster.pushes()
    joined_s = float(pushes.at_s[pushes.rank == spare].min())

    def rate(low_s: float, high_s: float) -> float:
        return float(((pushes.at_s >= low_s) & (pushes.at_s < high_s)).sum() / (high_s - low_s))

    others = pushes.at_s[(pushes.rank < victim) & (pushes.at_s > begun_s)]
    return {
        "notice_s": notice_s - begun_s,
        "killed_s": killed_s - begun_s,
        "joined_s": joined_s - begun_s,
        "before": rate(begun_s, notice_s),
        "between": rate(killed_s, joined_s) if joined_s > killed_s + 1 else None,
        "after": rate(settled_s, settled_s + STEADY_S),
        "longest_pause_s": float(np.diff(others).max()),
    }


def _keep(path: Path, name: str, cell: Cell) -> None:
    harness.say(f"unequal: {name}: {cell}")
    with path.open("a") as file:
        file.write(json.dumps({"name": name, **cell}) + "\n")


def read(path: Path) -> dict[str, Cell]:
    """Return the cells of a file by their names; none without a file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {cell["name"]: cell for cell in map(json.loads, lines)}


class Compared(NamedTuple):
    """A cluster's time for its pushes.

    workers: number of workers.
    measured_s, predicted_s: measured time, and spotDNN's prediction, s.
    dare_s: prediction of CM-DARE+, which knows no contention, s.
    """

    workers: int
    measured_s: float
    predicted_s: float
    dare_s: float


class Known(NamedTuple):
    """The predictor's constants, fitted to the profiles. r2: R² of the fit of the contention share."""

    training: Training
    kinds: tuple[WorkerKind, ...]
    r2: float

    def pushes_s(self, machines: tuple[Machine, ...], pushes: int, *, contended: bool = True) -> float:
        """Return the predicted time of `pushes` pushes of a cluster, s."""
        counted = Counter(machine.name for machine in machines)
        counts = np.array([[counted[kind.name] for kind in self.kinds]])
        training = replace(self.training, contended=contended)
        return pushes * float(predict(training, self.kinds, counts, Goal(1.0, 1e9)).step_s[0])


def known(cells: Mapping[str, Cell]) -> Known | None:
    """Return the results of the profiles; None if one is missing."""
    if not cells.keys() >= {*ALONE, *CONTENDING}:
        return None
    alone = [cells[name] for name in ALONE]
    push_mb = mean(cell["push_mb"] for cell in alone)
    whole_s, moved_s = ([mean(cell[what].values()) for cell in alone] for what in ("iteration_s", "moved_s"))
    worker_mb_s = 2 * push_mb / mean(moved_s)
    kinds = tuple(
        WorkerKind(machine.name, 1.0, 8, machine.samples, 1, whole - moved)
        for (machine,), whole, moved in zip(ALONE.values(), whole_s, moved_s, strict=True)
    )
    alpha, beta, r2 = contention(
        np.array([len(machines) for machines in CONTENDING.values()]),
        np.array([2 * push_mb / mean(cells[name]["moved_s"].values()) for name in CONTENDING]),
        server_mb_s=SERVER_MB_S,
        worker_mb_s=worker_mb_s,
    )
    training = Training(push_mb, SERVER_MB_S, worker_mb_s, _NO_PCIE, (alpha, beta), (0, 0, 1, 0, 0))
    return Known(training, kinds, r2)


def compared(cells: Mapping[str, Cell]) -> list[Compared]:
    """Return the judged clusters that were measured; none without the profiles."""
    told = known(cells)
    if told is None:
        return []
    rows = []
    for name, machines in JUDGED.items():
        if cell := cells.get(name):
            ours, dare = (told.pushes_s(machines, cell["pushes"], contended=knows) for knows in (True, False))
            rows.append(Compared(len(machines), cell["time_s"], ours, dare))
    return rows
