"""docs/results/sharing.md: do users stay in a shared, reserved cluster? On Philly's GPUs and SURF's cores.

For: `python -m studies sharing`. Not for: the rules (control.shared_cluster). H10 is of the abstract of "Is
Sharing Caring?" (ICPE 2023, doi 10.1145/3578244.3583730): with a tolerance of 15 times the mean run time more
than 80 % of the users leave, and the price for the rest rises until nothing is left to gain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from control.shared_cluster import Round, Terms, Use, least_discount, least_machines, play
from lab.cluster.run.reserving import hours, use_of
from studies import harness
from studies.harness import Asked, dash, table
from traces.readers.job_logs import JobLog, read_philly, read_surf

LOADS = (0.5, 0.8, 0.95)
"""Use of all users as a share of the reserved machines."""

DISCOUNTS = (0.4, 0.6)
"""Approximate discounts of the large providers for reserving one and three years. An assumption."""

TOLERANCE = 15.0
_PRICINGS: tuple[Literal["usage", "flat"], ...] = ("usage", "flat")
_SURF_USERS = 50
"""Number of users for SURF's jobs, whose data name none; the k-th user has weight 1/k. An assumption."""


@dataclass(frozen=True, slots=True)
class Data:
    """Jobs with users.

    name: name of the data.
    use: the jobs by user.
    units: number of cores or GPUs of a machine.
    horizon_s: time from the first submission until the last job would end if none waited, s.
    """

    name: str
    use: Use
    units: int
    horizon_s: float

    def terms(self, machines: int, discount: float, pricing: Literal["usage", "flat"]) -> Terms:
        """Return the terms. A unit-hour on demand is the unit of money."""
        return Terms(machines, self.units, 1.0, discount, self.horizon_s, pricing, TOLERANCE)

    def machines(self, load: float) -> int:
        """Return the number of machines with which the jobs make this load."""
        return max(round(float(self.use.hours().sum()) * 3600 / (self.horizon_s * self.units * load)), 1)


def make(asked: Asked) -> int:
    """Write the page."""
    harness.publish("sharing", document(list(data(asked.public_data()))), asked.out)
    return 0


def data(folder: Path) -> Iterator[Data]:
    """Yield the data sets."""
    philly = read_philly(folder / "philly_jobs" / "philly_jobs.csv.gz")
    yield of_log("Philly", philly, np.unique(philly.queue, return_inverse=True)[1], 8)
    surf = read_surf(folder / "surf_hpc_week_30s" / "surf_tasks.csv.gz")
    for seed in range(3):
        weight = 1 / np.arange(1, _SURF_USERS + 1)
        user = np.random.default_rng(seed).choice(_SURF_USERS, surf.gpus.size, p=weight / weight.sum())
        yield of_log(f"SURF, seed {seed}", surf, np.unique(user, return_inverse=True)[1], 16)


def of_log(name: str, log: JobLog, user: np.ndarray, units: int) -> Data:
    """Return a log's jobs with these users."""
    return Data(name, use_of(log, user), units, hours(log) * 3600)


def document(sets: Sequence[Data]) -> str:
    """Return the page's text."""
    rows, leave = [], []
    for given in sets:
        for load in LOADS:
            for discount in DISCOUNTS:
                for pricing in _PRICINGS:
                    terms = given.terms(given.machines(load), discount, pricing)
                    harness.say(f"sharing: {given.name}, load {load:g}, {discount:.0%} off, {pricing}")
                    rounds = play(given.use, terms)
                    leave.append(gone(rounds))
                    rows.append([given.name, f"{load:g}", f"{discount:.0%}", pricing, *_row(terms, rounds)])
    stable = [row for given in sets for row in _stable(given)]
    many = sum(share > 0.8 for share in leave)
    risen = sum(row[-3].endswith("↑") for row in rows)
    answer = (
        f"In {many} of {len(leave)} cases more than 80 % of the users leave, as the source reports for this "
        "tolerance.",
        f"In {risen} cases a unit-hour costs the remaining users more in the last round than in the first.",
        "Everybody stays if there are enough machines to keep the waits short and the discount pays for the "
        "idle ones; the second table shows these cases.",
    )
    header = ("data", "load", "discount", "price", "machines", "users who leave", "rounds", "impatient")
    parts = [
        "## H10: who leaves",
        table((*header, "unit-hour, first → last", "wait, first → last (h)", "use, last"), rows, left=4),
        "A unit-hour costs 1 on demand. Impatient: number of leaving users who waited too long; the other "
        "leaving users would pay less elsewhere. ↑: the price rose. The wait is the mean over users. After "
        "the last round nobody leaves, or nobody is left.",
        "## Where everybody stays",
        table(("data", "fewest machines", "load", "least discount, usage", "least discount, flat"), stable),
        "The fewest machines are those with which no user's mean wait is above the tolerance. With more, "
        "waits are shorter and the bill is larger, so the least discount rises with them.",
    ]
    conditions = (
        f"Tolerance: a mean wait of {TOLERANCE:g} times the mean run time of the user's own jobs. Waiting "
        "has no price. Load: the use of all users over the reserved machine time from the first "
        "submission until the last job would end if none waited. Jobs run first come, first served, without "
        "backfilling. H10 is from an abstract, and all rules here are readings of it.",
        "Philly: 40,222 jobs of 11 virtual clusters, which are the users; machines have 8 GPUs, and a job "
        "may use any of them. SURF: 4,407 jobs of 16 cores in a week on machines of 16 cores; the data name "
        f"no users, so its jobs are dealt to {_SURF_USERS} users, the k-th with weight 1/k, with three "
        "seeds. "
        "Sources: philly-traces (CC-BY-4.0), SURF by way of OpenDC (MIT).",
    )
    return harness.page("sharing", "Shared clusters: who stays", answer, parts, conditions)


def gone(rounds: Sequence[Round]) -> float:
    """Return the share of users who leave in the end."""
    left = rounds[-1].members & ~rounds[-1].leave
    return 1 - float(left.sum()) / left.size


def _row(terms: Terms, rounds: Sequence[Round]) -> list[str]:
    """Return the last seven cells of a case."""
    first, last = rounds[0], rounds[-1]
    left = sum(int(one.leave.sum()) for one in rounds)
    impatient = sum(int(one.impatient.sum()) for one in rounds)
    waits = [_wait_h(one) for one in (first, last)]
    rises = " ↑" if last.price_usd_h > first.price_usd_h * (1 + 1e-9) else ""
    return [
        str(terms.machines),
        f"{left} of {first.members.size}",
        str(len(rounds)),
        f"{impatient}",
        f"{first.price_usd_h:.2f} → {last.price_usd_h:.2f}{rises}",
        " → ".join(dash(wait, ".1f") for wait in waits),
        f"{last.utilisation:.2f}",
    ]


def _wait_h(one: Round) -> float:
    return float(one.wait_s[one.members].mean()) / 3600


def _stable(given: Data) -> Iterator[list[str]]:
    machines = least_machines(given.use, given.terms(1, 0.0, "usage"))
    if machines is None:
        return
    terms = given.terms(machines, 0.0, "usage")
    reserved = machines * given.units * given.horizon_s / 3600
    discounts = [least_discount(given.use, replace(terms, pricing=pricing)) for pricing in _PRICINGS]
    text = [
        "none is enough" if least >= 1 else f"{least:.1%}" if least > 0 else "none is needed"
        for least in discounts
    ]
    yield [given.name, str(machines), f"{given.use.hours().sum() / reserved:.2f}", *text]
