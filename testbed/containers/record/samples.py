"""Convert samples of counters, taken at irregular times, into regular intervals.

For: storing samples, and resampling them. Not for: reading (cgroup/, network), nor timing (schedule.py).
Between two samples, counters are interpolated linearly over the times at which the samples were really taken.
So a late sample does not bias an interval's usage. Usage around a missed tick is spread evenly over the
intervals between its neighbours, and the sum over all intervals is the counter's growth.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.containers.record.schedule import NS

Floats = NDArray[np.float64]

_FIELDS = 6
_TIME, _CPU, _THROTTLED, _MEMORY, _RX, _TX = range(_FIELDS)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Regular intervals, [T, N] each. cpu_cores: mean CPU use, cores. throttled_s: throttled time, s.
    memory_bytes: memory at the end, bytes. rx_bytes, tx_bytes: received and sent. present: whether the
    container ran."""

    cpu_cores: Floats
    throttled_s: Floats
    memory_bytes: Floats
    rx_bytes: Floats
    tx_bytes: Floats
    present: NDArray[np.bool_]


class Samples:
    """The readings of `containers` containers, in order of time. The first sample is tick 0."""

    def __init__(self, containers: int) -> None:
        self._containers = containers
        self._ticks = array("q")
        self._values = array("q")
        self._last = [0] * (containers * _FIELDS)
        self._end_ticks: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._ticks)

    def put(
        self, container: int, at_ns: int, cpu_ns: int, throttled_ns: int, memory_bytes: int, rx: int, tx: int
    ) -> None:
        """Set a container's reading in the present sample. Without it, the last reading stays."""
        first = container * _FIELDS
        self._last[first : first + _FIELDS] = (at_ns, cpu_ns, throttled_ns, memory_bytes, rx, tx)

    def put_last(
        self, container: int, tick: int, cpu_ns: int, throttled_ns: int, memory_bytes: int, rx: int, tx: int
    ) -> None:
        """Set the last reading of a container that ended in the interval before `tick`. The container is
        absent from then on. Its process has released its memory by then, so the larger of this and the sample
        before counts."""
        self._end_ticks[container] = tick
        held = max(memory_bytes, self._last[container * _FIELDS + _MEMORY])
        # intervals() assigns its time: all of this usage belongs to the time before the tick.
        self.put(container, 0, cpu_ns, throttled_ns, held, rx, tx)

    def keep(self, tick: int) -> None:
        """Store the present sample as the sample of `tick`."""
        self._ticks.append(tick)
        self._values.extend(self._last)

    def intervals(self, start_ns: int, interval_s: float) -> Intervals:
        """Return the intervals from `start_ns` to the last sample's tick, where every container ends."""
        ticks = np.frombuffer(self._ticks, np.int64)
        values = np.frombuffer(self._values, np.int64).reshape(len(ticks), self._containers, _FIELDS)
        count = int(ticks[-1])
        result = np.zeros((_FIELDS, count, self._containers))
        present = np.zeros((count, self._containers), np.bool_)
        for index in range(self._containers):
            end = self._end_ticks.get(index, count)
            rows = ticks <= end
            at = (values[rows, index, _TIME] - start_ns) / (interval_s * NS)
            result[:, :end, index] = _resample(ticks[rows], at, values[rows, index], end)
            present[:end, index] = True
        return Intervals(
            cpu_cores=result[_CPU] / (interval_s * NS),
            throttled_s=result[_THROTTLED] / NS,
            memory_bytes=result[_MEMORY],
            rx_bytes=result[_RX],
            tx_bytes=result[_TX],
            present=present,
        )


def _resample(ticks: NDArray[np.int64], at: Floats, values: NDArray[np.int64], end: int) -> Floats:
    """Return float64[_FIELDS, end]: the growth of each counter in each interval, and the memory at its end.
    ticks: int64[S]. at: time of each sample, in intervals since tick 0. values: int64[S, _FIELDS]."""
    at[-1] = end
    at = np.maximum.accumulate(np.minimum(at, end))
    grid = np.arange(end + 1, dtype=np.float64)
    resampled = np.empty((_FIELDS, end))
    for column in range(_FIELDS):
        counted = values[:, column] - values[0, column]
        resampled[column] = np.diff(np.interp(grid, at, counted))
    # Memory is not a counter. A tick's sample is the memory held at its interval's end.
    resampled[_MEMORY] = np.interp(grid[1:], ticks, values[:, _MEMORY])
    return resampled
