"""The course of one job on a market of spot and on-demand machines, second by second, for both backends.

For: asking a policy at every tick, and recording what the job held, did, lost and paid. Not for: deciding
(rules.py, planned.py), nor how long a start takes or when a machine is taken away: twin/cloud/market.py
computes that, and testbed/cloud/market.py observes it.

Ticks are those of ports.py with two differences. Machines are taken away at any second, and each is paid
until then. A job whose machine is taken away loses the work since the last save, so a policy sees only the
saved work while spot is held. The guard of ports.py then keeps its promise, because saved work is never lost.
Source of the setting: "Can't Be Late" (NSDI 2024).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from control.market.levels import Levels
from control.market.ports import CLOSE, GUARD, IDLE, ON_DEMAND, REASONS, Policy, State, Terms
from twinbed import ScenarioError

WAITING, STARTING, WORKING, LEAVING = STATES = ("waiting", "starting", "working", "leaving")
"""States of a job: without a machine; its machine starts; it trains; it saves before it leaves a machine."""
REVOKED = "taken away"
"""Reason of a wait that no policy chose."""
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Zone:
    """A place with spot machines. speed: relative to the on-demand type. available: number of machines over
    time. spot_usd_h: price of one machine, US$/h."""

    name: str
    region: str
    type: str
    speed: float
    available: Levels
    spot_usd_h: Levels


@dataclass(frozen=True, slots=True)
class Market:
    """The offers for a job of `machines` machines.

    on_demand: type of the on-demand machines, whose speed is 1; every region has them. on_demand_usd_h: price
    of one, US$/h. notice_s: time between the notice and the loss of a spot machine, s. billing_s: step in
    which each holding is paid, s. move_usd: price of moving the checkpoint to another region, US$.
    """

    zones: tuple[Zone, ...]
    on_demand: str
    on_demand_usd_h: float
    machines: int = 1
    notice_s: float = 120.0
    billing_s: float = 1.0
    move_usd: float = 0.0

    def offers(self, zone: int, at_s: float) -> bool:
        """Return whether a zone offers machines that are not under notice."""
        least = self.zones[zone].available.least_between(at_s, at_s + self.notice_s)
        return least >= self.machines

    def losses(self) -> list[tuple[float, int]]:
        """Return (time in s, zone) of each loss of a zone's machines, in order."""
        return sorted(
            (float(at_s), number)
            for number, zone in enumerate(self.zones)
            for at_s in zone.available.falls_below(self.machines)
        )

    def usd(self, place: int, begin_s: float, end_s: float) -> float:
        """Return the cost of holding the machines of a place, in whole steps of billing, US$."""
        steps = np.ceil((end_s - begin_s) / self.billing_s - CLOSE)
        end_s = begin_s + float(steps) * self.billing_s
        if place == ON_DEMAND:
            return self.on_demand_usd_h * self.machines * (end_s - begin_s) / SECONDS_PER_HOUR
        return self.zones[place].spot_usd_h.integral(begin_s, end_s) * self.machines / SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of a job, s.

    start_s: from a machine's start until the job trains.
    move_s: added to start_s if the checkpoint is in another region.
    stop_s: to save and to leave.
    every_s: work between two saves, including the time of these saves.
    saves: whether a notice makes the job save and leave at once.
    """

    start_s: float
    stop_s: float
    move_s: float
    every_s: float
    saves: bool


@dataclass(frozen=True, slots=True)
class Span:
    """A time in one state. place: the paid place: IDLE, ON_DEMAND or a zone. reason: why it was chosen."""

    begin_s: float
    end_s: float
    state: str
    place: int
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a job.

    probes_usd: price of the probes of zones.
    lost_s: work that was undone, s.
    revocations: number of notices.
    moves: number of starts in another place than before; `regions` of them are in another region.
    spans: in order, without gaps.
    events: (time in s, what, zone); what: notice or lost.
    """

    finish_s: float
    spot_usd: float
    on_demand_usd: float
    move_usd: float
    probes_usd: float
    lost_s: float
    revocations: int
    starts: int
    moves: int
    regions: int
    spans: tuple[Span, ...]
    events: tuple[tuple[float, str, int], ...]

    @property
    def cost_usd(self) -> float:
        """Everything that was paid, US$."""
        return self.spot_usd + self.on_demand_usd + self.move_usd + self.probes_usd

    def in_state_s(self, *states: str, spot: bool | None = None) -> float:
        """Return the time in these states, s. spot: True counts only spot machines, False only the others."""
        return sum(
            span.end_s - span.begin_s
            for span in self.spans
            if span.state in states and (spot is None or (span.place >= 0) == spot)
        )


