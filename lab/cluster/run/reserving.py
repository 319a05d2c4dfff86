"""Which users of a job log stay in a cluster that they reserve together.

For: `twinbed reserve`. Not for: the rules (control.shared_cluster), nor reading logs (traces.readers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from control.jobs import Whole
from control.shared_cluster import Round, Terms, Use, least_discount, least_machines, play
from traces.readers.job_logs import FORMATS, JobLog
from twinbed import ScenarioError, TraceError

STAYS, IMPATIENT, CHEATED, WAITING, TOO_LARGE = (
    "stays",
    "waits too long",
    "cheaper on demand",
    "cheaper on demand, as waits cost",
    "a job is larger than the cluster",
)
"""What a user does, and why."""


@dataclass(frozen=True, slots=True)
class User:
    """One user in the cluster that all users share.

    jobs: number of jobs. unit_h: use, GPU-hours, with jobs that never fit.
    wait_h: mean wait, h; None if a job never fits. run_h: mean run time, h.
    paid_usd, alone_usd: payment in the cluster, and the price of the same use on demand, US$.
    leaves: round in which the user leaves, from 1; None if the user stays. why: one of the reasons above.
    """

    user: str
    jobs: int
    unit_h: float
    wait_h: float | None
    run_h: float
    paid_usd: float
    alone_usd: float
    leaves: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Reserved:
    """The answer for a log.

    users: all users, by use. rounds: as in control.shared_cluster.
    machines: fewest machines with which no user waits too long; None if there is no such number.
    discount, discount_then: smallest discount, a share, with which no user pays less elsewhere: with the
    asked number of machines, and with `machines`; above 1 if there is none.
    """

    users: Sequence[User]
    rounds: Sequence[Round]
    machines: int | None
    discount: float
    discount_then: float


def read(path: Path, form: str) -> JobLog:
    """Return the jobs of a log. Raises TraceError if the log names no user, ScenarioError for an unknown
    format."""
    if form not in FORMATS:
        raise ScenarioError(f"--log-format {form}: expected one of {', '.join(FORMATS)}")
    log = FORMATS[form](path)
    if not any(log.queue):
        raise TraceError(f"{path}: no job has a queue, and the queues are the users; add a column of queues")
    return log


def hours(log: JobLog) -> float:
    """Return the time from the first submission until the last job would end if no job waited, h."""
    return float((log.submit_s + log.duration_s).max()) / 3600


def use_of(log: JobLog, user: Whole) -> Use:
    """Return the jobs of a log by user. user: number of each job's user, from 0."""
    return Use(user.astype(np.int64), log.submit_s, log.duration_s, log.gpus)


def answer(log: JobLog, terms: Terms) -> Reserved:
    """Return who stays under these terms, and the terms under which all stay."""
    names, user = np.unique([name or "(no queue)" for name in log.queue], return_inverse=True)
    use = use_of(log, user)
    rounds = play(use, terms)
    first = rounds[0]
    jobs, used_h = np.bincount(user), use.hours()
    run_h = np.bincount(user, log.duration_s) / jobs / 3600
    leaves = [np.flatnonzero([bool(one.leave[who]) for one in rounds]) for who in range(use.users)]
    users = [
        User(
            str(names[who]), int(jobs[who]), float(used_h[who]),
            float(first.wait_s[who]) / 3600 if np.isfinite(first.wait_s[who]) else None, float(run_h[who]),
            float(first.paid_usd[who]), float(first.alone_usd[who]),
            int(leaves[who][0]) + 1 if leaves[who].size else None,
            _why(rounds[int(leaves[who][0])], who) if leaves[who].size else STAYS,
        )
        for who in np.argsort(-used_h, kind="stable").tolist()
    ]  # fmt: skip
    fewest = least_machines(use, terms)
    then = least_discount(use, replace(terms, machines=fewest)) if fewest is not None else np.inf
    return Reserved(users, rounds, fewest, least_discount(use, terms), float(then))


def _why(left: Round, who: int) -> str:
    if not np.isfinite(left.wait_s[who]):
        return TOO_LARGE
    if left.impatient[who]:
        return IMPATIENT
    return CHEATED if left.paid_usd[who] > left.alone_usd[who] else WAITING
