"""Real runs of the shipped jobs over emulated types, numbers of workers and batch sizes: a table that grows.

For: ground truth that was measured here, with machine and date. Each run is a row of a CSV file, written as
it comes; what is there already is not run again, so a collection may be stopped and goes on later. The order
is shuffled (the same each time), so that a part is a fair sample. Not for: running (testbed.cloud.emulated).
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from control.jobs import InstanceType
from lab.cloud.input.data_set import COLUMNS
from lab.cloud.input.job_file import JobFile
from testbed.cloud.emulated import SCALE, Cluster, Measured, emulated
from testbed.containers import machine
from twinbed import ScenarioError

_FIRST_STEPS_S = 240.0
_LEFT_CORES = 0.25
"""For whoever measures, and the kernel: what all workers may use together leaves so much of this machine."""


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
    workers: Sequence[int],
    batches: Sequence[int],
    *,
    cores: float | None = None,
    scale: float = SCALE,
    seed: int = 0,
) -> list[Cell]:
    """All that this machine carries, shuffled by the seed. batches: factors on a job's own batch size; cores:
    of this machine. Raises ScenarioError for a job without a batch size."""
    cores = (os.cpu_count() or 1) if cores is None else cores
    found = []
    for job in jobs:
        if job.batch is None:
            raise ScenarioError(f"job {job.name}: no batch; state one")
        for count in workers:
            carried = tuple(each for each in types if count * each.vcpus * scale <= cores - _LEFT_CORES)
            found += [Cell(job, count, job.batch * factor, carried) for factor in batches if carried]
    np.random.default_rng(seed).shuffle(found)
    return found


def collect(
    found: Sequence[Cell],
    folder: Path,
    path: Path,
    *,
    on_run: Callable[[int, int, str], None] | None = None,
    going_on: Callable[[], bool] = lambda: True,
) -> int:
    """Measures what the table at `path` lacks; returns how many runs it holds at the end.

    folder: where the jobs' commands run. on_run: told of runs there, of all, and of the last. A run that
    fails is a row, too: its outcome says why. Raises BackendError where the machine refuses.
    """
    there = _keys(path)
    total = sum(len(cell.types) for cell in found)
    facts = machine.facts()
    for cell in found:
        left = [kind for kind in cell.types if _key(cell, kind) not in there]
        if not left or not going_on():
            continue
        for kind, outcome in _runs(cell, left, folder):
            _append(path, _row(cell, kind, outcome, facts))
            there.add(_key(cell, kind))
            if on_run is not None:
                on_run(len(there), total, f"{cell.job.name}: {cell.workers} × {kind.name}")
    return len(there)


def _runs(
    cell: Cell, kinds: Sequence[InstanceType], folder: Path
) -> Iterable[tuple[InstanceType, Measured | str]]:
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
            # The job may have died of these limits; the others get a new start.
            yield left.pop(0), str(error)


def _row(cell: Cell, kind: InstanceType, outcome: Measured | str, facts: Mapping[str, str]) -> dict[str, str]:
    row = {
        "job": cell.job.name,
        "instance": kind.name,
        "workers": str(cell.workers),
        "batch": str(cell.batch),
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


def _key(cell: Cell, kind: InstanceType) -> tuple[str, str, str, str]:
    return cell.job.name, kind.name, str(cell.workers), str(cell.batch)


def _keys(path: Path) -> set[tuple[str, str, str, str]]:
    """Raises ScenarioError for a table with other columns."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise ScenarioError(f"{path}: other columns than this collection's; choose another file")
        return {(row["job"], row["instance"], row["workers"], row["batch"]) for row in rows}


def _append(path: Path, row: Mapping[str, str]) -> None:
    """One write for the row, so that an interruption leaves whole rows."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        if new:
            table.writeheader()
        table.writerow(row)
