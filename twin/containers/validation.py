"""Cheap checks of a workload before it is simulated.

For: shapes and constants. Not for: the tables' values, which `ending.end_period` checks row by row as it
reads them, nor for users' mistakes: traces are validated before they become a workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from twin.containers.model import Workload
from twinbed import InvariantError


def check(workload: Workload) -> None:
    """Raise InvariantError for arrays that do not match or constants out of range."""
    shape = (len(workload.demand_cores), len(workload.names))
    tables: Sequence[np.ndarray[Any, Any]] = (workload.demand_cores, workload.memory_bytes, workload.present)
    names = ("app", "threads", "host", "host_cores", "weight", "peak_cores", "peak_bytes")
    columns = [getattr(workload, name) for name in names]
    if any(table.shape != shape for table in tables) or any(values.shape != shape[1:] for values in columns):
        raise InvariantError("workload: arrays of different lengths side by side")
    for name in ("threads", "host_cores", "weight"):
        values = getattr(workload, name)
        if not (np.isfinite(values) & (values > 0)).all():
            raise InvariantError(f"workload: {name} must be finite and above zero")
    _, example, index = np.unique(workload.host, return_index=True, return_inverse=True)
    if not np.array_equal(workload.host_cores, workload.host_cores[example][index]):
        raise InvariantError("workload: containers of one host differ in its host_cores")
    if not (np.isfinite(workload.period_s) and workload.period_s > 0):
        raise InvariantError(f"workload: a period of {workload.period_s} s")
