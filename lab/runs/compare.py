"""Comparison of runs: one row per run, one row per policy over its seeds, and how to read the table.

For: the table of `whatif`, `run` and `compare`, the report and the explorer. Not for: the metrics, facts and
remarks of a kind (lab.kinds), nor writing tables (lab.runs.formats). Reads stored runs only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from lab.ask.kind import Kind
from lab.runs.formats import Column, Record, Result, Value
from lab.runs.labels import labels
from lab.runs.metric import Metric, censored_key, unit_of
from lab.runs.store import Run
from twinbed import StoreError

_HEAD = ("label", "run", "name", "policy", "seed", "currency")
_HEAD_OVER_SEEDS = ("label", "runs", "name", "policy", "seeds", "currency")
BOUNDS = (
    "> A: at least so much. Requests without an answer count, and messages and jobs that never ended, each "
    "with the time until the run's end."
)
INTERVALS = "A ± B: mean over the seeds, and half its 95 % confidence interval (Student's t)."

_FEW = 4
"""Number of notes of one sort that are shown below a table for people, and of titles in one note."""
_MOST_IDS = 8
"""Number of run ids below a table for people. The records hold all of them."""


def mean_ci95(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return (mean, half-width of its 95 % confidence interval by Student's t); NaN with too few values."""
    if values.size == 0:
        return math.nan, math.nan
    mean = float(values.mean())
    if values.size == 1:
        return mean, math.nan
    error = float(values.std(ddof=1)) / math.sqrt(values.size)
    return mean, float(special.stdtrit(values.size - 1, 0.975)) * error


def kind_of(runs: Sequence[Run]) -> Kind:
    """Return the runs' kind. Raises StoreError for no runs, a run that is given twice, or runs of several
    kinds."""
    if not runs:
        raise StoreError("no runs to compare; give one or more")
    ids: set[str] = set()
    for run in runs:
        if run.id in ids:
            raise StoreError(f"run {run.id} is given twice; give it once")
        ids.add(run.id)
        if run.kind is not runs[0].kind:
            raise StoreError(
                f"run {run.id} is of {run.kind.title} and {runs[0].id} of {runs[0].kind.title}: they have no "
                "figure in common"
            )
    return runs[0].kind


def comparison(runs: Sequence[Run]) -> pd.DataFrame:
    """Return one row per run, in the given order.

    Columns: label (distinguishes this run's policy and conditions from the others'), run (id), name, policy,
    seed, currency ("" for kinds without prices), every metric of the kind, NaN if it does not apply to the
    run, and KEY_censored for metrics that may be bounds: whether the value is a lower bound. Raises as
    `kind_of`.
    """
    kind = kind_of(runs)
    keys = [metric.key for metric in kind.metrics()]
    bounds = {censored_key(metric.key): metric.key for metric in kind.metrics() if metric.may_be_bound}
    rows = [
        {
            "label": label,
            "run": run.id,
            "name": run.manifest["name"],
            "policy": run.policy,
            "seed": run.seed,
            "currency": kind.currency(run),
        }
        | {key: metrics[key] for key in keys}
        | {flag: key in run.censored for flag, key in bounds.items()}
        for run, label, metrics in zip(runs, labels(runs), (run.metrics for run in runs), strict=True)
    ]
    return pd.DataFrame(rows, columns=[*_HEAD, *keys, *bounds])


