"""Rule-based policies: greedy, greedy by slices, Uniform Progress with and without hysteresis, on demand.

For: baselines, and users who want a rule that they can follow by hand. Not for: planning (planned.py). In
several zones all of them take the cheapest zone that has spot. Source: "Can't Be Late" (Wu et al., NSDI 2024)
§4, with the guard of ports.py in place of its safety net.
"""

from __future__ import annotations

import numpy as np

from control.market.ports import (
    AHEAD,
    BEHIND,
    CLOSE,
    HOLD,
    IDLE,
    ON_DEMAND,
    STAY,
    TAKE,
    THROUGHOUT,
    WAIT,
    Decision,
    Guard,
    State,
    Terms,
    Whole,
)


class OnDemand:
    """Holds one on-demand machine from start to end."""

    def __init__(self, terms: Terms) -> None:
        self._guard = Guard(terms)

    def on_step(self, state: State) -> Decision:
        """Return on demand until the work is done."""
        n = state.held.size
        return self._guard.keep(state, Decision(np.full(n, ON_DEMAND), np.full(n, THROUGHOUT)))


class Greedy:
    """Takes spot when available, and otherwise waits until at most one tick is to spare."""

    def __init__(self, terms: Terms) -> None:
        self._guard = Guard(terms, spare=1)

    def on_step(self, state: State) -> Decision:
        """Return spot, or nothing."""
        stays = state.held >= 0
        there = state.available.any(axis=1)
        choice = np.where(stays, state.held, np.where(there, state.cheapest, IDLE))
        reason = np.where(stays, STAY, np.where(there, TAKE, WAIT))
        return self._guard.keep(state, Decision(choice, reason))


class UniformProgress:
    """Spot whenever available. Without spot: on demand from behind the line until two restarts ahead of
    it.
    """

    hysteresis = 2.0
    """Lead over the line, in restarts, at which on-demand is left."""

    def __init__(self, terms: Terms) -> None:
        self._guard, self.terms = Guard(terms), terms

    def on_step(self, state: State) -> Decision:
        """Return the choice of the first rule that applies."""
        terms = self.terms
        pace = terms.work_s / terms.deadline_s
        line_s = state.tick * terms.tick_s * pace
        ahead_s = line_s + self.hysteresis * terms.restart_s * pace + CLOSE
        stays, on_demand = state.held >= 0, state.held == ON_DEMAND
        there = state.available.any(axis=1)
        pick = self.pick(state)
        holds = on_demand & (state.done_s < ahead_s)
        behind = ~on_demand & (state.done_s < line_s - CLOSE)
        rules = [stays, there, holds, behind]
        od = np.full_like(state.held, ON_DEMAND)
        choice = np.select(rules, [state.held, pick, od, od], IDLE)
        reason = np.select(rules, [STAY, TAKE, HOLD, BEHIND], AHEAD)
        return self._guard.keep(state, Decision(choice, reason))

    def pick(self, state: State) -> Whole:
        """Return the zone to start in, int64[n], where any zone has spot."""
        return state.cheapest


class PlainProgress(UniformProgress):
    """Uniform Progress that leaves on-demand as soon as it is on the line."""

    hysteresis = 0.0


class TimeSliced:
    """Greedy in every slice of the time: each of n equal slices must have its n-th of the work done at its
    end.

    Work that is done beyond a slice's share counts for the next ones. A slice that has no whole tick to spare
    is finished on demand. slices: n.
    """

    def __init__(self, terms: Terms, slices: int) -> None:
        self._guard, self.terms, self._slices = Guard(terms), terms, slices

    def on_step(self, state: State) -> Decision:
        """Return the choice of the first rule that applies."""
        terms = self.terms
        slice_s = terms.deadline_s / self._slices
        before, number = (
            int((tick * terms.tick_s + CLOSE) // slice_s) for tick in (state.tick - 1, state.tick)
        )
        left_s = terms.work_s * min((number + 1) / self._slices, 1.0) - state.done_s
        ticks_left = ((number + 1) * slice_s + CLOSE) // terms.tick_s - state.tick
        unfinished = left_s > CLOSE
        holds = (state.held == ON_DEMAND) & unfinished & (number == before)
        stays, there = state.held >= 0, state.available.any(axis=1)
        urgent = unfinished & (terms.needed(left_s) >= ticks_left)
        rules = [stays, holds, there, urgent]
        od = np.full_like(state.held, ON_DEMAND)
        choice = np.select(rules, [state.held, od, state.cheapest, od], IDLE)
        reason = np.select(rules, [STAY, BEHIND, TAKE, BEHIND], WAIT)
        return self._guard.keep(state, Decision(choice, reason))
