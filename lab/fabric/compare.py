"""Runs of fabrics beside each other: one row per run, or per scheme and conditions over its seeds.

For: the table of `run`, `compare` and the explorer. Not for: runs of containers (lab.runs.compare). Reads
runs and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lab.fabric.metrics import METRICS
from lab.runs.formats import Column, Record, Result, Value
from lab.runs.intervals import mean_ci95
from lab.runs.labels import labels
from lab.runs.store import Run
from twinbed import StoreError

_INTERVALS = "A ± B: mean over the seeds, and half its 95 % confidence interval (Student's t)."


def as_result(runs: Sequence[Run]) -> Result:
    """The comparison ready to be written. Raises StoreError for runs of containers among them."""
    strangers = [run.id for run in runs if not run.of_fabric]
    if strangers:
        raise StoreError(f"run {strangers[0]} is of containers: there is nothing to compare with a fabric's")
    by_label: dict[str, list[Run]] = {}
    for run, label in zip(runs, labels(runs), strict=True):
        by_label.setdefault(label, []).append(run)
    repeated = any(len(group) > 1 for group in by_label.values())
    columns = [Column("label", "Label"), Column("runs", "Runs"), Column("seeds", "Seeds")]
    columns += [
        Column(
            each.key,
            each.title,
            each.unit,
            max(each.decimals, 1) if repeated else each.decimals,
            percent=each.key.endswith("_share"),
            spread=f"{each.key}_ci95" if repeated else "",
        )
        for each in METRICS
    ]
    rows = tuple(_row(label, group) for label, group in by_label.items())
    return Result(
        tuple(columns),
        rows,
        facts(runs),
        notes=(*notes_of(runs), *([_INTERVALS] if repeated else [])),
        aside="label",
    )


def facts(runs: Sequence[Run]) -> Record:
    """What the runs are about, for the lines above a table."""
    return {
        "fabric": "; ".join(dict.fromkeys(str(run.manifest["about"]) for run in runs)),
        "seed": ", ".join(dict.fromkeys(str(run.seed) for run in runs)),
        "calibration": "; ".join(dict.fromkeys(_calibration(run) for run in runs)),
    }


def notes_of(runs: Sequence[Run]) -> list[str]:
    """What was assumed, once each."""
    return list(dict.fromkeys(note for run in runs for note in run.manifest["notes"]))


def _row(label: str, group: Sequence[Run]) -> Record:
    row: dict[str, Value] = {"label": label, "runs": " ".join(run.id for run in group), "seeds": len(group)}
    for each in METRICS:
        values = np.array([run.metrics.get(each.key, np.nan) for run in group], np.float64)
        row[each.key], row[f"{each.key}_ci95"] = mean_ci95(values[~np.isnan(values)])
    return row


def _calibration(run: Run) -> str:
    calibration = run.manifest["calibration"]
    return f"{calibration['name']} of {calibration['date']}"