def over_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per label of a `comparison`, in order of appearance: means over its seeds.

    Columns: label, runs (ids, space-separated), name, policy, seeds (their number), currency, and per
    metric KEY (mean over the seeds where it is defined) and KEY_ci95 (half-width of the mean's 95 %
    confidence interval by Student's t; NaN with fewer than two values). A mean over bounds is a bound without
    an interval: KEY_censored is true if it is for any seed.
    """
    flags = [key for key in frame.columns if key.endswith(censored_key(""))]
    rows = []
    for label, group in frame.groupby("label", sort=False):
        row: dict[str, Any] = {
            "label": label,
            "runs": " ".join(group["run"]),
            "name": group["name"].iloc[0],
            "policy": group["policy"].iloc[0],
            "seeds": len(group),
            "currency": group["currency"].iloc[0],
        }
        rows.append(row | averaged(group, frame.columns[len(_HEAD) :].difference(flags, sort=False)))
    return pd.DataFrame(rows)


def averaged(rows: pd.DataFrame, keys: Iterable[str]) -> dict[str, float | bool]:
    """Return the means of metrics over rows that differ in the seed: KEY and KEY_ci95 as in `mean_ci95`, of
    the rows with a value, and KEY_censored for metrics that may be bounds."""
    means: dict[str, float | bool] = {}
    bounds: dict[str, float | bool] = {}
    for key in keys:
        means[key], half = mean_ci95(rows[key].dropna().to_numpy(np.float64))
        flag = censored_key(key)
        if flag in rows:
            bounds[flag] = bool(rows[flag].any())
        means[f"{key}_ci95"] = math.nan if bounds.get(flag) else half
    return means | bounds


def as_result(runs: Sequence[Run]) -> Result:
    """Return the comparison as a result: metrics by policy, facts, legend, remarks, notes and run ids."""
    kind, frame = kind_of(runs), comparison(runs)
    repeated = bool(frame["label"].duplicated().any())
    shown = over_seeds(frame) if repeated else frame
    further, records = kind.beside(runs, frame["label"].tolist())
    rows = tuple(
        {str(key): _plain(value) for key, value in row.items()} | dict(records.get(row["label"], {}))
        for row in shown.to_dict("records")
    )
    currency = "/".join(sorted(set(frame["currency"])))
    heads = [key for key in (_HEAD_OVER_SEEDS if repeated else _HEAD) if key != "currency" or currency]
    columns = [Column(key, key.capitalize()) for key in heads]
    columns += [column(metric, currency, repeated=repeated) for metric in kind.metrics()]
    columns += further
    notes = [*kind.remarks(runs), *kind.notes(runs), *([INTERVALS] if repeated else [])]
    notes += partial(frame.groupby("label", sort=False), kind.metrics()) if repeated else []
    notes += [BOUNDS] if any(run.censored for run in runs) else []
    ids = list(frame["run"])
    more = (
        f" and {len(ids) - _MOST_IDS} more, which `twinbed runs list` names" if len(ids) > _MOST_IDS else ""
    )
    notes.append(f"Runs: {', '.join(ids[:_MOST_IDS])}{more}.")
    return Result(tuple(columns), rows, kind.facts(runs), kind.legend(runs), tuple(notes), aside="label")


def partial(groups: Iterable[tuple[Any, pd.DataFrame]], metrics: Sequence[Metric]) -> list[str]:
    """Return which means over seeds leave out seeds without a value, a note per label and seeds left out.

    groups: a label, and the rows of its seeds with a column `seed` and one per metric.
    """
    titles: dict[tuple[str, tuple[str, ...], int], list[str]] = {}
    for label, group in groups:
        for metric in metrics:
            without = tuple(group["seed"][group[metric.key].isna()].astype(str))
            if 0 < len(without) < len(group):
                titles.setdefault((str(label), without, len(group)), []).append(metric.title)
    notes = [
        f"{label}: {_few(names)}: the mean of the {seeds - len(without)} of {seeds} seeds that have a value "
        f"(without seed {_few(without)})."
        for (label, without, seeds), names in titles.items()
    ]
    more = [f"The same holds for figures of {len(notes) - _FEW} more."] if len(notes) > _FEW else []
    return notes[:_FEW] + more


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


def summary(run: Run) -> Result:
    """Return a run's metrics with title, value, unit, and whether the value is a lower bound, one per row."""
    columns = (
        Column("metric", "Metric"),
        Column("title", "Title"),
        Column("value", "Value", censored="censored"),
        Column("unit", "Unit"),
    )
    currency = run.kind.currency(run)
    rows: tuple[Record, ...] = tuple(
        {
            "metric": metric.key,
            "title": metric.title,
            "value": run.metrics[metric.key],
            "unit": unit_of(metric, currency),
            "censored": metric.key in run.censored,
        }
        for metric in run.kind.metrics()
    )
    return Result(columns, rows)


def titled(run: Run, columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of one of a run's tables, those of metrics with title, unit and decimals."""
    metrics = {metric.key: metric for metric in run.kind.metrics()}
    currency = run.kind.currency(run)
    return tuple(
        replace(column(metrics[given.key], currency, repeated=False), censored="")
        if given.key in metrics
        else given
        for given in columns
    )


def column(metric: Metric, currency: str, *, repeated: bool) -> Column:
    """Return the column of a metric. repeated: its values are means over seeds, with KEY_ci95 beside them."""
    return Column(
        metric.key,
        metric.title,
        unit_of(metric, currency),
        # The mean of a count over seeds is not a count.
        max(metric.decimals, 1) if repeated else metric.decimals,
        percent=metric.key.endswith("_share"),
        spread=f"{metric.key}_ci95" if repeated else "",
        censored=censored_key(metric.key) if metric.may_be_bound else "",
        section=metric.section,
    )


def _plain(value: Any) -> Value:
    """Return a NumPy scalar as its Python type."""
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain
