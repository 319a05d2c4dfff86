"""The common part of recommenders such as VPA and Autopilot: they sample usage and update limits at
intervals.

For: the running samples and the two intervals. Not for: members and their limits (cap.py), nor
recommendations, which each policy computes (`_set_up`, `_sample`, `_update`, `on_oom`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from control.allocator.cap import CappedPolicy
from control.allocator.model import (
    NOTHING,
    Application,
    Decision,
    Flags,
    Floats,
    History,
    Ids,
    Join,
    PeriodStats,
    Slots,
)
from control.allocator.ports import Compiler, Given, inherits
from control.allocator.usage import Interval, UsageSamples, add_up


class SampledPolicy(CappedPolicy):
    """A `ports.Allocator` without a name. It is also `ports.Patient` and `ports.Compilable`. The kernel kills
    a container at its memory limit."""

    given = Given(history=True)
    _add_up: Callable[..., None] = staticmethod(add_up)

    def __init__(
        self,
        initial_factor: float,
        sample_interval_s: float,
        update_interval_s: float,
        initial_memory_factor: float | None = None,
    ) -> None:
        memory_factor = initial_factor if initial_memory_factor is None else initial_memory_factor
        super().__init__(initial_factor, memory_factor)
        self._intervals_s = sample_interval_s, update_interval_s

    def compile(self, compiler: Compiler) -> None:
        """See `ports.Compilable`."""
        self._add_up = compiler(add_up)

    def start(self, applications: Sequence[Application], containers: Join) -> Decision:
        """Set first limits (see `CappedFleet`) and begin both intervals."""
        first = super().start(applications, containers)
        self._begin_intervals()
        return first

    @property
    def _memory_in_use(self) -> Floats:
        return self._usage.memory_bytes

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

    def quiet_reports(self, at_s: Floats, period_s: float) -> int:
        """See `ports.Patient`. Return the number of reports before the next update."""
        if not inherits(self, self._known_on_period) or period_s != self._fleet.period_s:
            return 0
        return self._update_interval.before(at_s, period_s)

    def on_periods(
        self,
        ids: Ids,
        used: History,
        throttled: Flags,  # noqa: ARG002 - the port's signature
        at_s: Floats,
    ) -> None:
        """See `ports.Patient`."""
        ends = self._sample_interval.ends(at_s, used.period_s)
        taken = self._usage.add_all(self._add_up, ids, used, ends)
        if ends:
            self._observe_all(*taken, at_s[ends])

    @property
    def _known_on_period(self) -> Callable[..., Decision]:
        """The `on_period` whose effect `on_periods` has."""
        return SampledPolicy.on_period

    def _begin_intervals(self) -> None:
        """Begin both intervals, and their running samples, with the next reported period."""
        self._usage = UsageSamples(self._fleet.roster)
        self._sample_interval, self._update_interval = map(Interval, self._intervals_s)

    def _sample(self, at_s: float) -> None:
        """Take the running sample at the end of a sample interval."""
        self._observe(*self._usage.take(), at_s)

    @abstractmethod
    def _observe(self, slots: Slots, cores: Floats, peak_bytes: Floats, at_s: float) -> None:
        """Take one sample per slot: mean CPU use in cores and memory peak in bytes, float64[n]."""

    def _observe_all(self, slots: Slots, cores: Floats, peak_bytes: Floats, at_s: Floats) -> None:
        """Take samples one after the other. cores, peak_bytes: float64[samples, n]; at_s: end of each sample,
        float64[samples], s."""
        for row, end_s in enumerate(at_s.tolist()):
            self._observe(slots, cores[row], peak_bytes[row], end_s)

    @abstractmethod
    def _update(self, at_s: float, period_s: float) -> Decision:
        """Return the new limits at the end of an update interval."""
