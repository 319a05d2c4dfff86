"""Traces whose periods do not fit into memory: when they are simulated in blocks, and what is known before.

For: the limits on the size of a trace's question, and the peaks and the profile of a trace in blocks. Not
for: drawing the blocks (traces.refined).
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, lcm

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import History
from lab.containers.input.ceilings import profile_peaks
from lab.containers.input.sections import ContainerScenario
from traces.refine import Burstiness
from traces.refined import BLOCK_CELLS, Refined
from traces.schema import MAX_CELLS, MOST_READ_CELLS, UsageTrace
from twin.containers.model import Floats, Workload
from twinbed import ScenarioError

WHOLE_CELLS = 8_000_000
"""Container-periods up to which a trace is refined as a whole: 0.6 GB with the series of one run."""

MOST_BLOCK_CELLS = 8_000_000
"""Largest number of container-periods in a block. One interval of the trace has at most so many."""

MOST_CONTAINERS = 10_000
"""Most containers of a trace in blocks. With late work, the histograms of their figures take 0.3 MB per
container."""

_PROFILE_S = 5.0
"""Interval of a profile that is made of blocks, s, where it divides the trace's: a third of the 15 s at which
metrics servers sample."""


def blocks_of(
    scenario: ContainerScenario,
    trace: UsageTrace,
    seed: np.random.SeedSequence,
    burstiness: Burstiness,
    max_cores: float,
) -> Refined | None:
    """Return the refined trace in blocks; None if it is to be refined as a whole.

    Raises ScenarioError, with the limit and what to do, if neither is possible.
    """
    (count, columns), parts = trace.shape, round(trace.interval_s / scenario.period_s)
    cells = count * parts * columns
    if parts < 2 or cells <= WHOLE_CELLS:
        return None
    together = max(1, round((scenario.series_interval_s or trace.interval_s) / scenario.period_s))
    unit = lcm(parts, together) * columns
    stored = -(-count * parts // together) * columns
    why = ""
    if scenario.hpa is not None or scenario.job is not None:
        why = f"with hpa or a job at most {MAX_CELLS:,}; select fewer containers or a shorter time"
    elif columns > MOST_CONTAINERS:
        why = f"of more than {MOST_CONTAINERS:,} containers at most {MAX_CELLS:,}; select fewer containers"
    elif parts * columns > MOST_BLOCK_CELLS:
        why = f"{MOST_BLOCK_CELLS:,} in one interval of the trace; select fewer containers or a longer period"
    elif unit > MOST_BLOCK_CELLS:
        why = f"in blocks of {MOST_BLOCK_CELLS:,}; let series_interval_s be {trace.interval_s:g} or divide it"
    elif stored > MOST_READ_CELLS:
        why = f"{MOST_READ_CELLS:,} rows of the stored series; give a longer series_interval_s"
    if not why:
        step = max(unit, BLOCK_CELLS // unit * unit)
        return Refined(trace, scenario.period_s, seed, burstiness, max_cores, step)
    if cells <= MAX_CELLS:
        return None
    raise ScenarioError(
        f"{scenario.name}: {count * parts:,} periods × {columns:,} containers are too many: {why}"
    )


class Peaks:
    """The largest values of a trace in blocks, float64[N] or int64[N].

    threads: the largest CPU use of a period, cores. memory_bytes, memory_known: the largest memory, and
    whether any is not zero.
    """

    def __init__(self, blocks: Refined, interval_s: float, period_s: float) -> None:
        columns = blocks.trace.shape[1]
        self._width = max(1, round(interval_s / period_s))
        self._sum, self._summed = np.zeros(columns), 0
        self._cores, self.threads = np.zeros(columns), np.zeros(columns)
        for cpu in blocks.cpu_blocks():
            self._add(cpu, period_s)
            self.threads = np.maximum(self.threads, cpu.max(axis=0))
        # Memory is interpolated linearly, so it never exceeds its samples.
        held = np.where(blocks.trace.present, blocks.trace.memory_bytes, 0.0)
        self.memory_bytes = np.rint(held.max(axis=0, initial=0.0)).astype(np.int64)
        self.memory_known: NDArray[np.bool_] = self.memory_bytes > 0

    @property
    def cores(self) -> Floats:
        """The largest mean CPU use over the interval, as `profile_peaks` of the whole trace."""
        left = self._sum / self._summed if self._summed else self._cores
        return np.maximum(self._cores, left)

    def _add(self, cpu: Floats, period_s: float) -> None:
        head = min(-self._summed % self._width, len(cpu))
        whole = (len(cpu) - head) // self._width * self._width
        self._begin(cpu[:head])
        if whole:
            means = profile_peaks(cpu[head : head + whole], period_s, self._width * period_s)
            self._cores = np.maximum(self._cores, means)
        self._begin(cpu[head + whole :])

    def _begin(self, cpu: Floats) -> None:
        """Add rows to the present interval, and take its mean if it is complete."""
        self._sum, self._summed = self._sum + cpu.sum(axis=0), self._summed + len(cpu)
        if self._summed == self._width:
            self._cores = np.maximum(self._cores, self._sum / self._width)
            self._sum, self._summed = np.zeros_like(self._sum), 0


def profile(workload: Workload) -> History:
    """Return the use of containers of a trace in blocks: means and largest memory of intervals of some
    seconds.

    Raises ScenarioError where that is too much to keep.
    """
    blocks, period_s = workload.blocks, workload.period_s
    assert isinstance(blocks, Refined)
    width = gcd(round(blocks.trace.interval_s / period_s), max(1, round(_PROFILE_S / period_s)))
    rows, columns = blocks.rows // width, len(workload.names)
    if rows * columns > MAX_CELLS:
        raise ScenarioError(
            f"a policy asks for the profile: {rows:,} intervals × {columns:,} containers are more than "
            f"{MAX_CELLS:,}; select fewer containers or a shorter time"
        )
    cpu, memory = np.empty((rows, columns)), np.empty((rows, columns), np.int64)
    for block in blocks.blocks():
        here = slice(block.first // width, (block.first + len(block.present)) // width)
        shape = (-1, width, columns)
        there = block.present.reshape(shape).any(axis=1)
        cpu[here] = np.where(there, block.cpu_cores.reshape(shape).mean(axis=1), np.nan)
        memory[here] = block.memory_bytes.reshape(shape).max(axis=1)
    return History(cpu, memory, width * period_s)


def whole(workload: Workload) -> Workload:
    """Return the workload with its tables in memory. Raises ScenarioError if they are too large."""
    if workload.blocks is None:
        return workload
    assert isinstance(workload.blocks, Refined)
    cells = workload.periods * len(workload.names)
    if cells > MAX_CELLS:
        raise ScenarioError(
            f"{cells:,} container-periods are more than {MAX_CELLS:,}, the most on the testbed; select "
            "fewer containers or a shorter time"
        )
    tables = [block[1:] for block in workload.blocks.blocks()]
    cpu, memory, present = (np.concatenate(parts) for parts in zip(*tables, strict=True))
    return replace(workload, demand_cores=cpu, memory_bytes=memory, present=present, blocks=None)
