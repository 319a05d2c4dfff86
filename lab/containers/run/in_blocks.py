"""The sums and the stored series of a run that is simulated block by block.

For: traces whose periods do not fit into memory. Not for: shorter runs, whose figures are exact: here
quantiles of slack are within 2^-10 of themselves (twin.containers.sketch) and those of lateness within 2^-9
(twin.containers.lateness_blocks). All other figures are the same, but for the rounding of sums.
"""

from __future__ import annotations

from dataclasses import replace

from lab.containers.input.replay import Replay
from lab.containers.metrics import OSCILLATION_PERIODS
from lab.containers.run.figures import (
    LATENESS_QUANTILES,
    SLACK_QUANTILES,
    Pairs,
    Seen,
    Sums,
    cpu_slack,
    memory_slack,
    sums,
)
from lab.containers.run.stretches import Stretches, joined, stretches
from twin.containers.lateness_blocks import LatenessInBlocks
from twin.containers.model import Floats, Series
from twin.containers.reversals import Reversals
from twin.containers.sketch import Sketch

_MEMORY = ("limit_bytes", "memory_bytes", "up")
"""Series from which memory slack is computed."""

_ROWS = 256
"""Number of periods whose memory slack is counted at once. It then stays in the cache. CPU slack changes more
from period to period. All its periods are counted at once, because a container's histogram then stays there.
"""


class InBlocks:
    """Takes the series of a run, block by block. together: periods in a row of the stored series; each block
    but the last has a multiple of them."""

    def __init__(self, replay: Replay, together: int) -> None:
        self._replay, self._together = replay, together
        count = len(replay.workload.names)
        self._sums: Sums | None = None
        self._cpu, self._memory = Sketch(count), Sketch(count)
        self._lateness = LatenessInBlocks(count, replay.workload.period_s)
        self._quotas = Reversals(count, OSCILLATION_PERIODS)
        self._limits = Reversals(count, OSCILLATION_PERIODS)
        self._stored: list[Stretches] = []

    def take(self, series: Series) -> None:
        """Take a block. Its arrays are not kept."""
        more = sums(series, self._replay.workload)
        self._sums = more if self._sums is None else _added(self._sums, more)
        self._cpu.add(*cpu_slack(series))
        for first in range(0, len(series.up), _ROWS):
            rows = replace(series, **{n: getattr(series, n)[first : first + _ROWS] for n in _MEMORY})
            self._memory.add(*memory_slack(rows, self._replay.memory_known))
        self._lateness.add(series.demand_cores, series.usage_cores)
        self._quotas.add(series.quota_cores, series.up)
        self._limits.add(series.limit_bytes, series.up)
        self._stored.append(stretches(series, self._together))

    def seen(self) -> Seen:
        """Return the sums that the figures need. Call it once, at the end."""
        assert self._sums is not None
        spread = _named("cpu_slack_p{}_cores", SLACK_QUANTILES, *self._cpu.quantiles(SLACK_QUANTILES))
        spread |= _named("memory_slack_p{}_mib", SLACK_QUANTILES, *self._memory.quantiles(SLACK_QUANTILES))
        spread |= _named("lateness_p{}_s", LATENESS_QUANTILES, *self._lateness.quantiles(LATENESS_QUANTILES))
        return Seen(*self._sums, self._quotas.counts() + self._limits.counts(), spread)

    def stored(self) -> Stretches:
        """Return the stored series."""
        return joined(self._stored)


def _added(one: Sums, other: Sums) -> Sums:
    return (
        one[0] + other[0],
        one[1] + other[1],
        one[2] + other[2],
        one[3] + other[3],
        one[4] + other[4],
        one[5] | other[5],
    )


def _named(key: str, wanted: tuple[float, ...], own: Floats, pooled: Floats) -> Pairs:
    return {key.format(round(100 * q)): (own[:, i], float(pooled[i])) for i, q in enumerate(wanted)}
