"""How often, or when, real users asked: series of request rates and lists of arrival times.

For: CSV files (plain or .gz) with `t_s,rps`, or with a column of time stamps. Not for: usage traces
(traces.load), nor for drawing arrivals from a rate (lab.services.arrivals). Public data sets that are read as
they are: the request rates of Autothrottle (Wang et al., NSDI 2024), Azure's LLM inference trace of 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traces.readers import table
from traces.schema import Floats
from twinbed import TraceError

TIME = ("t_s", "time_s", "time", "timestamp", "TIMESTAMP")
"""Names of the time column: seconds since any moment, or ISO 8601 (UTC unless a zone is given)."""

RATE = ("rps", "rate_rps", "requests_per_second")
"""Names of the rate column: requests per second from this row's time to the next one's."""

MAX_ROWS = 50_000_000

_TOLERANCE = 0.01
"""By how much of a step a time may miss its place: rounded decimals do, a lost row does not."""


@dataclass(frozen=True, slots=True)
class RequestRates:
    """rates_rps: float64[n ≥ 2], finite and zero or above, each for step_s seconds (> 0)."""

    step_s: float
    rates_rps: Floats

    @property
    def duration_s(self) -> float:
        """n · step_s, in seconds."""
        return len(self.rates_rps) * self.step_s


def read_rates(path: str | Path) -> RequestRates:
    """The series in a CSV with a time and a rate column; other columns are not looked at.

    Raises TraceError naming the file and the line: a rate that is not a number, zero or above; a time that
    repeats, runs backwards or leaves a gap; fewer than two rows.
    """
    path = Path(path)
    frame = table.read_text(path, MAX_ROWS)
    times = _times(path, frame[_column(path, frame, TIME)])
    cells = frame[_column(path, frame, RATE)]
    rates = table.numbers(path, cells)
    _refuse(path, cells, rates < 0, "a rate, zero or above")
    if len(times) < 2:
        raise TraceError(f"{path}: a single row, so how long its rate holds cannot be told")
    steps = np.diff(times)
    step_s = float(times[-1] - times[0]) / len(steps)
    bad = ~(steps > 0) | (np.abs(steps - step_s) > _TOLERANCE * step_s)
    if bad.any():
        # A lost row makes the mean step too long for every row: name the first that differs from most.
        step_s = float(np.median(steps))
        at = int(np.argmax(np.where(bad, np.abs(steps - step_s), -1.0))) + 1
        raise TraceError(
            f"{path}: line {frame.index[at]}: time {times[at]:.10g} s after {times[at - 1]:.10g} s, expected "
            f"increasing times, all equally far apart"
        )
    return RequestRates(step_s, rates)


def read_timestamps(path: str | Path) -> Floats:
    """Arrival times, float64[n ≥ 1] ascending, seconds since the first, from a CSV with a time column.

    Equal times are requests at once. Raises TraceError naming the file and the line: a time that cannot be
    read, or that is before the line above it.
    """
    path = Path(path)
    frame = table.read_text(path, MAX_ROWS)
    cells = frame[_column(path, frame, TIME)]
    times = _times(path, cells)
    back = np.flatnonzero(np.diff(times) < 0)
    if back.size:
        at = int(back[0]) + 1
        raise TraceError(
            f"{path}: line {frame.index[at]}: {cells.iloc[at]!r} is before the time on the line above it"
        )
    return np.asarray(times - times[0], np.float64)


def _column(path: Path, frame: pd.DataFrame, names: tuple[str, ...]) -> str:
    found = [name for name in names if name in frame]
    if len(found) != 1:
        wanted = " or ".join(map(repr, names))
        have = f"columns {' and '.join(found)} mean the same" if found else f"no column {wanted}"
        raise TraceError(f"{path}: {have}; the file has {', '.join(map(str, frame.columns[:12]))}")
    return found[0]


def _times(path: Path, cells: pd.Series[str]) -> Floats:
    """Seconds since the first row's; exact to 1e-7 s for stamps, which are counted in whole nanoseconds."""
    if cells.iloc[0].count("-") < 2 or "e" in cells.iloc[0].lower():
        return table.numbers(path, cells)
    stamps = pd.to_datetime(cells.str.strip(), format="ISO8601", utc=True, errors="coerce")
    _refuse(path, cells, stamps.isna().to_numpy(), "an ISO 8601 time")
    whole = np.asarray(stamps.dt.as_unit("ns").astype("int64"), np.int64)
    return np.asarray(whole - whole[0], np.float64) / 1e9


def _refuse(path: Path, cells: pd.Series[str], bad: NDArray[np.bool_], expected: str) -> None:
    """Raises TraceError naming the first line that is bad."""
    if bad.any():
        at = int(np.argmax(bad))
        raise TraceError(
            f"{path}: line {cells.index[at]}, column {cells.name}: {cells.iloc[at]!r}, expected {expected}"
        )
