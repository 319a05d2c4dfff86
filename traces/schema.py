"""The one schema of a usage trace: who used how much CPU, memory and network, when.

For: the in-memory form that every reader produces and the Parquet form that we write. Not for:
parsing foreign files (traces/readers), nor for refining coarse traces (traces/refine).

A trace is dense: T regular intervals × N containers. A container that is not there in an interval
(before it starts, after it ends) is `present = False`; its usage is 0 there. A value that is missing while
the container is there is not a trace but an error (readers say which row), unless the reader is
asked to fill it and says so in `notes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class UsageTrace:
    """T intervals × N containers, time-major (row t, column i), C-contiguous.

    containers: N distinct non-empty names; apps: N application names; start_s: time stamp of the first
    interval's start (seconds, any epoch); interval_s: length of an interval (seconds, > 0).
    cpu_cores: mean CPU use in the interval, cores, ≥ 0; memory_bytes: working set at the
    interval's end, bytes, ≥ 0; rx_bytes/tx_bytes: network bytes received/sent in the interval, or None
    where the source has no network counters; throttled_s: CFS throttled time in the interval (seconds)
    or None; present: bool. metadata: the source's own facts (machine, kernel, command, licence…).
    notes: what a reader or a refinement did to the data, one sentence each, shown to the user.
    """

    containers: tuple[str, ...]
    apps: tuple[str, ...]
    start_s: float
    interval_s: float
    cpu_cores: Floats
    memory_bytes: Floats
    present: NDArray[np.bool_]
    rx_bytes: Floats | None = None
    tx_bytes: Floats | None = None
    throttled_s: Floats | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """(T, N)"""
        return self.cpu_cores.shape

    @property
    def duration_s(self) -> float:
        """T · interval_s, in seconds."""
        return len(self.cpu_cores) * self.interval_s
