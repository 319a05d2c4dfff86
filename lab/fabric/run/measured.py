"""The result of a measurement: metrics and tables. For: what all measurements return. Not for: measuring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from twin.fabric.model import Floats, Outages


@dataclass(frozen=True, slots=True)
class Measured:
    """metrics: by key of lab.fabric.metrics.METRICS, those that have a meaning. tables: by name. censored:
    keys of metrics whose value is a lower bound."""

    metrics: Mapping[str, float]
    tables: Mapping[str, pa.Table]
    censored: frozenset[str] = frozenset()


def of_outages(
    outages: Outages,
    metrics: Mapping[str, float],
    series: Mapping[str, Floats],
    more: Mapping[str, Mapping[str, Floats]] | None = None,
    censored: frozenset[str] = frozenset(),
) -> Measured:
    """Return a measurement with its outages (metrics and a table), its series over time, and more tables."""
    values = dict(metrics) | {"outages": float(len(outages.fault))}
    if len(outages.fault):
        values |= {"gap_p50_s": float(np.median(outages.gap_s)), "gap_max_s": float(outages.gap_s.max())}
    columns = {column.name: pa.array(getattr(outages, column.name)) for column in fields(outages)}
    tables = {"series": series} | dict(more or {})
    plain = {name: pa.table(dict(columns)) for name, columns in tables.items()}
    return Measured(values, {"outages": pa.table(columns), **plain}, censored)
