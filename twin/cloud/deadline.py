"""Run jobs with a deadline on a spot market in virtual time, and find the cheapest run in hindsight.

For: carrying out decisions over series of availability and price, for many windows at once, and the offline
optimum that they are compared with. Not for: deciding (control/market), nor reading series (traces/readers).
The rules of a tick are those of control/market/ports.py. Source of the optimum: an exact dynamic programme
over tick, machine and work done. A start is one step that includes the whole restart, because an optimum
never leaves a machine during its restart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

import numpy as np
from numba import njit

from control.market.ports import CLOSE, IDLE, ON_DEMAND, Flags, Policy, Real, State, Terms, Whole, progress
from twinbed import ScenarioError

SECONDS_PER_HOUR = 3600
MOST_PARTS = 10_000
"""Largest denominator of a speed that is a fraction, in the optimum."""
MOST_UNITS = 150_000
"""Largest number of units of a job's work in the optimum. A tick's work is a whole number of units."""
MOST_STEPS = 10_000_000_000
"""Largest number of steps of the optimum of one window, ticks × units × machines: some ten seconds."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The market that n jobs see from their start.

    available: whether a zone has a spot machine in a tick, bool[n, ticks, zones].
    spot_usd_h: price of spot, US$/h, float64[n, ticks, zones].

    Raises ScenarioError for series that are empty or of different shapes, and prices that are not positive.
    """

    available: Flags
    spot_usd_h: Real

    def __post_init__(self) -> None:
        if self.available.ndim != 3 or self.available.shape != self.spot_usd_h.shape:
            raise ScenarioError("market: availability and prices are of [windows, ticks, zones], alike")
        if not self.available.size:
            raise ScenarioError("market: it is empty; give at least one window, one tick and one zone")
        if not (np.isfinite(self.spot_usd_h).all() and (self.spot_usd_h > 0).all()):
            raise ScenarioError("market: a spot price is not above zero")


@dataclass(frozen=True, slots=True)
class Played:
    """The results of n jobs under a policy.

    cost_usd: cost, US$, float64[n].
    finish_s: time from start to end, s, float64[n]; infinite if the job did not end.
    spot_h, on_demand_h: machine hours, float64[n].
    starts: number of machines started, int64[n].
    egress_usd, probes_usd: parts of the cost for moves between zones and for probes, US$, float64[n].
    choice, reason: choice in each tick and its reason, int64[ticks, n], as in control.market.ports.Decision.
    """

    cost_usd: Real
    finish_s: Real
    spot_h: Real
    on_demand_h: Real
    starts: Whole
    choice: Whole
    reason: Whole
    egress_usd: Real
    probes_usd: Real


def play(
    policy: Policy, terms: Terms, windows: Windows, told: Callable[[float], None] | None = None
) -> Played:
    """Run every window under the policy. told: function called with the share of ticks that are done.

    Raises ScenarioError if a window is shorter than the deadline.
    """
    ticks = terms.ticks
    n, known, zones = windows.available.shape
    if known < ticks:
        raise ScenarioError(f"market: {known} ticks are known of the {ticks} before the deadline; give more")
    ticks += ticks * terms.tick_s < terms.deadline_s - CLOSE  # the deadline may cut the last one short
    held, zone, left_s, done_s = np.full(n, IDLE), np.zeros(n, dtype=np.int64), np.zeros(n), np.zeros(n)
    cost, finish_s, starts = np.zeros(n), np.full(n, np.inf), np.zeros(n, dtype=np.int64)
    choices, reasons = np.full((ticks, n), IDLE), np.zeros((ticks, n), dtype=np.int64)
    rows, hours = np.arange(n), terms.tick_s / SECONDS_PER_HOUR
    moving, placed = terms.moving_usd(zones), np.zeros(n, dtype=np.bool_)
    egress, probes = np.zeros(n), np.zeros(n)
    for tick in range(ticks):
        seen = min(tick, known - 1)
        available, price = windows.available[:, seen], windows.spot_usd_h[:, seen]
        held = np.where((held >= 0) & ~available[rows, np.maximum(held, 0)], IDLE, held)
        state = State(tick, available, price, held, zone, left_s, done_s)
        decision = policy.on_step(state)
        choice = decision.choice
        if (spot := choice >= 0).any() and not available[rows, np.maximum(choice, 0)][spot].all():
            name = type(policy).__name__
            raise ScenarioError(f"policy {name} took spot where there is none, in tick {tick}")
        choices[tick], reasons[tick] = choice, decision.reason
        starts += (choice != held) & (choice != IDLE)
        paid = np.where(spot, price[rows, np.maximum(choice, 0)], terms.on_demand_usd_h)
        cost += np.where(choice == IDLE, 0.0, paid * hours)
        egress += np.where(spot & placed, moving[zone, np.maximum(choice, 0)], 0.0)
        placed |= spot
        if decision.probes is not None:
            probes += (decision.probing_s(terms, state) * price).sum(axis=1) / SECONDS_PER_HOUR
        before_s = done_s
        done_s, left_s = progress(terms, state, choice)
        ended = (before_s < terms.work_s - CLOSE) & (done_s >= terms.work_s - CLOSE)
        finish_s[ended] = (tick + 1) * terms.tick_s - (done_s - terms.work_s)[ended]
        held, zone = choice, np.where(spot, choice, zone)
        if told is not None:
            told((tick + 1) / ticks)
        if np.isfinite(finish_s).all():
            break
    return Played(
        cost + egress + probes, finish_s,
        (choices >= 0).sum(axis=0) * hours, (choices == ON_DEMAND).sum(axis=0) * hours,
        starts, choices, reasons, egress, probes,
    )  # fmt: skip


def optimum_usd(terms: Terms, windows: Windows, speeds: Sequence[float] = ()) -> Real:
    """Return the least cost of each window if the market is known in advance, US$, float64[n].

    Moves between zones are paid; probes are not needed. speeds: work per second in each zone relative to on
    demand; empty: 1 everywhere. The cost is NaN if the work of a tick has no common measure within MOST_UNITS
    of the job, and for jobs so long that a window takes more than MOST_STEPS.
    """
    zones = windows.available.shape[2]
    rates = np.array([*(speeds or [1.0] * zones), 1.0])
    fractions = [Fraction(rate).limit_denominator(MOST_PARTS) for rate in rates.tolist()]
    parts = lcm(*(fraction.denominator for fraction in fractions))
    if parts > MOST_UNITS or not np.allclose([float(one) for one in fractions], rates, rtol=1e-12, atol=0):
        return np.full(len(windows.available), np.nan)
    scale = 1000 * parts  # times are whole milliseconds, and work is whole in parts of them
    spans = (terms.tick_s, terms.restart_s, terms.work_s, terms.deadline_s)
    tick, restart, work, deadline = (round(value * scale) for value in spans)
    length = max(1, -(-restart // tick))
    gain = np.round(tick * rates).astype(np.int64)
    first = np.round((length * tick - restart) * rates).astype(np.int64)
    unit = gcd(work, *gain.tolist(), *first.tolist())
    steps = windows.available.shape[1] * (work // unit) * (2 * zones + 1)
    if work // unit > MOST_UNITS or steps > MOST_STEPS:
        return np.full(len(windows.available), np.nan)
    hours = terms.tick_s / SECONDS_PER_HOUR
    ticks = -(-deadline // tick)  # the deadline may cut the last one short
    price = np.where(windows.available[:, :ticks], windows.spot_usd_h[:, :ticks] * hours, np.inf)
    # A checkpoint is in no region at first, and later in one region: the zones with equal prices of moves.
    moving = np.concatenate([np.zeros((1, zones)), terms.moving_usd(zones)])
    moving, region = np.unique(moving, axis=0, return_inverse=True)
    region = region.reshape(-1)
    od = np.full((*price.shape[:2], len(moving)), terms.on_demand_usd_h * hours)
    price = np.ascontiguousarray(np.concatenate([price, od], axis=2))
    machines = np.concatenate([np.arange(zones), np.full(len(moving), zones)])
    homes = np.concatenate([region[1:], np.arange(len(moving))])
    tables = (gain[machines] // unit, first[machines] // unit, rates[machines] / unit, homes)
    needs = (tick, restart, length, work // unit, deadline)
    return np.array([_least(window, moving, *tables, int(region[0]), *needs) for window in price])


@njit(cache=True)
def _least(
    price: Real, moving: Real, gain: Whole, first: Whole, rate: Real, homes: Whole, start: int, tick: int,
    restart: int, length: int, work: int, deadline: int,
) -> float:  # fmt: skip
    """Return the least cost of one window.

    price: US$ per tick by machine, float64[ticks, machines]; infinite if there is none. The machines are the
        zones, then on demand in every region.
    moving: US$ from a region to a zone, float64[regions, zones].
    gain, first: work of a tick, and of the `length` ticks of a start, int64[machines].
    rate: work per unit of time. homes: region of each machine. start: region at the start.

    Work and times are in units of their own.
    """
    ticks, machines = price.shape
    regions, zones = moving.shape
    # value[t % ring, m, k] is the least cost from tick t on, with machine m (or none in a region) and k units
    # to do.
    ring = length + 1
    value = np.full((ring, machines + regions, work + 1), np.inf)
    value[:, :, 0] = 0.0
    fastest, most = rate.max(), gain.max()
    for t in range(ticks - 1, -1, -1):
        now, after, then = value[t % ring], value[(t + 1) % ring], value[(t + length) % ring]
        left = deadline - t * tick
        low, high = max(1, work - t * most), min(work, int(left * fastest + 1e-6)) + 1
        now[:, 1:] = np.inf
        now[machines:, low:high] = after[machines:, low:high]
        for m in range(machines):
            whole = t + length <= ticks
            ends = min(max(first[m] + 1, low), high) if whole else high
            for k in range(low, ends):
                usd = _ending(price[t:, m], tick, restart + k / rate[m], left)
                _start(now, m, k, usd, moving, machines)
            paid = price[t : t + length, m].sum()
            if not whole or paid == np.inf:
                continue
            for r in range(regions):
                if m < zones or m - zones == r:
                    usd = paid + (moving[r, m] if m < zones else 0.0)
                    for k in range(ends, high):
                        now[machines + r, k] = min(now[machines + r, k], usd + then[m, k - first[m]])
        for m in range(machines):
            home, least = machines + homes[m], price[t, m]
            for k in range(low, high):
                stay = least if k <= left * rate[m] + 1e-6 else np.inf
                if k > gain[m]:
                    stay = least + after[m, k - gain[m]]
                now[m, k] = min(now[home, k], stay)
    return float(value[0, machines + start, work])


@njit(cache=True)
def _start(now: Real, m: int, k: int, usd: float, moving: Real, machines: int) -> None:
    """Lower the cost in every region from which machine m can be started, if starting it costs less."""
    regions, zones = moving.shape
    for r in range(regions):
        if m < zones or m - zones == r:
            paid = usd + (moving[r, m] if m < zones else 0.0)
            now[machines + r, k] = min(now[machines + r, k], paid)


@njit(cache=True)
def _ending(price: Real, tick: int, needed: float, left: int) -> float:
    """Return the cost of a machine until `needed` units are done; infinite beyond `left` units."""
    ticks = int(np.ceil(needed / tick - 1e-9))
    return price[:ticks].sum() if needed <= left + 1e-6 and ticks <= price.size else np.inf
