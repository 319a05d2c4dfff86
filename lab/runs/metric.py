"""The class of metrics, and the table `summary` in which every run stores its metrics.

For: the pillars' tables of metrics, which are files metrics.csv. Not for: computing values.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import nan
from typing import Literal, cast

import pyarrow as pa

Better = Literal["lower", "higher", "neither"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure for judging a run.

    key: its name in tables
    title, unit: for people
    decimals: digits after the point
    better: whether lower or higher values are better; neither: it describes the run, and judges nothing
    definition: its meaning, in one or two sentences
    section: metrics of one section are shown together in a table
    per_container: whether the table `containers` has it, too
    may_be_bound: whether a run may know only a lower bound of it, because it counts requests that never ended
    """

    key: str
    title: str
    unit: str
    decimals: int
    better: Better
    definition: str
    section: str = ""
    per_container: bool = False
    may_be_bound: bool = False

    @property
    def heading(self) -> str:
        """Title with the unit, where there is one."""
        return self.title if self.unit == "1" else f"{self.title} ({self.unit})"


@cache
def read(package: str) -> tuple[Metric, ...]:
    """Return the metrics of a pillar, from metrics.csv in its package. A flag is `yes` or empty."""
    text = (resources.files(package) / "metrics.csv").read_text(encoding="utf-8")
    rows = csv.reader(text.splitlines()[1:])
    return tuple(
        Metric(
            key, title, unit, int(decimals), cast("Better", better), definition, section, *map(bool, flags)
        )
        for key, title, unit, decimals, better, definition, section, *flags in rows
    )


def censored_key(key: str) -> str:
    """Return the key of the flag of a metric's value: whether it is a lower bound."""
    return f"{key}_censored"


def summary(
    metrics: Sequence[Metric], values: Mapping[str, float], currency: str = "", censored: Collection[str] = ()
) -> pa.Table:
    """Return one row per metric: metric, value (float64, NaN if it does not apply), unit, and censored (bool:
    the value is a lower bound)."""
    return pa.table(
        {
            "metric": [metric.key for metric in metrics],
            "value": [float(values.get(metric.key, nan)) for metric in metrics],
            "unit": [unit_of(metric, currency) for metric in metrics],
            "censored": [metric.key in censored for metric in metrics],
        }
    )


def unit_of(metric: Metric, currency: str) -> str:
    """Return the metric's unit; for a price, the name of the currency."""
    return currency if metric.unit == "currency" else metric.unit
