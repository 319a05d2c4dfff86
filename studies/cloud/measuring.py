"""Real runs of the shipped jobs over emulated types, numbers of workers and batch sizes: a table that grows.

For: `python -m studies measure`, on a quiet machine as root. The rows have real times, the machine and the
date. Each run becomes a row of a CSV file when it ends. Runs in the file are not repeated, so a collection
may be stopped and continued later. The order is shuffled (the same each time), so a part is a fair sample.
Not for: running (testbed.cloud.emulated) or a user's jobs (`twinbed profile`).
"""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from control.jobs import InstanceType
from lab.ask import shipped
from lab.cloud.input import job_file
from lab.cloud.input.data_set import COLUMNS, TABLE, instance_type
from lab.cloud.input.job_file import JobFile
from studies.harness import Asked, say
from testbed.cloud.emulated import SCALE, Cluster, EmulatedRun, emulated
from testbed.containers import machine
from traces.catalogue.catalogue import load
from twinbed import ScenarioError

AGAIN = Path(__file__).with_name("measured_again.csv")
"""Some runs of the table, measured once more."""

TYPES = (
    "n1-standard-4", "n1-standard-8", "e2-standard-16", "n1-highcpu-16", "n1-highcpu-32", "e2-highmem-8",
    "e2-highmem-16",
)  # fmt: skip
"""The types of the source (chapter 4 of the thesis)."""

JOBS = shipped.FOLDERS["job"]
REGION = "us-central1"
WORKERS = (1, 2, 3, 4)
BATCHES = (1, 2)
"""Factors on a job's own batch size."""

_FIRST_STEPS_S = 240.0
"""Time that a job may take until its first steps are over."""

_LEFT_CORES = 0.25
"""Cores of this machine that the workers leave to the measurement and the kernel."""

_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Cell:
    """One start of a job, and the types that it is measured on."""

    job: JobFile
    workers: int
    batch: int
    types: tuple[InstanceType, ...]


def cells(
    jobs: Sequence[JobFile],
    types: Iterable[InstanceType],
    workers: Sequence[int] = WORKERS,
    batches: Sequence[int] = BATCHES,
    *,
    cores: float | None = None,
    seed: int = 0,
) -> list[Cell]:
    """Return all cells that this machine can carry, shuffled by the seed.

    batches: factors on a job's own batch size; cores: number of this machine's cores. Raises ScenarioError
    for a job without a batch size.
    """
    cores = (os.cpu_count() or 1) if cores is None else cores
    made: list[Cell] = []
    for job in jobs:
        if job.batch is None:
            raise ScenarioError(f"job {job.name}: no batch; state one")
        for count in workers:
            carried = tuple(kind for kind in types if count * kind.vcpus * SCALE <= cores - _LEFT_CORES)
            made += [Cell(job, count, job.batch * factor, carried) for factor in batches if carried]
    np.random.default_rng(seed).shuffle(made)
    return made


def collect(
    wanted: Sequence[Cell],
    folder: Path,
    path: Path,
    *,
    on_run: Callable[[int, int, str], None] | None = None,
    going_on: Callable[[], bool] = lambda: True,
) -> int:
    """Measure what the table at `path` lacks, and return how many runs it holds at the end.

    folder: folder in which the jobs' commands run. on_run: function called with the number of runs in the
    table, the number of all runs, and the last run's name. A failed run is a row, too; its outcome is the
    reason. Raises BackendError if the machine refuses.
    """
    held = _keys(path)
    total = sum(len(cell.types) for cell in wanted)
    facts = machine.facts()
    for cell in wanted:
        left = [kind for kind in cell.types if _key(cell, kind) not in held]
        if not left or not going_on():
            continue
        for kind, outcome in _runs(cell, left, folder):
            _append(path, _row(cell, kind, outcome, facts))
            held.add(_key(cell, kind))
            if on_run is not None:
                on_run(len(held), total, f"{cell.job.name}: {cell.workers} × {kind.name}")
    return len(held)


def make(asked: Asked) -> int:
    """Measure the runs that the table lacks, for asked.minutes (default: 60). Print how many it holds.

    asked.store: path of the table. asked.again: fill the second table, whose runs are in another order.
    """
    path = asked.store or (AGAIN if asked.again else TABLE)
    until_s = time.monotonic() + 60 * (60.0 if np.isinf(asked.minutes) else asked.minutes)
    listed = load().types(REGION)
    jobs = [job_file.load(file) for file in sorted(JOBS.glob("*.yaml"))]
    wanted = cells(jobs, [instance_type(listed[name]) for name in TYPES], seed=int(asked.again))
    held = collect(
        wanted,
        JOBS,
        path,
        on_run=lambda done, of, name: say(f"{done} of {of}  {name}"),
        going_on=lambda: time.monotonic() < until_s,
    )
    print(f"{held} runs in {path}")
    return 0


def _runs(
    cell: Cell, kinds: Sequence[InstanceType], folder: Path
) -> Iterator[tuple[InstanceType, EmulatedRun | str]]:
    command = cell.job.command_line(batch=cell.batch, steps=10**9)
    left = list(kinds)
    while left:
        try:
            with Cluster(command, cell.workers, directory=folder) as cluster:
                cluster.wait_for_steps(_FIRST_STEPS_S)
                while left:
                    measured = cluster.measure(emulated(left[0]))
                    yield left.pop(0), measured
        except ScenarioError as error:
            # The job may have died of these limits, so the other types get a new start.
            yield left.pop(0), str(error)


def _row(
    cell: Cell, kind: InstanceType, outcome: EmulatedRun | str, facts: Mapping[str, str]
) -> dict[str, str]:
    row = {
        **dict(zip(("job", "instance", "workers", "batch"), _key(cell, kind), strict=True)),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel": facts.get("kernel", ""),
        "cpu": facts.get("cpu_model", ""),
        "scale": f"1/{1 / SCALE:g}",
    }
    if isinstance(outcome, str):
        return {**row, "steps": "0", "outcome": " ".join(outcome.split())}
    if not outcome.fits:
        return {**row, "steps": "0", "outcome": "does not fit into the memory"}
    return {
        **row,
        "steps": str(len(outcome.step_s)),
        "step_median_s": f"{np.median(outcome.step_s):.6f}",
        "step_mean_s": f"{outcome.step_s.mean():.6f}",
        "step_p95_s": f"{np.quantile(outcome.step_s, 0.95):.6f}",
        "cpu_cores": f"{outcome.cpu_cores:.4f}",
        "outcome": "ok",
    }


def _key(cell: Cell, kind: InstanceType) -> _Key:
    return cell.job.name, kind.name, str(cell.workers), str(cell.batch)


def _keys(path: Path) -> set[_Key]:
    """Return the runs that the table holds. Raises ScenarioError for a table with other columns."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise ScenarioError(f"{path}: other columns than this collection's; choose another file")
        return {(row["job"], row["instance"], row["workers"], row["batch"]) for row in rows}


def _append(path: Path, row: Mapping[str, str]) -> None:
    """Add the row in one write, so that an interruption leaves whole rows."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        if new:
            table.writeheader()
        table.writerow(row)
