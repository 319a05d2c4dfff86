"""Whether users stay in a cluster that they reserved together when they could rent on demand.

For: two ways to divide the bill of a shared cluster, the rounds in which users leave until all others stay,
and the number of machines and the discount at which all users stay. Source: "Is Sharing Caring?" (ICPE 2023,
doi 10.1145/3578244.3583730), of which only the abstract was read: the rules are our readings. The bill does
not depend on the use of the machines. Jobs run first come, first served without backfilling. Once the largest
job fits, more machines never make a job wait longer. Not for: schedulers (control.scheduler), nor the source
of the jobs.

A unit is a core or a GPU, whichever the job log counts. Users who leave do so at the same time and do not
return.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from control.jobs import Flags, Real, Whole

_ROUNDING = 1e-9
"""Relative difference below which two amounts count as equal."""


@dataclass(frozen=True, slots=True)
class Use:
    """n jobs of u users in the order of submission.

    user: user of each job, 0 to u − 1, int64[n]; every user has a job.
    submit_s: time of submission, s, non-decreasing, float64[n].
    run_s: run time, s, above 0, float64[n].
    units: number of units, above 0, int64[n].
    """

    user: Whole
    submit_s: Real
    run_s: Real
    units: Whole

    @property
    def users(self) -> int:
        """Number of users."""
        return int(self.user.max(initial=-1)) + 1

    def hours(self, most: float = np.inf) -> Real:
        """Return the unit-hours of each user, float64[u], without jobs of more than `most` units."""
        used = np.where(self.units <= most, self.units * self.run_s, 0.0)
        return np.bincount(self.user, used, self.users) / 3600


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of sharing, and the users' tolerance.

    machines, units: number of reserved machines, and units of each.
    price_usd_h: price of a unit on demand, US$/h.
    discount: discount on a reserved unit, 0 to 1.
    horizon_s: time for which the machines are reserved, s.
    pricing: usage: users pay by their unit-hours; flat: all users pay the same.
    tolerance: longest mean wait that a user accepts, as a multiple of the mean run time of their jobs.
    wait_usd_h: value of an hour of a job's wait to its user, US$.
    """

    machines: int
    units: int
    price_usd_h: float
    discount: float
    horizon_s: float
    pricing: Literal["usage", "flat"] = "usage"
    tolerance: float = 15.0
    wait_usd_h: float = 0.0

    @property
    def bill_usd(self) -> float:
        """Price of the machines for all users together, US$."""
        hours = self.machines * self.units * self.horizon_s / 3600
        return hours * self.price_usd_h * (1 - self.discount)


@dataclass(frozen=True, slots=True)
class Round:
    """Payments and waits of the members before some of them leave.

    members: bool[u].
    paid_usd, alone_usd: payment here, where a job that never fits is no use, and the price of all use on
        demand, US$, float64[u]; 0 for those who left.
    wait_s: mean wait, s, float64[u]; inf if a job is larger than the cluster.
    impatient, cheated: members who leave because of the wait, or because it is cheaper elsewhere, bool[u].
    price_usd_h: price of a unit-hour of use for the members, US$; NaN without any use.
    utilisation: use over the reserved units.
    """

    members: Flags
    paid_usd: Real
    alone_usd: Real
    wait_s: Real
    impatient: Flags
    cheated: Flags
    price_usd_h: float
    utilisation: float

    @property
    def leave(self) -> Flags:
        """Members who leave after this round, bool[u]."""
        return self.impatient | self.cheated


def fifo_waits(submit_s: Real, run_s: Real, units: Whole, room: int) -> Real:
    """Return each job's wait for its units out of `room`, first come, first served, s, float64[n].

    A job that needs more than `room` waits for ever (inf) and blocks no other job.
    """
    waits = np.full(submit_s.size, np.inf)
    ends: list[tuple[float, int]] = []
    free, now_s = room, -np.inf
    for job, (at_s, takes_s, wanted) in enumerate(
        zip(submit_s.tolist(), run_s.tolist(), units.tolist(), strict=True)
    ):
        if wanted > room:
            continue
        now_s = max(now_s, at_s)
        while ends and (ends[0][0] <= now_s or free < wanted):
            end_s, back = heapq.heappop(ends)
            now_s = max(now_s, end_s)
            free += back
        free -= wanted
        heapq.heappush(ends, (now_s + takes_s, wanted))
        waits[job] = now_s - at_s
    return waits