@dataclass(slots=True)
class Course:
    """The records of one job. place: where the job is, or goes once it has left `paying`, the place that is
    paid now. done_s, saved_s: work, s of the on-demand type."""

    market: Market
    terms: Terms
    policy: Policy
    place: int = IDLE
    paying: int = IDLE
    state: str = WAITING
    done_s: float = 0.0
    saved_s: float = 0.0
    finish_s: float = np.inf
    _reason: str = REVOKED
    _since_s: float = 0.0
    _held_s: float = 0.0
    _asked_s: float = 0.0
    _zone: int = 0
    _last: int = IDLE
    _region: str = ""
    _usd: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0, 0.0])
    _counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("revocations", "starts", "moves", "regions"), 0)
    )
    _lost_s: float = 0.0
    _spans: list[Span] = field(default_factory=list)
    _events: list[tuple[float, str, int]] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether the work is done."""
        return bool(np.isfinite(self.finish_s))

    @property
    def speed(self) -> float:
        """Work per second at the present place."""
        return self.market.zones[self.paying].speed if self.paying >= 0 else 1.0

    def decide(self, tick: int, now_s: float) -> bool:
        """Ask the policy. Return whether the job must go to another `place`.

        Raises ScenarioError for a policy that takes spot where there is none.
        """
        zones, terms = self.market.zones, self.terms
        there = [self.market.offers(number, now_s) for number in range(len(zones))]
        price = [max(zone.spot_usd_h.at(now_s), 1e-9) / zone.speed for zone in zones]
        held = IDLE if self.place >= 0 and not there[self.place] else self.place
        starts = self.state in (STARTING, LEAVING) and held != IDLE
        left_s = max(terms.restart_s - (now_s - self._asked_s), 0.0) if starts else 0.0
        done_s = self.done_s if self.paying == ON_DEMAND else self.saved_s
        choice, reason = ON_DEMAND, GUARD
        if tick < terms.ticks:
            state = State(
                tick, np.array([there]), np.array([price]), np.array([held]), np.array([self._zone]),
                np.array([left_s]), np.array([done_s]),
            )  # fmt: skip
            decision = self.policy.on_step(state)
            usd_h = np.array([[zone.spot_usd_h.at(now_s) for zone in zones]]) * self.market.machines
            self._usd[3] += float(np.sum(decision.probing_s(terms, state) * usd_h)) / SECONDS_PER_HOUR
            choice, reason = int(decision.choice[0]), int(decision.reason[0])
        if choice >= 0 and not (choice < len(zones) and there[choice]):
            name = type(self.policy).__name__
            raise ScenarioError(f"policy {name} took spot where there is none, in tick {tick}")
        changes = choice != self.place
        if REASONS[reason] != self._reason or changes:
            self._close(now_s)
            self._reason = REASONS[reason]
        self.place = choice
        self._asked_s = now_s if changes else self._asked_s
        return changes

    def worked(self, done_s: float, saved_s: float) -> None:
        """Record the work that is done and the work that is saved, s. Saved work never decreases."""
        self.done_s, self.saved_s = done_s, max(self.saved_s, saved_s)

    def leave(self, now_s: float) -> None:
        """Begin to save. The job then leaves the machines that it holds."""
        self._to(now_s, LEAVING)

    def start(self, now_s: float) -> bool:
        """Start the machines of `place`. Return whether the checkpoint comes from another region."""
        self._to(now_s, STARTING, self.place)
        self._held_s = now_s
        here = self.market.zones[self.place].region if self.place >= 0 else self._region
        moved = bool(self._region) and here != self._region
        self._counts["starts"] += 1
        self._counts["moves"] += self._last not in (IDLE, self.place)
        self._counts["regions"] += moved
        self._usd[2] += self.market.move_usd * moved
        self._last, self._region = self.place, here
        self._zone = self.place if self.place >= 0 else self._zone
        return moved

    def work(self, now_s: float) -> None:
        """Record that the job begins to train."""
        self._to(now_s, WORKING)

    def gone(self, now_s: float) -> None:
        """End the holding of the machines."""
        if self.paying != IDLE:
            usd = self.market.usd(self.paying, self._held_s, now_s)
            self._usd[self.paying == ON_DEMAND] += usd
        self._to(now_s, WAITING, IDLE)

    def notice(self, now_s: float, zone: int) -> None:
        """Record the notice that the machines will be taken away."""
        self._counts["revocations"] += 1
        self._events.append((now_s, "notice", zone))

    def go_idle(self, now_s: float) -> None:
        """Give up the machines without a policy's decision."""
        self._close(now_s)
        self.place, self._reason = IDLE, REVOKED

    def revoke(self, now_s: float, kept_s: float) -> None:
        """Take the held machines away. kept_s: work that is left, s."""
        zone = self.paying
        self._events.append((now_s, "lost", zone))
        self._lost_s += max(self.done_s - kept_s, 0.0)
        self.done_s = self.saved_s = kept_s
        self.gone(now_s)
        if self.place == zone:
            self.go_idle(now_s)

    def finish(self, now_s: float) -> None:
        """Record that the work is done."""
        self.done_s = self.saved_s = self.terms.work_s
        self.finish_s = now_s
        self.gone(now_s)
        self.place = IDLE

    def outcome(self) -> Outcome:
        """Return the result of the job."""
        spot, on_demand, move, probes = self._usd
        return Outcome(
            self.finish_s, spot, on_demand, move, probes, self._lost_s, **self._counts,
            spans=tuple(self._spans), events=tuple(self._events),
        )  # fmt: skip

    def _to(self, now_s: float, state: str, place: int | None = None) -> None:
        self._close(now_s)
        self.state = state
        self.paying = self.paying if place is None else place

    def _close(self, now_s: float) -> None:
        if now_s > self._since_s:
            self._spans.append(Span(self._since_s, now_s, self.state, self.paying, self._reason))
            self._since_s = now_s
