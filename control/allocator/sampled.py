"""What recommenders like VPA and Autopilot have in common: they sample usage, and now and then update limits.

For: membership, the running samples and the two intervals. Limits are kept under the applications' limits by
`cap`. Not for: what is recommended, which is the policy's own (`_set_up`, `_sample`, `_update`, `on_oom`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from control.allocator.cap import CappedFleet
from control.allocator.model import NOTHING, Application, Decision, Ids, Join, PeriodStats, Reason
from control.allocator.ports import Given, WithoutReclaim
from control.allocator.roster import Roster
from control.allocator.usage import Interval, UsageSamples


class SampledPolicy(WithoutReclaim, ABC):
    """`ports.Allocator` without its name. A container at its memory limit is killed by the kernel."""

    given = Given(history=True)

    def __init__(
        self,
        initial_factor: float,
        sample_interval_s: float,
        update_interval_s: float,
        initial_memory_factor: float | None = None,
    ) -> None:
        memory_factor = initial_factor if initial_memory_factor is None else initial_memory_factor
        self._initial_factors = initial_factor, memory_factor
        self._intervals_s = sample_interval_s, update_interval_s

    def start(self, applications: Sequence[Application], containers: Join) -> Decision:
        """Set initial limits: profiled peaks times the factors, or the fair share (see `CappedFleet`)."""
        self._fleet = CappedFleet(tuple(applications), *self._initial_factors)
        self._begin_intervals()
        self._set_up(self._fleet.roster)
        return self._fleet.join(containers, Reason.INITIAL, np.zeros(0))

    def on_join(self, containers: Join) -> Decision:
        """Start newcomers as in `start`. Containers above the fair share make room in place."""
        return self._fleet.join(containers, Reason.JOINED, self._usage.memory_bytes)

    def on_leave(self, ids: Ids) -> Decision:
        """Redistribute nothing. The next recommendations may use what has become free."""
        self._fleet.leave(ids)
        return NOTHING

    def on_period(self, stats: PeriodStats) -> Decision:
        """Add to the running sample. At the end of an interval, take the sample and update limits."""
        self._usage.add(stats)
        fitted = self._fleet.fit_period(stats.period_s)
        if not fitted.empty:
            return fitted
        if self._sample_interval.over(stats.at_s, stats.period_s):
            self._sample(stats.at_s)
        if self._update_interval.over(stats.at_s, stats.period_s):
            return self._update(stats.at_s, stats.period_s)
        return NOTHING

    def _begin_intervals(self) -> None:
        """Begin both intervals, and their running samples, with the next period that is reported."""
        self._usage = UsageSamples(self._fleet.roster)
        self._sample_interval, self._update_interval = map(Interval, self._intervals_s)

    @abstractmethod
    def _set_up(self, roster: Roster) -> None:
        """Make the policy's own columns, at `start`."""

    @abstractmethod
    def _sample(self, at_s: float) -> None:
        """Take the running sample at the end of a sample interval."""

    @abstractmethod
    def _update(self, at_s: float, period_s: float) -> Decision:
        """Return the new limits at the end of an update interval."""
