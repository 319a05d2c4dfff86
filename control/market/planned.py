"""A policy of our own: the least expected cost, planned from the spells of spot and outages seen so far.

For: jobs on one zone or several. Not for: markets whose availability follows a clock.

On measured markets the chance that a spell ends before its age doubles grows slowly with the age. So the
hazard of a spell of age a is α·a^(SHAPE − 1), with one α for spot and one for outages (Weibull's law). A job
estimates both from the spells it has seen (Gamma prior). A dynamic programme over time left, slack, the age
of the spell and the machine held gives the least expected cost for a grid of both; every tick uses the
nearest entry.

With several zones, each has an α of its own, whose prior is the market's, and an outage lasts while no zone
has spot. A job moves to a cheaper zone when the saving pays for the restart. A zone that asks on-demand's
price or more counts as having none. `most_usd` bounds the cost of a job on any market. Sources: "Can't Be
Late" (NSDI 2024) for the setting; Bellman's equation; Weibull's distribution; the policy is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from control.market import ports
from control.market.ports import CLOSE, IDLE, ON_DEMAND, Decision, Flags, Guard, Real, State, Terms, Whole

SHAPE = 0.3
"""Shape of the spells' distribution: a spell of a steps ends within the next one with a chance near
α·a**(SHAPE − 1). The share of spells of x steps that last 2x steps falls with x**SHAPE."""
ALPHAS = (0.1, 0.2, 0.4, 0.8)
"""Grid of α: from 93 % to 54 % of the spells that lasted a step outlive two; from 76 % to 12 % of those that
lasted 64 outlive 128."""
PRIOR_ALPHA, PRIOR_SPELLS = 0.42, 6.0
"""Mean of the prior of α, and its weight in spells. Both were chosen on windows that are not used for
evaluation."""
ZONE_SPELLS = 12.0
"""Weight, in spells, of the market's α in the estimate of a zone's α. It was chosen on the same windows."""
FIRST_AGE = 4.0
"""Assumed age, in steps, of the spell in which a job begins: a job is likelier to begin in a long spell."""
BUCKETS = 7
"""Number of age buckets, [1, 2), [2, 4) … steps. The last one is open."""
STEPS = 450
"""Most steps of a plan. Longer jobs combine several ticks into a step."""
RATIO = 1.2
"""Ratio between the spot prices for which plans are made."""
CHEAPEST = -13
"""Level of the cheapest plan: spot at RATIO**−13 = 9 % of on-demand's price, or less."""
FAR = 2
"""Levels by which the mean price must differ from the plan's before another plan is made."""
SPARE_SHARE, SPARE_STARTS = 0.05, 2
"""Largest extra cost of a job over on-demand alone: a share of that cost, and the price of this many starts
on demand."""
_LATE = np.float32(1e4)
"""Cost of a plan that ends late, in steps of on-demand."""
_IDLE, _OD, _SPOT = range(3)

