"""Greedy in slices of the time, which the source of Uniform Progress compares with.

For: the market page. Not for: policies that users choose (control/market). Source: "Can't Be Late" (Wu et
al., NSDI 2024), which does not say with how many slices.
"""

from __future__ import annotations

import numpy as np

from control.market.ports import (
    BEHIND,
    CLOSE,
    IDLE,
    ON_DEMAND,
    STAY,
    TAKE,
    WAIT,
    Decision,
    Guard,
    State,
    Terms,
)


class TimeSliced:
    """Greedy in every slice of the time: at the end of each of n equal slices, another n-th of the work must
    be done.

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
