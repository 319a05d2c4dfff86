"""Autothrottle: CPU quotas that hold throttle targets. One controller per container, and one per application.

For: membership, telemetry and limits of the allocator that backends drive through ports.py. Not for: the
rules (autothrottle_captain.py, autothrottle_tower.py), nor the application's global limits (cap.py).

Source: Wang et al., "Autothrottle: A Practical Bi-Level Approach to Resource Management for SLO-Targeted
Microservices", NSDI 2024. Besides the readings of its rules, we differ from it in this:

- The Tower begins a run untrained, at the configured targets. A run of minutes cannot learn what the source
  learns in twelve hours before it measures. Without an SLO (slo_p99_s = 0) there is no Tower.
- Quotas stay under the application's Ω: raises share what is unallocated (cap.py). The source knows no Ω.
- The source does not manage memory, and its containers have no memory limit. Here all of M is given out, in
  proportion to the profiled peaks. Only newcomers to a full application lower a limit, in place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from control.allocator.autothrottle_captain import Captain, CaptainRule
from control.allocator.autothrottle_settle import CaptainBooks, CaptainNumbers, CaptainTable
from control.allocator.autothrottle_tower import EVERYONE_BUSY, Tower, boundary
from control.allocator.cap import CappedPolicy
from control.allocator.model import NOTHING, Decision, Floats, Ids, PeriodStats, ServiceStats
from control.allocator.ports import Given, inherits
from control.allocator.roster import Index, Roster
from control.allocator.usage import Interval
from control.settings import check, parameter
from twinbed import ScenarioError

_NO_SLOTS = np.empty(0, np.int64)


@dataclass(frozen=True)
class AutothrottleSettings:
    """Parameters of Autothrottle: targets, then those of the Tower, the Captain and the first limits."""

    target_busy: float = parameter(
        0.06,
        unit="share of periods throttled",
        low=0.0,
        high=1.0,
        why="our choice, on the source's ladder: Escra throttles about as often (5-6 % of periods), so the "
        "two are compared at equal throttling; the Tower starts here",
    )
    target_idle: float = parameter(
        0.06,
        unit="share of periods throttled",
        low=0.0,
        high=1.0,
        why="equal to target_busy: without an SLO nothing says which class should wait more",
    )
    slo_p99_s: float = parameter(
        0.2,
        unit="s",
        low=0.0,
        why="the p99 latency that the Tower aims at: the source's for Social Network, the middle of its "
        "three (0.1, 0.2 and 1 s); 0: no Tower, the targets stay",
    )
    tower_interval_s: float = parameter(
        60.0, unit="s", low=1.0, why="the source sets new targets and classes every minute"
    )
    exploration: float = parameter(
        0.1,
        unit="cost",
        low=0.0,
        why="our choice, as large as the source's share of exploring steps (0.1): a tenth of the span "
        "between the cheapest and the dearest allocation is risked on a pair seen once",
    )
    alpha: float = parameter(
        3.0,
        unit="times the target",
        low=1.0,
        why="the source's α: more throttling than this raises the quota",
    )
    beta_max: float = parameter(
        0.9, unit="share of the quota", low=0.0, high=1.0, why="the source's value: smaller cuts are not made"
    )
    beta_min: float = parameter(
        0.5,
        unit="share of the quota",
        low=0.0,
        high=1.0,
        why="the source's value: larger cuts are made in steps",
    )
    window: int = parameter(
        10, unit="periods", low=1, high=1000, why="the source's N: a decision every second, or a roll-back"
    )
    history: int = parameter(
        50,
        unit="periods",
        low=2,
        high=1000,
        why="the source's M: a cut goes to the usage of the last five seconds",
    )
    initial_margin: float = parameter(
        3.0, unit="standard deviations", low=0.0, why="as in the authors' code; it adapts from there"
    )
    initial_factor: float = parameter(
        1.0,
        unit="times the profiled peak",
        low=0.01,
        why="a profiled container starts at its peak, as under other policies",
    )
    initial_memory_factor: float = parameter(
        1000.0,
        unit="times the profiled peak",
        low=0.01,
        why="memory is not managed, and the source's containers have no limit: more than M allows, so all "
        "of M is given out in proportion to the peaks",
    )

    def __post_init__(self) -> None:
        check("autothrottle", self)
        if self.beta_min > self.beta_max:
            raise ScenarioError(f"autothrottle.beta_min: {self.beta_min} is above beta_max, {self.beta_max}")


def captain_rule(s: AutothrottleSettings) -> CaptainRule:
    """Return the constants of the Captains under these settings."""
    return CaptainRule(s.alpha, s.beta_min, s.beta_max, s.window, s.history, s.initial_margin)


class Autothrottle(CappedPolicy):
    """Throttle targets follow the latency, and quotas follow the targets.

    Implements `ports.Allocator`, `ports.ServiceAware` and `ports.Tabled`, which state the methods' contract.
    """

    name = "autothrottle"

    def __init__(self, settings: AutothrottleSettings) -> None:
        super().__init__(settings.initial_factor, settings.initial_memory_factor)
        self.settings = settings
        slo_s = settings.slo_p99_s
        self.given = Given(more=f"an untrained Tower, SLO {slo_s:g} s" if slo_s else "no Tower")

    @property
    def service_interval_s(self) -> float:
        """Time between two choices of the Tower, s."""
        return self.settings.tower_interval_s

    @property
    def targets(self) -> Floats:
        """Targets of busy and idle containers, float64[apps, 2]. Do not write to it."""
        return self._targets

    def on_period(self, stats: PeriodStats) -> Decision:
        """Run the Captain of every container that reports.

        A Captain may act when its window is over, or roll back earlier.
        """
        fleet = self._fleet
        rows, index = fleet.roster.find(stats.ids)
        usage = stats.usage_cores[rows]
        self._add(index, usage, stats.quota_cores[rows], stats.period_s)
        self._last_bytes.values[index] = stats.memory_bytes[rows]
        self._captain.observe(index, stats.throttled[rows], usage)
        if self._interval.over(stats.at_s, stats.period_s):
            self._classify()
        fitted = fleet.fit_period(stats.period_s)
        if not fitted.empty:
            return fitted
        slots = np.arange(index.start, index.stop) if isinstance(index, slice) else index
        slots = self._captain.deciding(slots)
        if slots.size == 0:
            return NOTHING
        wanted = self._captain.decide(slots, fleet.cpu.values[slots], self._target(slots))
        if wanted.slots.size == 0:
            return NOTHING
        cores = np.minimum(wanted.cores, fleet.roster.host_cores[wanted.slots])
        changed = fleet.cpu.change(wanted.slots, cores)
        return Decision(cpu=fleet.cpu_limits(wanted.slots[changed], wanted.reason[changed]))

    def table(self, ids: Ids, at_s: Floats, period_s: float) -> tuple[CaptainTable, int] | None:
        """See `ports.Tabled`. The report at which containers are classified again needs `on_period`."""
        fleet, rule = self._fleet, captain_rule(self.settings)
        rows, slots = fleet.roster.find(ids)
        known = inherits(self, Autothrottle.on_period)
        if not known or period_s != fleet.period_s or not isinstance(rows, slice):
            return None
        numbers = CaptainNumbers(
            rule.alpha, rule.lowest, rule.highest, rule.window, fleet.cpu.least, period_s, bool(self.towers)
        )
        books = CaptainBooks(
            self._captain.state, fleet.cpu.values, fleet.roster.host_cores, fleet.roster.app,
            self._last_bytes.values, self._usage_s.values, self._seconds.values, self._quota_s.values,
            self._quota_seconds.values, self._boundaries, self._targets, fleet.roster.cpu_limit_cores,
        )  # fmt: skip
        everyone = isinstance(slots, slice)
        table = CaptainTable(numbers, books, _NO_SLOTS if isinstance(slots, slice) else slots, everyone)
        return table, self._interval.before(at_s, period_s)

    def memory_books(self) -> None:
        """See `ports.Tabled`. Memory is not managed."""

    def close(self, table: CaptainTable, reports: int) -> None:
        """See `ports.Tabled`. The table's arrays are the books themselves."""

    def on_service(self, stats: ServiceStats) -> Decision:
        """Let each application's Tower learn from the last interval and set the targets of the next one."""
        size, app = self._fleet.roster.size, self._fleet.roster.app
        seconds, quota_s = self._quota_seconds.values[:size], self._quota_s.values[:size]
        mean = np.divide(quota_s, seconds, out=np.zeros(size), where=seconds > 0)
        cores = np.bincount(app, weights=mean * self._fleet.roster.alive, minlength=len(self._targets))
        seconds[:] = 0.0
        quota_s[:] = 0.0
        for at, tower in enumerate(self.towers):
            tower.learn(float(stats.rate_rps[at]), float(stats.latency_p99_s[at]), float(cores[at]))
            self._targets[at] = tower.targets
        return NOTHING

    def _set_up(self, roster: Roster) -> None:
        s, applications = self.settings, roster.applications
        self._captain = Captain(roster, captain_rule(s))
        self._usage_s = roster.column(0.0, np.float64)
        self._seconds = roster.column(0.0, np.float64)
        self._quota_s = roster.column(0.0, np.float64)
        self._quota_seconds = roster.column(0.0, np.float64)
        self._interval = Interval(s.tower_interval_s)
        self._boundaries = np.full(len(applications), EVERYONE_BUSY)
        self._targets = np.tile([s.target_busy, s.target_idle], (len(applications), 1))
        self.towers: list[Tower] = []
        if s.slo_p99_s > 0:
            start = s.target_busy, s.target_idle
            self.towers = [Tower(s.slo_p99_s, s.exploration, *start) for _ in applications]
            self._targets[:] = [tower.targets for tower in self.towers]

    def _add(self, index: Index, usage_cores: Floats, quota_cores: Floats, period_s: float) -> None:
        self._usage_s.values[index] += usage_cores * period_s
        self._seconds.values[index] += period_s
        if self.towers:
            self._quota_s.values[index] += quota_cores * period_s
            self._quota_seconds.values[index] += period_s

    def _target(self, slots: NDArray[np.int64]) -> Floats:
        """Return the throttle ratio to hold, float64[n], for containers that have reported."""
        app = self._fleet.roster.app[slots]
        mean = self._usage_s.values[slots] / self._seconds.values[slots]
        idle = (mean <= self._boundaries[app]).astype(np.int64)
        return np.asarray(self._targets[app, idle], np.float64)

    def _classify(self) -> None:
        """Set the mean usage that divides each application's containers into idle and busy ones."""
        roster = self._fleet.roster
        seconds = self._seconds.values[: roster.size]
        known = np.flatnonzero(roster.alive & (seconds > 0))
        known = known[np.argsort(roster.app[known], kind="stable")]
        mean = self._usage_s.values[known] / seconds[known]
        ends = np.cumsum(np.bincount(roster.app[known], minlength=len(self._boundaries)))
        self._boundaries[:] = [boundary(part) for part in np.split(mean, ends[:-1])]