def play(use: Use, terms: Terms) -> Sequence[Round]:
    """Return the rounds until no user leaves, or no user is left. There are at most as many rounds as
    users."""
    members = np.ones(use.users, np.bool_)
    rounds: list[Round] = []
    while members.any():
        rounds.append(_round(use, terms, members))
        if not rounds[-1].leave.any():
            break
        members = members & ~rounds[-1].leave
    return rounds


def _round(use: Use, terms: Terms, members: Flags) -> Round:
    wait_s, run_s = _means(use, terms, members)
    hours = np.where(members, use.hours(terms.machines * terms.units), 0.0)
    alone = np.where(members, use.hours() * terms.price_usd_h, 0.0)
    paid = terms.bill_usd * _parts(hours, members, terms.pricing)
    jobs = np.bincount(use.user, minlength=use.users)
    with np.errstate(invalid="ignore"):
        waited = np.where(members, wait_s * jobs / 3600 * terms.wait_usd_h, 0.0) if terms.wait_usd_h else 0.0
    return Round(
        members=members,
        paid_usd=paid,
        alone_usd=alone,
        wait_s=wait_s,
        impatient=members & (wait_s > terms.tolerance * run_s * (1 + _ROUNDING)),
        cheated=members & (paid + waited > alone * (1 + _ROUNDING)),
        price_usd_h=terms.bill_usd / float(hours.sum()) if hours.any() else np.nan,
        utilisation=float(hours.sum()) * 3600 / (terms.machines * terms.units * terms.horizon_s),
    )


def _means(use: Use, terms: Terms, members: Flags) -> tuple[Real, Real]:
    """Return the mean wait and the mean run time of each member's jobs, s, float64[u]; 0 for other users."""
    here = members[use.user]
    user = use.user[here]
    room = terms.machines * terms.units
    waits = fifo_waits(use.submit_s[here], use.run_s[here], use.units[here], room)
    jobs = np.maximum(np.bincount(user, minlength=use.users), 1)
    wait_s = np.bincount(user, waits, use.users) / jobs
    return wait_s, np.bincount(user, use.run_s[here], use.users) / jobs


def _parts(hours: Real, members: Flags, pricing: str) -> Real:
    """Return each user's share of the bill, float64[u]; the sum is 1."""
    parts: Real = hours / hours.sum() if pricing == "usage" and hours.any() else members / members.sum()
    return parts


def least_machines(use: Use, terms: Terms) -> int | None:
    """Return the fewest machines with which every user's wait is tolerable; None if no number is enough.

    The prices and the number of machines in `terms` are ignored.
    """
    low, high = 0, -(-int(use.units.sum()) // terms.units)
    if not _tolerable(use, replace(terms, machines=high)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _tolerable(use, replace(terms, machines=middle)) else (middle, high)
    return high


def _tolerable(use: Use, terms: Terms) -> bool:
    wait_s, run_s = _means(use, terms, np.ones(use.users, np.bool_))
    return bool((wait_s <= terms.tolerance * run_s * (1 + _ROUNDING)).all())


def least_discount(use: Use, terms: Terms) -> float:
    """Return the smallest discount with which no user has a cheaper alternative while all stay.

    Above 1: there is none. Below 0: sharing is worthwhile without a discount. Waits are judged by
    least_machines. The discount in `terms` is ignored.
    """
    first = _round(use, replace(terms, discount=0.0), np.ones(use.users, np.bool_))
    jobs = np.bincount(use.user, minlength=use.users)
    waited = first.wait_s * jobs / 3600 * terms.wait_usd_h if terms.wait_usd_h else np.zeros(use.users)
    with np.errstate(divide="ignore"):  # Who has only jobs that never fit pays nothing by use.
        return float(1 - ((first.alone_usd - waited) / first.paid_usd).min())
