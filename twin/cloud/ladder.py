"""Run a job of one GPU in virtual time on offers whose prices change, and find its least possible cost.

For: carrying out the choices of control/market/ladder.py over price histories. Not for: choosing, nor
machines that are taken away (market.py). Every second of a held offer is paid at the price in force then,
starts included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from control.market.ladder import HOUR_S, Choice, Job, Offer, again, begin
from control.market.ports import CLOSE, Flags, Real
from twinbed import ScenarioError

MOST_CHOICES = 20_000
"""Most choices of a job on a reference GPU: with a thousand offers about a minute."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A time on one offer. begin_s, end_s: its begin and end, s. choice: the choice that began it. usd,
    moving_usd: price of the time, and of the move there, US$."""

    begin_s: float
    end_s: float
    choice: Choice
    usd: float
    moving_usd: float


@dataclass(frozen=True, slots=True)
class Ride:
    """A job from start to end. stays: its stays in order, without gaps."""

    stays: tuple[Stay, ...]

    @property
    def cost_usd(self) -> float:
        """Total price, US$."""
        return sum(stay.usd + stay.moving_usd for stay in self.stays)

    @property
    def span_s(self) -> float:
        """Time from the start to the end, s."""
        return self.stays[-1].end_s - self.stays[0].begin_s

    @property
    def moves(self) -> int:
        """Number of moves."""
        return len(self.stays) - 1


def play(job: Job, offers: Sequence[Offer], allowed: Flags, at_s: float, every_s: float | None) -> Ride:
    """Return the stays of the job that starts at at_s. every_s: time between two choices, s; None: one
    choice.

    Raises ScenarioError for a deadline that no offer meets, and for too many choices.
    """
    step_s = np.inf if every_s is None else every_s
    if job.work_s > MOST_CHOICES * step_s:
        raise ScenarioError(f"more than {MOST_CHOICES:,} choices: take a longer --move-every")
    choice, now_s, done_s = begin(job, offers, allowed, at_s, step_s), at_s, 0.0
    since_s, ready_s, moving_usd, stays = at_s, at_s + job.restart_s, 0.0, list[Stay]()
    number = 0
    while True:
        offer = offers[choice.offer]
        ends_s = max(ready_s, now_s) + (job.work_s - done_s) / offer.speed
        number += 1
        next_s = at_s + number * step_s
        if ends_s <= next_s + CLOSE:
            return Ride((*stays, _stay(offer, since_s, ends_s, choice, moving_usd)))
        done_s += max(next_s - max(ready_s, now_s), 0.0) * offer.speed
        now_s = next_s
        left_s, time_s = job.work_s - done_s, at_s + job.deadline_s - now_s
        starting_s = max(ready_s - now_s, 0.0)
        then = again(job, offers, allowed, now_s, step_s, choice.offer, left_s, starting_s, time_s)
        if then.offer != choice.offer:
            stays.append(_stay(offer, since_s, now_s, choice, moving_usd))
            moving_usd = job.moving_usd(offer, offers[then.offer])
            choice, since_s, ready_s = then, now_s, now_s + job.restart_s


def _stay(offer: Offer, begin_s: float, end_s: float, choice: Choice, moving_usd: float) -> Stay:
    return Stay(begin_s, end_s, choice, offer.usd_h.integral(begin_s, end_s) / HOUR_S, moving_usd)


def hindsight_usd(
    job: Job, offers: Sequence[Offer], allowed: Flags, at_s: float, every_s: float | None
) -> float:
    """Return the least cost if prices are known in advance and moves are free, US$. Deadlines are ignored.

    every_s: time between two choices, s; None: one offer is held from start to end. The search is exact: it
    keeps every pair (work done, cost) that no other one dominates, and drops pairs that cannot end cheaper
    than the best.
    """
    free = replace(job, restart_s=0.0, move_usd=0.0, checkpoint_gb=0.0, deadline_s=np.inf)
    used = [offer for offer, may in zip(offers, allowed, strict=True) if may]
    best = min(offer.usd_h.integral(at_s, at_s + free.work_s / offer.speed) / HOUR_S for offer in used)
    if every_s is None:
        return best
    lowest = min(float(offer.usd_h.value[offer.usd_h.t_s >= at_s].min(initial=offer.usd_h.at(at_s))) /
                 offer.speed for offer in used) / HOUR_S  # fmt: skip
    done, paid = np.zeros(1), np.zeros(1)
    while done.size:
        gained, cost = np.empty(len(used)), np.empty(len(used))
        for number, offer in enumerate(used):
            at, paid_by = _paid(offer, at_s, every_s)
            gained[number], cost[number] = every_s * offer.speed, paid_by[-1]
            spans = (free.work_s - done) / offer.speed
            ends = spans <= every_s + CLOSE
            if ends.any():
                best = min(best, float((paid[ends] + np.interp(spans[ends], at, paid_by)).min()))
        keep = _unbeaten(gained, cost)
        done = (done[:, None] + gained[keep]).ravel()
        paid = (paid[:, None] + cost[keep]).ravel()
        hopeful = (done < free.work_s) & (paid + (free.work_s - done) * lowest < best - 1e-9)
        done, paid = done[hopeful], paid[hopeful]
        keep = _unbeaten(done, paid)
        done, paid, at_s = done[keep], paid[keep], at_s + every_s
    return best


def _paid(offer: Offer, at_s: float, span_s: float) -> tuple[Real, Real]:
    """Return float64[k] twice: times since at_s, s, and amounts paid until then, US$, linear in between."""
    inside = offer.usd_h.t_s[(offer.usd_h.t_s > at_s) & (offer.usd_h.t_s < at_s + span_s)] - at_s
    times = np.concatenate([[0.0], inside, [span_s]])
    usd_h = np.array([offer.usd_h.at(at_s + time_s) for time_s in times[:-1].tolist()])
    return times, np.concatenate([[0.0], np.cumsum(usd_h * np.diff(times)) / HOUR_S])


def _unbeaten(work: Real, cost: Real) -> np.ndarray:
    """Return int64[k]: positions that no other position dominates in work and cost."""
    order = np.lexsort((-work, cost))
    most = np.maximum.accumulate(np.concatenate([[-np.inf], work[order]]))[:-1]
    return order[work[order] > most]
