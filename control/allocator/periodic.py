"""Base class for a user's own policies, which set limits at regular intervals.

For: a class that implements `limits` and is an `Allocator`. Membership, sampling, the applications' global
limits and the kernel's minima are here. Not for: policies that answer within a period, trap OOMs or restart
containers. They implement `ports.Allocator` themselves.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Decision, Flags, Floats, History, Ids, PeriodStats, Reason, Slots
from control.allocator.roster import Column, Roster
from control.allocator.sampled import SampledPolicy
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class Sample:
    """Use of n containers in the last interval.

    slots: int64[n], index of each container in the policy's columns.
    cores: float64[n], mean CPU use. memory_bytes: float64[n], largest memory use.
    throttled: float64[n], share of the periods in which the quota was used up, 0 to 1.
    quota_cores, limit_bytes: float64[n], the limits in force. at_s: end of the interval, s.
    """

    slots: NDArray[np.int64]
    cores: Floats
    memory_bytes: Floats
    throttled: Floats
    quota_cores: Floats
    limit_bytes: Floats
    at_s: float


class PeriodicPolicy(SampledPolicy):
    """A `ports.Allocator` that lacks only `limits`.

    interval_s: time between decisions, s. initial_factor: a container starts at this factor times its
    profiled peak.
    """

    def __init__(self, interval_s: float = 1.0, initial_factor: float = 1.0) -> None:
        super().__init__(initial_factor, interval_s, interval_s)

    @property
    def name(self) -> str:
        """Name of the policy: the class's name."""
        return type(self).__name__

    @abstractmethod
    def limits(self, sample: Sample) -> tuple[Floats, Floats]:
        """Return the CPU quotas (cores) and memory limits (bytes) wanted, float64[n] each.

        Quotas and limits are raised as far as the global limits allow, and inf means all of them. Memory is
        not lowered below its use. NaN ends the run with a ScenarioError.
        """

    def begin(self) -> None:
        """Make the policy's own columns with `column`. It is called at `start`."""

    def column(self, fill: float = 0.0, *shape: int) -> Column:
        """Return a column: `values[slots]` is a number, or an array of this shape, for each container.

        It is reset to `fill` for a container that joins.
        """
        return self._fleet.roster.column(fill, np.float64, *shape)

    def on_period(self, stats: PeriodStats) -> Decision:
        """Count throttled periods, in addition to what `SampledPolicy` samples."""
        self._count(stats.ids, stats.throttled[None])
        return super().on_period(stats)

    def on_periods(self, ids: Ids, used: History, throttled: Flags, at_s: Floats) -> None:
        """See `ports.Patient`."""
        self._count(ids, throttled)
        super().on_periods(ids, used, throttled, at_s)

    @property
    def _known_on_period(self) -> Callable[..., Decision]:
        return PeriodicPolicy.on_period

    def _count(self, ids: Ids, throttled: Flags) -> None:
        """Count reports, and those of throttled periods. throttled: bool[reports, n]."""
        rows, slots = self._fleet.roster.find(ids)
        self._throttled.values[slots] += throttled[:, rows].sum(axis=0)
        self._periods.values[slots] += len(throttled)

    def _set_up(self, roster: Roster) -> None:
        self._throttled, self._periods = roster.column(0.0, np.float64), roster.column(0.0, np.float64)
        self._slots: NDArray[np.int64] = np.empty(0, np.int64)
        self.begin()

    def _observe(self, slots: Slots, cores: Floats, peak_bytes: Floats, at_s: float) -> None:  # noqa: ARG002
        self._slots, self._cores, self._peaks = slots, cores, peak_bytes

    def _update(self, at_s: float, period_s: float) -> Decision:  # noqa: ARG002 - as in SampledPolicy
        fleet, slots = self._fleet, self._slots
        throttled = self._throttled.values[slots] / np.maximum(self._periods.values[slots], 1.0)
        self._throttled.values[:] = self._periods.values[:] = 0.0
        now = fleet.cpu.values[slots].copy(), fleet.memory.values[slots].copy()
        cores, size = self.limits(Sample(slots, self._cores, self._peaks, throttled, *now, at_s))
        if np.isnan(cores).any() or np.isnan(size).any():
            raise ScenarioError(f"{self.name}.limits: a limit is NaN at {at_s:g} s")
        size = np.where(np.isposinf(size), fleet.roster.memory_limit_bytes[fleet.roster.app[slots]], size)
        size = np.maximum(size, self._usage.memory_bytes[slots])
        cpu = slots[fleet.cpu.change(slots, np.minimum(cores, fleet.roster.host_cores[slots]))]
        memory = slots[fleet.memory.change(slots, size)]
        return Decision(
            cpu=fleet.cpu_limits(cpu, Reason.RECOMMENDED),
            memory=fleet.memory_limits(memory, Reason.RECOMMENDED),
        )
