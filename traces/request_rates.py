"""Read series of request rates, and arrival times of real users' requests.

For: CSV files (plain or .gz) with `t_s,rps`, or with a column of time stamps. Not for: usage traces
(traces.load), nor drawing arrivals from a rate. Two public data sets are read without conversion: the request
rates of Autothrottle (Wang et al., NSDI 2024) and Azure's LLM inference trace of 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from traces.readers import table
from traces.schema import LATEST_S, Floats
from twinbed import TraceError

TIME = ("t_s", "time_s", "time", "timestamp", "TIMESTAMP")
"""Names of the time column: seconds since any moment, or ISO 8601 (UTC unless it has a zone)."""

RATE = ("rps", "rate_rps", "requests_per_second")
"""Names of the rate column. Its values are requests per second from the row's time to the next row's time."""

MAX_ROWS = 50_000_000

_TOLERANCE = 0.01
"""Share of a step by which a time may miss its place. It allows rounded decimals, but not a lost row."""


@dataclass(frozen=True, slots=True)
class RequestRates:
    """A series of request rates.

    step_s: time for which each rate holds, s (> 0)
    rates_rps: requests per second, float64[n ≥ 2], finite and zero or above
    """

    step_s: float
    rates_rps: Floats

    @property
    def duration_s(self) -> float:
        """Length of the series: n · step_s, in seconds."""
        return len(self.rates_rps) * self.step_s


def read_rates(path: str | Path) -> RequestRates:
    """Return the series in a CSV with a time and a rate column; other columns are ignored.

    Raises TraceError, which names the file and the line: a rate that is not a number, zero or above; a time
    that repeats, runs backwards or leaves a gap; fewer than two rows.
    """
    path = Path(path)
    frame = table.read_text(path, MAX_ROWS)
    times = _times(path, frame[table.only(path, frame, TIME)])
    cells = frame[table.only(path, frame, RATE)]
    rates = table.numbers(path, cells)
    table.refuse(path, cells, rates < 0, "a rate, zero or above")
    if len(times) < 2:
        raise TraceError(f"{path}: one row does not show how long its rate holds; add a row")
    steps = np.diff(times)
    step_s = float(times[-1] - times[0]) / len(steps)
    bad = ~(steps > 0) | (np.abs(steps - step_s) > _TOLERANCE * step_s)
    if bad.any():
        # A lost row makes the mean step too long for every row. The error therefore names the first row that
        # differs from most; of two steps, from the shorter.
        step_s = float(np.quantile(steps[steps > 0], 0.5, method="lower")) if (steps > 0).any() else 0.0
        at = int(np.argmax(np.where(bad, np.abs(steps - step_s), -1.0))) + 1
        raise TraceError(
            f"{path}: line {frame.index[at]}: time {times[at]:.10g} s after {times[at - 1]:.10g} s, expected "
            f"increasing times, all equally far apart"
        )
    return RequestRates(step_s, rates)


def read_timestamps(path: str | Path) -> Floats:
    """Return arrival times from a CSV with a time column: float64[n ≥ 1], ascending, seconds since the
    first.

    Requests may have equal times. Raises TraceError, which names the file and the line: a time that cannot be
    read, or that is before the line above it.
    """
    path = Path(path)
    frame = table.read_text(path, MAX_ROWS)
    cells = frame[table.only(path, frame, TIME)]
    times = _times(path, cells)
    back = np.flatnonzero(np.diff(times) < 0)
    if back.size:
        at = int(back[0]) + 1
        raise TraceError(
            f"{path}: line {frame.index[at]}: {cells.iloc[at]!r} is before the time on the line above it"
        )
    return np.asarray(times - times[0], np.float64)


def _times(path: Path, cells: pd.Series[str]) -> Floats:
    """Return seconds, float64[n]; ISO 8601 times count from the first row's, exact to 1e-7 s."""
    stamps_ns = table.iso_ns(path, cells)
    if stamps_ns is None:
        times_s = table.numbers(path, cells)
        table.refuse(path, cells, np.abs(times_s) > LATEST_S, "seconds; divide milliseconds by 1000")
        return times_s
    return np.asarray(stamps_ns - stamps_ns[0], np.float64) / 1e9
