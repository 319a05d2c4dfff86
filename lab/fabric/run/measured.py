"""What came of a fabric's run: figures and tables. For: the measures' result. Not for: computing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from twin.fabric.model import Floats, Outages


@dataclass(frozen=True, slots=True)
class Measured:
    """metrics: by key of lab.fabric.metrics.METRICS, those that have a meaning; tables: by name, columns."""

    metrics: Mapping[str, float]
    tables: Mapping[str, pa.Table]


def of_outages(
    outages: Outages,
    metrics: Mapping[str, float],
    series: Mapping[str, Floats],
    more: Mapping[str, Mapping[str, Floats]] | None = None,
) -> Measured:
    """A measurement with its outages, as a table and as figures, its series over time, and more tables."""
    found = dict(metrics) | {"outages": float(len(outages.fault))}
    if len(outages.fault):
        found |= {"gap_p50_s": float(np.median(outages.gap_s)), "gap_max_s": float(outages.gap_s.max())}
    columns = {each.name: pa.array(getattr(outages, each.name)) for each in fields(outages)}
    tables = {"series": series} | dict(more or {})
    plain = {name: pa.table(dict(values)) for name, values in tables.items()}
    return Measured(found, {"outages": pa.table(columns), **plain})
