"""The choice of a place for a job of one GPU when prices differ by type, region and cloud, and change daily.

For: the ladder of strategies, the choice at the start, the rule of a move, and the admission of jobs to a
budget. Not for: simulating a job (twin/cloud/ladder.py), reading prices (traces/catalogue), nor machines that
are taken away: an offer is always available at its price. Source: the price logs and notebook of "Training on
a Dime" (stanford-futuredata/training_on_a_dime, DISPA 2020). Our readings: the rule of a move, which weighs
what an interval saves against what the move costs (the source moves for free), and both rules of collections.
Work is in seconds of the reference GPU. Ties go to the present offer, then to the first name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from control.market.levels import Levels
from control.market.ports import CLOSE, Flags, Real
from twinbed import ScenarioError

HOUR_S = 3600.0
LADDER = {
    "baseline": "the reference GPU at home, held",
    "gpu_type": "any GPU at home, in machines with one",
    "packed": "any GPU at home, in machines with any number",
    "multi_cloud": "any GPU in any region and cloud, chosen once",
    "dynamic": "any GPU anywhere, chosen again at every interval",
}
"""Strategies by name. Each one has all freedoms of those before it and one more."""
START, STAY, MOVE, LATE, RUSH = REASONS = (
    "least cost at the start",
    "no move pays for itself",
    "saves more than the move costs",
    "the offer held would miss the deadline",
    "no interval to spare: the fastest offer to the end",
)
"""Reasons of choices."""


@dataclass(frozen=True, slots=True)
class Offer:
    """An offer of one GPU of a machine. Others are assumed to use the machine's other GPUs.

    gpus: GPUs of the whole machine. speed: work per second; the reference GPU's is 1. usd_h: price of this
    GPU, US$/h; the offer begins at its first time.
    """

    cloud: str
    region: str
    type: str
    gpu: str
    gpus: int
    speed: float
    usd_h: Levels

    def __post_init__(self) -> None:
        if not (0 < self.speed < np.inf and (self.usd_h.value > 0).all() and self.gpus > 0):
            raise ScenarioError(f"{self.name}: its GPUs, speed and prices must be above 0")

    @property
    def name(self) -> str:
        """The offer's name: cloud, region and type."""
        return f"{self.cloud}/{self.region}/{self.type}"


