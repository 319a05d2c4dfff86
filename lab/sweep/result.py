"""A sweep as a table: means over the seeds of every point, what failed, and the file of all rows.

For: what `twinbed sweep` prints and writes. Not for: charts (page.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from lab.ask.scenario import Scenario
from lab.runs.compare import BOUNDS, INTERVALS, averaged, column, partial
from lab.runs.formats import Column, Record, Result
from lab.runs.metric import Metric, censored_key, unit_of
from lab.sweep.book import write_parquet
from lab.sweep.rules import LEAST_SEEDS
from lab.sweep.sweep import Swept
from twinbed import ScenarioError
from twinbed.writing import write_bytes, write_whole

_METRICS = 4
"""Number of metrics in the table unless others are requested: more do not fit beside the keys."""
_FAILURES, _SEEDS = 10, 5
"""Failures that the table's notes show, and seeds of each. The store's table has all."""


def currency_of(scenario: Scenario) -> str:
    """Return the currency of the scenario's prices, "" for a kind without prices."""
    return str(getattr(getattr(scenario, "price", None), "currency", ""))


def chosen(swept: Swept, asked: Sequence[Metric], watched: Sequence[Metric] = ()) -> list[Metric]:
    """Return the metrics to show, prices in the scenario's currency: those asked for, else those that a stop
    rule watched, and the first of the kind that differ between rows."""
    known = [metric for metric in watched if swept.frame[metric.key].notna().any()]
    usual = dict.fromkeys([*known, *differing(swept.frame, swept.plan.kind.metrics())])
    currency = currency_of(swept.plan.points[0].scenario)
    wanted = list(asked) or list(usual)[:_METRICS]
    return [replace(metric, unit=unit_of(metric, currency)) for metric in wanted]


def differing(frame: pd.DataFrame, metrics: Sequence[Metric]) -> list[Metric]:
    """Return the first of the metrics that differ between rows, the first of all if none does."""
    differ = [metric for metric in metrics if frame[metric.key].nunique() > 1]
    return (differ or list(metrics))[:_METRICS]


def means(frame: pd.DataFrame, varied: Sequence[str], metrics: Sequence[Metric]) -> pd.DataFrame:
    """Return one row per point and policy: the keys, policy, seeds (their number), and for each metric KEY
    (the mean over the seeds), KEY_ci95 (half-width of its 95 % interval, NaN with fewer than two seeds) and,
    for metrics that may be bounds, KEY_censored. A mean over bounds is a bound without an interval.

    frame: as Swept.frame, with or without the flags of bounds. varied: the keys that vary.
    """
    keys = [*varied, "policy"]
    rows = []
    for labels, group in frame.groupby(keys, sort=False):
        row: dict[str, Any] = dict(zip(keys, labels, strict=True))
        rows.append(row | {"seeds": len(group)} | averaged(group, [metric.key for metric in metrics]))
    spread = [name for metric in metrics for name in (metric.key, f"{metric.key}_ci95")]
    bounds = [flag for metric in metrics if (flag := censored_key(metric.key)) in frame]
    return pd.DataFrame(rows, columns=[*keys, "seeds", *spread, *bounds])


def result(swept: Swept, metrics: Sequence[Metric], watched: Sequence[Metric] = ()) -> Result:
    """Return the table of means, with the failures in its notes. watched: metrics of the stop rule."""
    rows: tuple[Record, ...] = tuple(
        {str(key): value.item() if hasattr(value, "item") else value for key, value in row.items()}
        for row in means(swept.frame, swept.plan.keys, metrics).to_dict("records")
    )
    currency = currency_of(swept.plan.points[0].scenario)
    columns = [Column(key, key) for key in swept.plan.keys]
    columns += [Column("policy", "Policy"), Column("seeds", "Seeds")]
    columns += [column(metric, currency, repeated=True) for metric in metrics]
    facts: dict[str, Any] = {
        "sweep": swept.plan.id,
        "points": len(swept.plan.points),
        "runs": int(swept.frame["run"].nunique()),
    }
    if swept.left_out:
        facts["units left out by the stop rule"] = swept.left_out
    if len(swept.failures):
        facts["runs that failed"] = len(swept.failures)
    keys = swept.plan.keys
    groups = (
        (" ".join([*map("{}={}".format, keys, labels), str(labels[-1])]), group)
        for labels, group in swept.frame.groupby([*keys, "policy"], sort=False)
    )
    blind = [
        f"No run has a value of {metric.key} that is more than a lower bound, so --until left out no seeds."
        for metric in watched
        if len(swept.frame) and not _told(swept.frame, metric.key).any()
    ]
    if watched and len(swept.plan.seeds) <= LEAST_SEEDS:
        blind.append(
            f"--until leaves out seeds after the first {LEAST_SEEDS} of a point, and this sweep has "
            f"{len(swept.plan.seeds)}; give more, such as --seeds 0:20"
        )
    bounded = any(row.get(censored_key(metric.key)) for row in rows for metric in metrics)
    bounds = [BOUNDS] if bounded else []
    notes = (*_failures(swept), *_of_shard(swept), *blind, INTERVALS, *partial(groups, metrics), *bounds)
    return Result(tuple(columns), rows, facts, "", notes)


def _told(frame: pd.DataFrame, key: str) -> pd.Series[bool]:
    """Return which rows have a value of a metric that is no bound."""
    return frame[key].notna() & ~frame.get(censored_key(key), pd.Series(False, frame.index)).astype(bool)


def write(swept: Swept, path: Path) -> None:
    """Write all rows, parameters × metrics × seed, as Parquet or CSV by the file's ending."""
    if path.suffix == ".csv":
        write_bytes(path, swept.frame.to_csv(index=False).encode())
    else:
        write_whole(path, lambda file: write_parquet(swept.frame, file))


def check_ending(path: Path) -> None:
    """Raise ScenarioError for a file that `write` has no format for."""
    if path.suffix not in (".csv", ".parquet"):
        raise ScenarioError(f"--out {path}: the name must end in .parquet or .csv")


def _of_shard(swept: Swept) -> list[str]:
    """Return what the table lacks because other machines make it."""
    plan = swept.plan
    every = len(plan.cells) * len(plan.seeds)
    lacking = every - len(swept.frame) - len(swept.failures)
    if plan.shard.count == 1 or not lacking:
        return []
    return [
        f"Shard {plan.shard.number + 1} of {plan.shard.count}: the means lack {lacking:,} of {every:,} "
        "values, which other shards have not stored here, which failed there, or which --until left out."
    ]


def _failures(swept: Swept) -> list[str]:
    """Return a line for each policy of a point and each reason, with the seeds."""
    keys = [*swept.plan.keys, "policy"]
    lines = []
    for (*labels, reason), group in swept.failures.groupby([*keys, "reason"], sort=False, dropna=False):
        where = " ".join(map("{}={}".format, keys, labels))
        seeds = group["seed"].sort_values().astype(str).tolist()
        more = f" and {len(seeds) - _SEEDS} more" if len(seeds) > _SEEDS else ""
        lines.append(f"Failed: {where} seed={','.join(seeds[:_SEEDS])}{more}: {reason}")
    if len(lines) > _FAILURES:
        file = f".sweeps/{swept.plan.id}/failures{swept.plan.shard.name}.csv"
        lines[_FAILURES:] = [f"Failed: {len(lines) - _FAILURES} more; {file} in the store has all."]
    return lines
