"""Runs of fabrics side by side: one row per run, or per scheme and conditions over its seeds.

For: the table of `run`, `compare` and the explorer, from stored runs alone. Not for: runs of containers
(lab.runs.compare).
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

_INTERVALS = "A ± B: mean over the seeds and half of its 95 % confidence interval (Student's t)."


def as_result(runs: Sequence[Run]) -> Result:
    """Return the comparison, ready to be written. Raises StoreError if a run is of containers."""
    others = [run.id for run in runs if not run.of_fabric]
    if others:
        raise StoreError(f"run {others[0]} is of containers: it cannot be compared with runs of fabrics")
    by_label: dict[str, list[Run]] = {}
    for run, label in zip(runs, labels(runs), strict=True):
        by_label.setdefault(label, []).append(run)
    repeated = any(len(group) > 1 for group in by_label.values())
    columns = [Column("label", "Label"), Column("runs", "Runs"), Column("seeds", "Seeds")]
    columns += [
        Column(
            metric.key,
            metric.title,
            metric.unit,
            max(metric.decimals, 1) if repeated else metric.decimals,
            percent=metric.key.endswith("_share"),
            spread=f"{metric.key}_ci95" if repeated else "",
        )
        for metric in METRICS
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
    """Return what the runs are about, for the lines above a table."""
    return {
        "fabric": "; ".join(dict.fromkeys(str(run.manifest["about"]) for run in runs)),
        "seed": ", ".join(dict.fromkeys(str(run.seed) for run in runs)),
        "calibration": "; ".join(dict.fromkeys(_calibration(run) for run in runs)),
    }


def notes_of(runs: Sequence[Run]) -> list[str]:
    """Return the assumptions of the runs, each once."""
    return list(dict.fromkeys(note for run in runs for note in run.manifest["notes"]))


def _row(label: str, group: Sequence[Run]) -> Record:
    row: dict[str, Value] = {"label": label, "runs": " ".join(run.id for run in group), "seeds": len(group)}
    for metric in METRICS:
        values = np.array([run.metrics.get(metric.key, np.nan) for run in group], np.float64)
        row[metric.key], row[f"{metric.key}_ci95"] = mean_ci95(values[~np.isnan(values)])
    return row


def _calibration(run: Run) -> str:
    calibration = run.manifest["calibration"]
    return f"{calibration['name']} of {calibration['date']}"