@dataclass(frozen=True, slots=True)
class Job:
    """A job of one GPU.

    work_s: work, s of the reference GPU. restart_s: time that every start takes, including repeated work, s.
    checkpoint_gb, egress_usd_gb: data moved to another region or cloud, GB, and its price, US$/GB. move_usd:
    additional price of any move, US$. deadline_s: time from the start until it must be done, s; infinite:
    none.

    Raises ScenarioError if a value is negative or NaN, or if work_s is 0.
    """

    work_s: float
    restart_s: float = 0.0
    checkpoint_gb: float = 0.0
    egress_usd_gb: float = 0.0
    move_usd: float = 0.0
    deadline_s: float = np.inf

    def __post_init__(self) -> None:
        for name in ("restart_s", "checkpoint_gb", "egress_usd_gb", "move_usd"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ScenarioError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if not (0 < self.work_s < np.inf and self.deadline_s > 0):
            raise ScenarioError("a job needs work, and a deadline after its start")

    def moving_usd(self, old: Offer, new: Offer) -> float:
        """Return the cost of a move from one offer to another, without its time, US$."""
        carried = (old.cloud, old.region) != (new.cloud, new.region)
        return self.move_usd + carried * self.checkpoint_gb * self.egress_usd_gb


@dataclass(frozen=True, slots=True)
class Choice:
    """An offer to hold from now on. offer: its index in the offers. reason: one of REASONS.

    held_usd, new_usd: price of an hour of work on the offer held so far (NaN at the start) and on the new
        one, US$.
    saves_usd, costs_usd: savings of the move until the next choice, and its cost, US$; NaN without a move.
    """

    offer: int
    reason: str
    held_usd: float
    new_usd: float
    saves_usd: float = np.nan
    costs_usd: float = np.nan


def offered(step: str, offers: Sequence[Offer], home: tuple[str, str], gpu: str, at_s: float) -> Flags:
    """Return the offers that a step of the ladder may take at a time, bool[n]. home: cloud and region.

    Raises ScenarioError if there is none.
    """
    here = np.array([(offer.cloud, offer.region) == home for offer in offers], dtype=bool)
    alone = np.array([offer.gpus == 1 for offer in offers], dtype=bool)
    may: dict[str, Flags] = {
        "baseline": here & alone & np.array([offer.gpu == gpu for offer in offers], dtype=bool),
        "gpu_type": here & alone,
        "packed": here,
    }
    begun = np.array([offer.usd_h.t_s[0] <= at_s for offer in offers], dtype=bool)
    allowed: Flags = may.get(step, np.ones_like(begun)) & begun
    if not allowed.any():
        later = [
            offer.usd_h.t_s[0] - at_s for offer, one in zip(offers, may.get(step, ~begun), strict=True) if one
        ]
        first = f"; the first price is {min(later) / 86_400:,.1f} days later" if later else ""
        where = f"({LADDER[step]}; home {'/'.join(home)}, {gpu})"
        raise ScenarioError(f"{step}: no offer at the start {where}{first}")
    return allowed


def predicted_usd(job: Job, offers: Sequence[Offer], at_s: float) -> Real:
    """Return the cost of the whole job on each offer at the prices of time at_s, US$, float64[n]."""
    usd_h, speed = _prices(offers, at_s), _speeds(offers)
    return usd_h * (job.work_s / speed + job.restart_s) / HOUR_S


def begin(job: Job, offers: Sequence[Offer], allowed: Flags, at_s: float, every_s: float) -> Choice:
    """Return the first choice: the least predicted cost among the offers that can still meet the deadline.

    Raises ScenarioError, with the time that is needed, for a deadline that the fastest offer misses.
    """
    cost = predicted_usd(job, offers, at_s)
    least_s = job.work_s / float(_speeds(offers)[allowed].max()) + job.restart_s
    if least_s > job.deadline_s + CLOSE:
        raise ScenarioError(
            f"infeasible: the deadline is after {job.deadline_s / HOUR_S:g} h, and the fastest offer needs "
            f"{least_s / HOUR_S:.1f} h"
        )
    starts = np.full(len(offers), job.restart_s)
    target, reason = _target(job, offers, allowed, cost, starts, -1, job.work_s, job.deadline_s, every_s)
    usd = float(_prices(offers, at_s)[target] / offers[target].speed)
    return Choice(target, reason or START, np.nan, usd)


def again(
    job: Job, offers: Sequence[Offer], allowed: Flags, at_s: float, every_s: float, held: int, left_s: float,
    starting_s: float, time_s: float,
) -> Choice:  # fmt: skip
    """Return whether to move. left_s: work left; starting_s: rest of the present start; time_s: time left
    until the deadline; all in s.

    A move must save more in the next interval than it costs, or be needed for the deadline.
    """
    usd_h, speed = _prices(offers, at_s), _speeds(offers)
    unit = usd_h / speed
    work_h = min(left_s, every_s * float(speed[held])) / HOUR_S
    saves = work_h * (unit[held] - unit)
    costs = np.array([job.moving_usd(offers[held], offer) for offer in offers])
    costs = np.where(np.arange(len(offers)) == held, 0.0, costs + job.restart_s / HOUR_S * usd_h)
    starts = np.where(np.arange(len(offers)) == held, starting_s, job.restart_s)
    target, reason = _target(job, offers, allowed, costs - saves, starts, held, left_s, time_s, every_s)
    gain = float(saves[target] - costs[target])
    if not reason and gain <= CLOSE:
        target = held
    if target == held:
        return Choice(held, reason or STAY, float(unit[held]), float(unit[held]))
    return Choice(
        target, reason or MOVE, float(unit[held]), float(unit[target]), float(saves[target]),
        float(costs[target]),
    )  # fmt: skip


def admitted(predicted: Sequence[float], budget_usd: float) -> list[bool]:
    """Return the jobs, in order of arrival, that may run: those whose predicted cost fits into the rest of
    the budget. A job that does not fit, or has no cost (infinite), leaves room for later ones."""
    left, answer = budget_usd, []
    for usd in predicted:
        answer.append(usd < np.inf and usd <= left + CLOSE)
        left -= usd if answer[-1] else 0.0
    return answer


def _target(
    job: Job, offers: Sequence[Offer], allowed: Flags, cost: Real, starts: Real, held: int, left_s: float,
    time_s: float, every_s: float,
) -> tuple[int, str]:  # fmt: skip
    """Return the best offer and "", or an offer and a reason if the deadline forces it. starts: time before
    it works, s.

    An offer is safe if after an interval on it the fastest one can still finish. If the cheapest one is too
    slow to finish at all, the two offers are sought whose mix meets the deadline at least cost (Gavel's cost
    programme for one job, OSDI 2020). The slower one comes first, as long as the faster one can still finish;
    then, or if there is no further choice, the cheapest one that finishes in time.
    """
    order = sorted(np.flatnonzero(allowed).tolist(), key=lambda o: (cost[o], o != held, offers[o].name))
    if not np.isfinite(time_s):
        return int(order[0]), ""
    speed = _speeds(offers)
    fastest = max(order, key=lambda o: (speed[o], o == held, -cost[o]))
    ends_s = starts + left_s / speed
    rest_s = np.maximum(left_s - np.maximum(every_s - starts, 0.0) * speed, 0.0)
    after_s = rest_s / speed[fastest] + job.restart_s + every_s
    safe = allowed & ((ends_s <= time_s + CLOSE) | (after_s <= time_s + CLOSE))
    if not safe.any():
        return int(fastest), RUSH
    wanted, late = int(order[0]), held >= 0 and not safe[held]
    if ends_s[wanted] > time_s + CLOSE:
        slow, fast = _mixed(left_s / speed, cost, np.asarray(order), time_s - job.restart_s)
        in_time = rest_s[slow] / speed[fast] + job.restart_s + every_s <= time_s + CLOSE
        alone = (o for o in order if ends_s[o] <= time_s + CLOSE)
        wanted = slow if in_time else next(alone, fast)
        late |= held >= 0 and not in_time and ends_s[held] > time_s + CLOSE
    if not safe[wanted]:
        wanted = int(next(o for o in order if safe[o]))
    return wanted, LATE if late else ""


def _mixed(span_s: Real, cost: Real, order: np.ndarray, time_s: float) -> tuple[int, int]:
    """Return the slower and the faster offer of the cheapest mix of two that takes `time_s`, or the fastest
    twice if none is in time. span_s: time of the remaining work on each offer."""
    slow, fast = (order[span_s[order] > time_s], order[span_s[order] <= time_s])
    if not (slow.size and fast.size):
        fastest = int(order[span_s[order].argmin()])
        return fastest, fastest
    share = (time_s - span_s[fast][:, None]) / (span_s[slow][None] - span_s[fast][:, None])
    mix = cost[fast][:, None] + share * (cost[slow][None] - cost[fast][:, None])
    first, second = np.unravel_index(mix.argmin(), mix.shape)
    return int(slow[second]), int(fast[first])


def _prices(offers: Sequence[Offer], at_s: float) -> Real:
    return np.array([offer.usd_h.at(at_s) for offer in offers])


def _speeds(offers: Sequence[Offer]) -> Real:
    return np.array([offer.speed for offer in offers])
