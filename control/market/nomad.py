"""Policies for several zones that know only what they probe: SkyNomad, and Uniform Progress by availability.

For: jobs whose checkpoint is moved between regions for a price, on markets that must be probed. Not for: the
cost of a probe or a move, which the backend bills. Source: SkyNomad (arXiv 2601.06520) and its artifact;
UP(A) and UP(AP) are its baselines.

Our readings: the guard of ports.py replaces the safety net; a zone without an observed end lasts until the
deadline; the window of γ* holds a fixed number of lifetimes, and γ* is at least 1; a machine that is held
needs no other start; a change must be worth 2 % of on-demand's price.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

import numpy as np

from control.market import ports
from control.market.ports import CLOSE, IDLE, ON_DEMAND, Decision, Flags, Guard, Real, State, Terms, Whole
from control.market.rules import UniformProgress

PROBE_EVERY_S = 7200.0
"""Time between two probes of a zone, s (the source's)."""
KEPT = 5
"""Number of probes that UP(A) and UP(AP) remember (the source's)."""
MARGIN = 0.02
"""Share of on-demand's price by which another place must be better. The margin prevents flapping."""


class Lifetimes:
    """The estimated lifetime of spot in one zone, from launches, losses and probes."""

    def __init__(self) -> None:
        self._ages: list[float] = []
        self._ended: list[bool] = []
        self._since_s: float | None = None
        self._stale = True
        self._events: list[float] = []
        self._hazard: Real = np.zeros(1)
        self._beyond_s = 0.0

    def see(self, there: bool, now_s: float) -> None:
        """Record whether the zone has spot at this moment."""
        if there and self._since_s is None:
            self._since_s = now_s
        elif not there and self._since_s is not None:
            self._close(now_s, ended=True)

    def leave(self, now_s: float) -> None:
        """Record that the job leaves the zone by choice. The lifetime of spot there is at least the time
        held."""
        if self._since_s is not None:
            self._close(now_s, ended=False)

    def renew(self) -> None:
        """Update the estimate with what was recorded since the last call."""
        self._stale = True

    def expected_s(self, now_s: float, left_s: float) -> float:
        """Return the expected remaining lifetime of spot, s. left_s: the answer if no end was ever seen."""
        if True not in self._ended:
            return left_s
        age_s = 0.0 if self._since_s is None else now_s - self._since_s
        if self._stale:
            self._estimate(age_s)
        place = bisect_right(self._events, age_s)
        edges = np.array([age_s, *self._events[place:], max(self._events[-1], age_s) + self._beyond_s])
        alive = np.exp(self._hazard[place] - self._hazard[place:])
        return float(np.diff(edges) @ alive)

    def _close(self, now_s: float, *, ended: bool) -> None:
        assert self._since_s is not None
        if now_s > self._since_s:
            self._ages.append(now_s - self._since_s)
            self._ended.append(ended)
        self._since_s, self._stale = None, True

    def _estimate(self, age_s: float) -> None:
        """Update the hazard after the events, γ*·H, where H is Nelson and Aalen's cumulative hazard. Survival
        is exp(−γ*·H).
        """
        ages = np.array([*self._ages, *([age_s] if self._since_s is not None else [])])
        ended = np.array([*self._ended, *([False] if self._since_s is not None else [])])
        events, counts = np.unique(ages[ended], return_counts=True)
        hazard = np.cumsum(counts / (ages[:, None] >= events).sum(axis=0))
        met = np.concatenate([[0.0], hazard])[np.searchsorted(events, ages, side="right")]
        seen, expected = (np.cumsum(values[::-1]) for values in (ended.astype(float), met))
        known = expected > CLOSE
        worst = max(1.0, float((seen[known] / expected[known]).max(initial=1.0)))
        self._events = events.tolist()
        self._hazard = worst * np.concatenate([[0.0], hazard])
        # Beyond the longest lifetime, survival stays constant for one mean lifetime.
        self._beyond_s = float(ages.max() - events[-1] + ages.mean())
        self._stale = False


class SkyNomad:
    """Goes where an hour is worth most: the value of its progress, less its price and the price of getting
    there.

    probe_every_s: time between two probes of the zones that are not held, s. margin: see MARGIN.
    """

    def __init__(self, terms: Terms, probe_every_s: float = PROBE_EVERY_S, margin: float = MARGIN) -> None:
        self.terms, self._guard = terms, Guard(terms)
        self._every_s, self._margin = probe_every_s, margin * terms.on_demand_usd_h
        self._next_s: float
        self._zones: list[list[Lifetimes]]
        self._was: list[int]
        self._placed: list[bool]

    def on_step(self, state: State) -> Decision:
        """Return the available place that is worth most."""
        n, zones = state.available.shape
        now_s = state.tick * self.terms.tick_s
        if state.tick == 0:
            self._next_s = self._every_s
            self._zones = [[Lifetimes() for _ in range(zones)] for _ in range(n)]
            self._was, self._placed = [IDLE] * n, [False] * n
        probes = np.zeros((n, zones), dtype=np.bool_)
        if now_s >= self._next_s - CLOSE:
            self._next_s += self._every_s
            probes[:] = np.arange(zones) != state.held[:, None]
        choice, reason = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
        for job in range(n):
            self._look(job, state, probes[job], now_s)
            choice[job], reason[job] = self._choose(job, state, now_s)
        kept = self._guard.keep(state, Decision(choice, reason, probes if probes.any() else None))
        for job, place in enumerate(kept.choice.tolist()):
            held = int(state.held[job])
            if held >= 0 and place != held:
                self._zones[job][held].leave(now_s)
            self._was[job], self._placed[job] = place, self._placed[job] or place >= 0
        return kept

    def _look(self, job: int, state: State, probed: Flags, now_s: float) -> None:
        """Record the machine that is held or was lost, and the probes."""
        seen = self._zones[job]
        was, held = self._was[job], int(state.held[job])
        if was >= 0:
            seen[was].see(held == was, now_s)
        for zone in np.flatnonzero(probed).tolist():
            seen[zone].see(bool(state.available[job, zone]), now_s)
        if probed.any():
            for lifetimes in seen:
                lifetimes.renew()

    def _choose(self, job: int, state: State, now_s: float) -> tuple[int, int]:
        terms, held = self.terms, int(state.held[job])
        done_s, left_s = float(state.done_s[job]), terms.deadline_s - now_s
        pace = done_s / now_s if done_s > CLOSE else terms.work_s / terms.deadline_s
        usd = terms.on_demand_usd_h
        value = usd * (terms.work_s - done_s) / left_s / pace
        worth = {IDLE: 0.0, ON_DEMAND: value - usd}
        moving = terms.moving_usd(state.available.shape[1])[int(state.zone[job])]
        for zone, lifetimes in enumerate(self._zones[job]):
            lasts_s = max(lifetimes.expected_s(now_s, left_s), CLOSE)
            start_s = float(state.restart_left_s[job]) if zone == held else terms.restart_s
            share = max(lasts_s - start_s, 0.0) / lasts_s
            egress_usd_h = float(moving[zone]) * self._placed[job] / lasts_s * 3600.0
            worth[zone] = value * share - float(state.spot_usd_h[job, zone]) - egress_usd_h
        for place in sorted(worth, key=lambda place: (-worth[place], place != held, place)):
            if place == held or worth[place] <= worth[held] + self._margin:
                break
            if place < 0:
                return place, ports.WORTH_WAIT if place == IDLE else ports.WORTH_ON_DEMAND
            there = bool(state.available[job, place])
            self._zones[job][place].see(there, now_s)
            if there:
                return place, ports.WORTH_SPOT
        return held, ports.WORTH_WAIT if held == IDLE else ports.WORTH_STAY


class AvailableProgress(UniformProgress):
    """Uniform Progress that starts where most of the last probes found spot, in the cheapest such zone."""

    by_price = False

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._next_s: float
        self._seen: deque[Flags]

    def on_step(self, state: State) -> Decision:
        """Return the decision of Uniform Progress, with probes when they are due."""
        if state.tick == 0:
            self._next_s, self._seen = 0.0, deque(maxlen=KEPT)
        if state.tick * self.terms.tick_s < self._next_s - CLOSE:
            return super().on_step(state)
        self._next_s += PROBE_EVERY_S
        self._seen.append(state.available.copy())
        decision = super().on_step(state)
        probes: Flags = np.arange(state.available.shape[1]) != decision.choice[:, None]
        return self._guard.keep(state, Decision(decision.choice, decision.reason, probes))

    def pick(self, state: State) -> Whole:
        """Return the zone that was available most often, with its price if `by_price`."""
        score: Real = np.mean(self._seen, axis=0) + CLOSE
        score = score / state.spot_usd_h if self.by_price else score - CLOSE * state.spot_usd_h
        best: Whole = np.where(state.available, score, -np.inf).argmax(axis=1)
        return best


class ValueProgress(AvailableProgress):
    """Uniform Progress by availability over price."""

    by_price = True
