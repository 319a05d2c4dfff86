"""Rule-based policies: greedy, Uniform Progress with and without hysteresis, and on demand throughout.

For: baselines, and users who want a rule that they can follow by hand. Not for: planning (planned.py). With
several zones, each policy takes the cheapest zone that has spot. Source: "Can't Be Late" (Wu et al., NSDI
2024) §4, with the guard of ports.py in place of its safety net.
"""

from __future__ import annotations

import numpy as np

from control.market import ports
from control.market.ports import CLOSE, IDLE, ON_DEMAND, Decision, Guard, State, Terms, Whole


class OnDemand:
    """Holds one on-demand machine from start to end."""

    def __init__(self, terms: Terms) -> None:
        self._guard = Guard(terms)

    def on_step(self, state: State) -> Decision:
        """Return ON_DEMAND for every job until its work is done."""
        n = state.held.size
        return self._guard.keep(state, Decision(np.full(n, ON_DEMAND), np.full(n, ports.THROUGHOUT)))


class Greedy:
    """Takes spot when it is available, and otherwise waits until at most one spare tick is left."""

    def __init__(self, terms: Terms) -> None:
        self._guard = Guard(terms, spare=1)

    def on_step(self, state: State) -> Decision:
        """Return spot where it is available, and IDLE elsewhere."""
        stays = state.held >= 0
        there = state.available.any(axis=1)
        choice = np.where(stays, state.held, np.where(there, state.cheapest, IDLE))
        reason = np.where(stays, ports.STAY, np.where(there, ports.TAKE, ports.WAIT))
        return self._guard.keep(state, Decision(choice, reason))


class UniformProgress:
    """A policy that takes spot whenever it is available. Without spot, the job runs on demand from when it
    falls behind the line until it is two restarts ahead of the line.
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
        reason = np.select(rules, [ports.STAY, ports.TAKE, ports.HOLD, ports.BEHIND], ports.AHEAD)
        return self._guard.keep(state, Decision(choice, reason))

    def pick(self, state: State) -> Whole:
        """Return the zone to start in, int64[n], where any zone has spot."""
        return state.cheapest


class PlainProgress(UniformProgress):
    """Uniform Progress that leaves on-demand as soon as it is on the line."""

    hysteresis = 0.0
