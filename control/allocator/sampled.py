"""What recommenders like VPA and Autopilot have in common: sample usage, and now and then update limits.

For: membership, the running samples and the two intervals; limits are kept under the applications' by
`cap`. Not for: what is recommended, which is the policy's own (`_set_up`, `_sample`, `_update`, `on_oom`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from control.allocator.cap import CappedFleet
from control.allocator.model import NOTHING, Application, Decision, Ids, Join, PeriodStats, Reason, Shrunk
from control.allocator.ports import ReclaimRule
from control.allocator.roster import Roster
from control.allocator.usage import Interval, UsageSamples


class SampledPolicy(ABC):
    """`ports.Allocator` but for its name and `on_oom`. Containers at their memory limit are killed by the
    kernel, and no memory is reclaimed."""

    traps_oom = False
    reclaim: ReclaimRule | None = None

    def __init__(self, initial_factor: float, sample_interval_s: float, update_interval_s: float) -> None:
        self._initial_factor = initial_factor
        self._intervals_s = sample_interval_s, update_interval_s

    def start(self, applications: Sequence[Application], containers: Join) -> Decision:
        """Initial limits: the profiled peak × initial_factor, or the fair share (see `CappedFleet`)."""
        self._fleet = CappedFleet(tuple(applications), self._initial_factor, self._initial_factor)
        self._usage = UsageSamples(self._fleet.roster)
        self._sample_interval, self._update_interval = map(Interval, self._intervals_s)
        self._set_up(self._fleet.roster)
        return self._fleet.join(containers, Reason.INITIAL, np.zeros(0))

    def on_join(self, containers: Join) -> Decision:
        """Newcomers start as at `start`; those above the fair share make room in place."""
        return self._fleet.join(containers, Reason.JOINED, self._usage.memory_bytes)

    def on_leave(self, ids: Ids) -> Decision:
        """Nothing is redistributed: the next recommendations may use what has become free."""
        self._fleet.leave(ids)
        return NOTHING

    def on_period(self, stats: PeriodStats) -> Decision:
        """Adds to the running sample; at the end of an interval samples, and updates limits."""
        self._usage.add(stats)
        fitted = self._fleet.fit_period(stats.period_s)
        if not fitted.empty:
            return fitted
        if self._sample_interval.over(stats.at_s, stats.period_s):
            self._sample(stats.at_s)
        if self._update_interval.over(stats.at_s, stats.period_s):
            return self._update(stats.at_s, stats.period_s)
        return NOTHING

    def on_reclaimed(self, shrunk: Shrunk) -> Decision:  # noqa: ARG002 - no reclaim is ever asked for
        """Nothing."""
        return NOTHING

    @abstractmethod
    def _set_up(self, roster: Roster) -> None:
        """Makes the policy's own columns, at `start`."""

    @abstractmethod
    def _sample(self, at_s: float) -> None:
        """A sample interval is over: takes the running sample."""

    @abstractmethod
    def _update(self, at_s: float, period_s: float) -> Decision:
        """An update interval is over: the new limits."""