Cost = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Plan:
    """Action for every situation.

    actions: _IDLE, _OD or _SPOT for each machine held, as the digits of a number of base 3, by steps left, α
        of spot and of outages, slack in steps, and age bucket (of spot, then of outages):
        uint8[t, a, a, s, 2·BUCKETS]
    """

    actions: NDArray[np.uint8]

    def action(self, *situation: Whole | int) -> Whole:
        """Return the action. situation: as `actions` is indexed, and then the machine held."""
        *place, held = situation
        return np.asarray(self.actions[tuple(place)] // 3 ** np.asarray(held) % 3, np.int64)


@lru_cache(maxsize=4)
def plan(steps: int, slack: int, restart: float, ratio: float) -> Plan:
    """Return the plan of least expected cost. steps, slack, restart: in steps. ratio: price of spot over
    on-demand."""
    alphas, size = np.array(ALPHAS), len(ALPHAS)
    width = np.exp2(np.arange(BUCKETS, dtype=np.float64))
    ends = 1 - np.exp(-alphas[:, None] * _grown(width, 2 * width) / width)  # [a, BUCKETS]
    ages = np.append(1 / width[:-1], 0.0)
    up, down = (ends[:, None, None, :].astype(np.float32), ends[None, :, None, :].astype(np.float32))
    value: Cost = np.zeros((size, size, slack + 1, 2 * BUCKETS, 3), dtype=np.float32)
    actions = np.zeros((steps + 1, *value.shape[:-1]), dtype=np.uint8)
    places = np.arange(slack + 1)
    for left in range(1, steps + 1):
        wait = _then(value[..., _IDLE], value[..., _IDLE], up, down, ages)
        held = _then(value[..., _OD], value[..., _OD], up, down, ages)
        spot = _then(value[..., _SPOT], value[..., _IDLE], up, down, ages)
        idle = _shifted(wait, 1.0)
        costs = np.full((3, *value.shape), _LATE, dtype=np.float32)
        costs[_IDLE] = idle[..., None]
        costs[_OD] = (1 + _shifted(held, restart))[..., None]
        costs[_OD, ..., _OD] = 1 + held
        start, stay = ratio + _shifted(spot, restart), ratio + spot
        costs[_SPOT, ..., :BUCKETS, :] = start[..., :BUCKETS, None]
        costs[_SPOT, ..., :BUCKETS, _SPOT] = stay[..., :BUCKETS]
        actions[left] = costs.argmin(axis=0) @ 3 ** np.arange(3)
        value = np.minimum(costs.min(axis=0), _LATE)
        value[:, :, places >= left] = 0.0
    return Plan(actions)


def _grown(age: Real, older: Real) -> Real:
    """Return the integral of a spell's hazard from one age to another for α = 1."""
    return (older**SHAPE - age**SHAPE) / SHAPE


def _then(value: Cost, lost: Cost, up: Cost, down: Cost, ages: Real) -> Cost:
    """Return the expected value after a step, float[a, a, s, 2·BUCKETS]. lost: value if spot goes away."""
    older = ages.astype(np.float32)
    result = np.empty_like(value)
    for part, end, other in (
        (slice(0, BUCKETS), up, lost[..., BUCKETS]),
        (slice(BUCKETS, None), down, value[..., 0]),
    ):
        same = value[..., part]
        aged = np.concatenate([same[..., 1:], same[..., -1:]], axis=-1)
        result[..., part] = (1 - end) * (same + older * (aged - same)) + end * other[..., None]
    return result


def _shifted(value: Cost, steps: float) -> Cost:
    """Return the values at a slack that is smaller by `steps`, interpolated linearly between whole steps."""
    whole = int(steps)
    part = np.float32(steps - whole)
    late = np.full_like(value, _LATE)
    size = value.shape[2]
    near, far = late.copy(), late
    if whole < size:
        near[:, :, whole:] = value[:, :, : size - whole]
    if whole + 1 < size:
        far[:, :, whole + 1 :] = value[:, :, : size - whole - 1]
    return near if part == 0 else np.minimum((1 - part) * near + part * far, _LATE)


def _alpha(
    ended: Real, lasted: Real, prior: float | Real = PRIOR_ALPHA, spells: float = PRIOR_SPELLS
) -> Real:
    """Return the estimate of α. ended, lasted: spells that ended, and the integral of all spells' hazard for
    α = 1. spells: weight of the prior.
    """
    return (ended + spells) / (lasted + spells / prior)


def most_usd(terms: Terms) -> float:
    """Return the most that a job costs by the rules of ports.py, US$: on-demand alone plus the allowance.

    Proof. Before every tick let Φ be the sum of what was paid and the price of finishing on demand from here.
    A tick on demand does not change Φ. Any other choice is carried out only if Φ stays within the bound after
    it.
    """
    alone, start = terms.needed(np.array(terms.work_s)), np.ceil(terms.restart_s / terms.tick_s)
    tick_usd = terms.on_demand_usd_h * terms.tick_s / 3600
    return float(tick_usd * ((1 + SPARE_SHARE) * alone + SPARE_STARTS * start))


class Planned:
    """A policy that takes its actions from the plan for the estimated α."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self._guard, self._most_usd = terms, Guard(terms), most_usd(terms)
        self._ticks = max(-(-terms.ticks // STEPS), 1)
        self._step_s = self._ticks * terms.tick_s
        self._plans: dict[int, Plan] = {}
        # The first tick says how many jobs and zones there are.
        self._paid: Real
        self._looks: int
        self._placed: Flags
        self._level: Whole
        self._mean: Real
        self._was: Flags
        self._age: Real
        self._out: Real
        self._ended: Real
        self._lasted: Real

    def on_step(self, state: State) -> Decision:
        """Return the plan's action, in the cheapest zone with a restart spread over its expected time."""
        wanted = self._planned(self._affordable(state))
        kept = self._guard.keep(state, self._within(state, wanted))
        self._pay(state, kept.choice)
        return kept

    def _affordable(self, state: State) -> State:
        """Return the state without the spot machines that cost as much as on-demand, or more."""
        there = state.available & (state.spot_usd_h < self.terms.on_demand_usd_h)
        rows = np.arange(state.held.size)
        lost = (state.held >= 0) & ~there[rows, np.maximum(state.held, 0)]
        return replace(state, available=there, held=np.where(lost, IDLE, state.held))

    def _within(self, state: State, wanted: Decision) -> Decision:
        """Return the decision, replaced by on-demand where it might break the bound of cost."""
        terms = self.terms
        done_s, _ = ports.progress(terms, state, wanted.choice)
        tick_usd = terms.on_demand_usd_h * terms.tick_s / 3600
        finish_usd = tick_usd * terms.needed(np.maximum(terms.work_s - done_s, 0.0))
        finish_usd = np.where(done_s >= terms.work_s - CLOSE, 0.0, finish_usd)
        dear = self._paid + self._price(state, wanted.choice) + finish_usd > self._most_usd + CLOSE
        dear &= wanted.choice != ON_DEMAND
        return Decision(np.where(dear, ON_DEMAND, wanted.choice), np.where(dear, ports.BOUND, wanted.reason))

    def _price(self, state: State, choice: Whole) -> Real:
        """Return the cost of a tick of this choice, including the move to its zone, US$, float64[n]."""
        rows, zone, spot = np.arange(choice.size), np.maximum(choice, 0), choice >= 0
        usd_h = np.where(spot, state.spot_usd_h[rows, zone], self.terms.on_demand_usd_h)
        moving = self.terms.moving_usd(state.available.shape[1])[state.zone, zone] * (spot & self._placed)
        return np.where(choice == IDLE, 0.0, usd_h * self.terms.tick_s / 3600) + moving

    def _pay(self, state: State, choice: Whole) -> None:
        self._paid += self._price(state, choice)
        self._placed |= choice >= 0

    def _planned(self, state: State) -> Decision:
        self._see(state)
        terms, there = self.terms, state.available.any(axis=1)
        alpha = self._alphas()
        left_s = terms.work_s - state.done_s
        zone = self._zone(state, alpha[:, :-1], left_s)
        rows = np.arange(zone.size)
        age = np.where(there, self._age[rows, zone], self._out)
        ticks_left = terms.ticks - state.tick
        work = np.ceil((left_s + state.restart_left_s - CLOSE) / self._step_s)
        held = np.where(state.held >= 0, _SPOT, np.where(state.held == ON_DEMAND, _OD, _IDLE))
        bucket = np.minimum(np.log2(age).astype(np.int64), BUCKETS - 1) + np.where(there, 0, BUCKETS)
        both = np.stack([alpha[rows, zone], alpha[:, -1]], axis=1)
        nearest = np.abs(np.log(both)[:, :, None] - np.log(ALPHAS)).argmin(axis=2)
        steps = min(ticks_left // self._ticks, STEPS)
        action = np.zeros(held.size, dtype=np.int64)
        for level in np.unique(self._level):
            jobs = self._level == level
            table = self._plan(int(level))
            slack = np.clip(steps - work[jobs], 0, table.actions.shape[3] - 1).astype(np.int64)
            alphas = nearest[jobs, 0], nearest[jobs, 1]
            action[jobs] = table.action(steps, *alphas, slack, bucket[jobs], held[jobs])
        kinds = [action == _SPOT, action == _OD]
        choice = np.select(kinds, [zone, np.full_like(zone, ON_DEMAND)], IDLE)
        reason = np.select(kinds, [ports.PLAN_SPOT, ports.PLAN_ON_DEMAND], ports.PLAN_WAIT)
        return Decision(choice, reason)

    def _alphas(self) -> Real:
        """Return α of spot in every zone and then of outages, float64[n, zones + 1].

        The prior of a zone's α is that of the market, which is estimated from all zones. A single zone is the
        market.
        """
        spells, lasted = self._ended[:, :-1], self._lasted[:, :-1]
        market = _alpha(spells.sum(axis=1, keepdims=True), lasted.sum(axis=1, keepdims=True))
        zones = _alpha(spells, lasted, market, ZONE_SPELLS) if spells.shape[1] > 1 else market
        return np.concatenate([zones, _alpha(self._ended[:, -1:], self._lasted[:, -1:])], axis=1)

    def _plan(self, level: int) -> Plan:
        if level not in self._plans:
            terms = self.terms
            slack = int((terms.deadline_s - terms.work_s) / self._step_s) + 2
            steps = terms.ticks // self._ticks
            self._plans[level] = plan(steps, slack, terms.restart_s / self._step_s, RATIO**level)
        return self._plans[level]

    def _zone(self, state: State, alpha: Real, left_s: Real) -> Whole:
        """Return the zone with the least price including expected restarts, among those with spot,
        int64[n].

        A start counts the price of the checkpoint's move, spread over the time for which the zone is expected
        to last. A held zone is left only if the saving, over the time for which both zones are expected to
        last, pays for the restart at on-demand's price and for the move, and if there is time for two
        restarts.
        """
        spare_s = (self.terms.ticks - state.tick) * self.terms.tick_s - left_s - state.restart_left_s
        restart = self.terms.restart_s / self._step_s
        ends = alpha * self._age ** (SHAPE - 1)
        usd_h = np.where(state.available, state.spot_usd_h * (1 + ends * restart), np.inf)
        moving = self.terms.moving_usd(usd_h.shape[1]) * 3600 / self._step_s
        carried = moving[state.zone] * (ends + self._step_s / np.maximum(left_s, self._step_s)[:, None])
        starts = (state.held < 0) & self._placed
        best: Whole = (usd_h + np.where(starts[:, None], carried, 0.0)).argmin(axis=1)
        rows, held = np.arange(best.size), np.maximum(state.held, 0)
        lasts = 1 / (ends[rows, held] + ends[rows, best] + self._step_s / np.maximum(left_s, self._step_s))
        with np.errstate(invalid="ignore"):
            saved = (usd_h[rows, held] - usd_h[rows, best]) * lasts
        moves = saved > restart * self.terms.on_demand_usd_h + moving[held, best]
        moves &= spare_s > 2 * self.terms.restart_s
        return np.where((state.held >= 0) & ~moves, state.held, best)

    def _see(self, state: State) -> None:
        """Record this tick: ages in steps, and the spells that ended."""
        there = state.available
        n, none = len(there), ~there.any(axis=1)
        ratio = np.log(state.spot_usd_h.min(axis=1) / self.terms.on_demand_usd_h) / np.log(RATIO)
        if state.tick == 0:
            self._paid, self._placed = np.zeros(n), np.zeros(n, dtype=np.bool_)
            self._mean, self._looks = np.zeros(n), 0
            self._level = np.clip(np.round(ratio), CHEAPEST, 0)
            self._was, self._age, self._out = there, np.full(there.shape, FIRST_AGE), np.full(n, FIRST_AGE)
            self._ended, self._lasted = np.zeros((2, n, there.shape[1] + 1))
        self._looks += 1
        self._mean += (ratio - self._mean) / self._looks
        far = np.abs(self._mean - self._level) > FAR
        self._level = np.where(far, np.clip(np.round(self._mean), CHEAPEST, 0), self._level).astype(np.int64)
        if self._looks == 1:
            return
        was, was_none = self._was, ~self._was.any(axis=1)
        older, longer = self._age + 1 / self._ticks, self._out + 1 / self._ticks
        self._ended[:, :-1] += was & ~there
        self._lasted[:, :-1] += np.where(was, _grown(self._age, older), 0.0)
        self._ended[:, -1] += was_none & ~none
        self._lasted[:, -1] += np.where(was_none, _grown(self._out, longer), 0.0)
        self._age = np.where(there & was, older, 1.0)
        self._out = np.where(none & was_none, longer, 1.0)
        self._was = there
