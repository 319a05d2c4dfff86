"""Firm: containers whose waiting breaks the SLO get more CPU; CPU that is not needed is taken back.

For: membership, telemetry, windows and limits of the allocator that backends drive through ports.py. Not for:
finding culprits (firm_culprits.py), the size of a limit's change (firm_agent.py), nor the application's
global limits (cap.py).

Source: Qiu et al., "FIRM: An Intelligent Fine-grained Resource Management Framework for SLO-Oriented
Microservices", OSDI 2020, Algorithms 1 and 2, and the authors' public code. Firm scales only CPU here; memory
is not managed, and all of M is given out in proportion to the profiled peaks. These are our readings:

- While the SLO is missed, only the culprits' limits change. While it is kept, the rule is applied to
  all.
- A limit is never lowered below the largest use of a period in the last `room_s`, and never before
  `room_s`
  has passed. The source lowers it by a fixed step, which may be the whole limit of a small container.
- Requests that end without an answer count as slower than the SLO. They have no spans. If they alone
  break
  the SLO, all containers that were throttled are culprits, too.
- Limits move by AIMD, the rule that the source's agent was compared with. An actor trained as the
  source
  describes did not earn more on applications that it had not seen (studies.firm), so none ships.
- Without traffic nothing changes. Raises share the unallocated part of Ω. The source knows no Ω.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.allocator.cap import CappedPolicy
from control.allocator.firm_agent import Aimd, Rule, Window
from control.allocator.firm_culprits import Separator, intensity
from control.allocator.firm_weights import SEPARATOR
from control.allocator.model import NOTHING, Decision, Flags, PeriodStats, Reason, ServiceStats, slot
from control.allocator.ports import Given
from control.allocator.roster import Roster
from control.allocator.usage import whole_intervals
from control.paths import Spans, critical_paths
from control.settings import check, parameter
from twinbed import ScenarioError


@dataclass(frozen=True)
class FirmSettings:
    """Parameters of Firm."""

    slo_p99_s: float = parameter(
        0.2, unit="s", low=0.001, why="the p99 latency to keep; the same as autothrottle's, to compare them"
    )
    window_s: float = parameter(5.0, unit="s", low=0.1, why="the window in which culprits are found")
    step_cores: float = parameter(
        0.1, unit="cores", low=0.001, why="the source's action is 10 % points of a core's quota"
    )
    room_s: float = parameter(
        60.0,
        unit="s",
        low=0.1,
        why="of 5, 60 and 300 s the one whose limits earned most on applications not seen (the reward of the "
        "source); a limit never falls below the use in that time",
    )
    spans_wanted: int = parameter(
        1000, unit="requests", low=10, why="our choice: ten requests lie above such a window's p99"
    )
    initial_factor: float = parameter(
        1.0, unit="times the profiled peak", low=0.01, why="as under other policies"
    )
    initial_memory_factor: float = parameter(
        1000.0,
        unit="times the profiled peak",
        low=0.01,
        why="memory is not managed, as under autothrottle: all of M is given out in proportion to the peaks",
    )

    def __post_init__(self) -> None:
        check("firm", self)
        if self.room_s < self.window_s:
            raise ScenarioError(
                f"firm.room_s: {self.room_s:g} s is shorter than window_s, {self.window_s:g} s"
            )


class Firm(CappedPolicy):
    """More CPU for the culprits on critical paths of slow requests, and less for containers with room to
    spare.

    Implements `ports.Allocator` and `ports.SpanAware`. rule: how limits move, by default AIMD. line:
    classifier of culprits.
    """

    name = "firm"

    def __init__(self, settings: FirmSettings, rule: Rule | None = None, line: Separator = SEPARATOR) -> None:
        super().__init__(settings.initial_factor, settings.initial_memory_factor)
        self.settings, self._line = settings, line
        self._rule = rule or Aimd(settings.step_cores)
        self.given = Given(more=f"SLO {settings.slo_p99_s:g} s")

    @property
    def service_interval_s(self) -> float:
        """Length of a window, s."""
        return self.settings.window_s

    @property
    def spans_wanted(self) -> int:
        """Number of requests per window whose spans are enough."""
        return self.settings.spans_wanted

    def _set_up(self, roster: Roster) -> None:
        self._used_s, self._seconds, self._peak, self._throttled_s = (
            roster.column(0.0, np.float64) for _ in range(4)
        )
        windows = whole_intervals(self.settings.room_s, self.settings.window_s)
        self._peaks = roster.column(np.inf, np.float64, windows)
        self._windows = roster.column(0, np.int64)
        self._rate_rps = np.zeros(len(roster.applications))

    def on_period(self, stats: PeriodStats) -> Decision:
        """Add a period to the window."""
        rows, index = self._fleet.roster.find(stats.ids)
        used = stats.usage_cores[rows]
        self._used_s.values[index] += used * stats.period_s
        self._seconds.values[index] += stats.period_s
        self._peak.values[index] = np.maximum(self._peak.values[index], used)
        self._throttled_s.values[index] += stats.throttled[rows] * stats.period_s
        self._last_bytes.values[index] = stats.memory_bytes[rows]
        return self._fleet.fit_period(stats.period_s)

    def on_service(self, stats: ServiceStats) -> Decision:
        """End the window: find the culprits and move limits. Do nothing if the backend traces no requests."""
        if stats.spans is None:
            return NOTHING
        fleet, size = self._fleet, self._fleet.roster.size
        window = self._window(stats, stats.spans)
        slots, limit = window.slots, window.limit_cores
        reported = np.flatnonzero(self._seconds.values[:size] > 0)
        place = self._windows.values[reported] % self._peaks.values.shape[1]
        self._peaks.values[reported, place] = self._peak.values[reported]
        self._windows.values[reported] += 1
        for column in (self._used_s, self._seconds, self._peak, self._throttled_s):
            column.values[:size] = 0
        self._rate_rps = stats.rate_rps.copy()
        if not slots.size:
            return NOTHING
        wanted = self._rule(window)
        least = np.minimum(self._peaks.values[slots].max(axis=1), limit)
        wanted = np.maximum(wanted, least)
        wanted = np.where(window.violated & ~window.culprit, limit, wanted)
        changed = fleet.cpu.change(slots, np.minimum(wanted, fleet.roster.host_cores[slots]))
        reason = np.where(wanted > limit, Reason.CULPRIT, Reason.TAKEN_BACK).astype(np.uint8)
        return Decision(cpu=fleet.cpu_limits(slots[changed], reason[changed]))

    def _window(self, stats: ServiceStats, spans: Spans) -> Window:
        """Return the window's facts about containers that reported and whose application has traffic."""
        roster, slo_s = self._fleet.roster, self.settings.slo_p99_s
        seconds = self._seconds.values[: roster.size]
        slots = np.flatnonzero(roster.alive & (seconds > 0) & (stats.rate_rps[roster.app] > 0))
        app, limit = roster.app[slots], self._fleet.cpu.values[slots]
        failed = np.zeros(len(stats.rate_rps)) if stats.failed is None else stats.failed
        # The p99 of all ended requests is infinite where more than one in a hundred ended without an answer.
        answered = (stats.latency_p99_s > 0) & (failed <= 0.01)
        kept = np.divide(slo_s, stats.latency_p99_s, out=np.zeros(len(answered)), where=answered)
        before = np.where(self._rate_rps > 0, self._rate_rps, stats.rate_rps)
        load = np.divide(stats.rate_rps, before, out=np.ones(len(before)), where=before > 0)
        mix = np.zeros((len(answered), 3)) if stats.mix is None else stats.mix
        mean = self._used_s.values[slots] / seconds[slots]
        return Window(
            slots=slots,
            limit_cores=limit,
            used=np.minimum(mean / limit, 1.0),
            kept=np.minimum(kept, 1.0)[app],
            load=load[app],
            mix=mix[app],
            violated=(kept < 1.0)[app],
            culprit=self._culprits(spans)[slots] | (~answered[app] & (self._throttled_s.values[slots] > 0)),
        )

    def _culprits(self, spans: Spans) -> Flags:
        """Return bool[size]: the containers whose waiting is on the critical paths."""
        roster = self._fleet.roster
        figures = intensity(spans, critical_paths(spans))
        owners = figures.owner[self._line.culprits(figures)]
        culprit = np.zeros(roster.size, np.bool_)
        culprit[slot(owners[roster.member(owners)])] = True
        return culprit
