"""What a fault means to queue pairs over the lost path: each time they send anew, and how it ends.

For: the explorer's timeline. Not for: series of sends (rdma.py), or many faults (failover.py): here are two
busy queue pairs, one in each direction between the host at the fault and another one.
"""

from __future__ import annotations

import numpy as np

from control.fabric import PlannedFault
from twin.fabric.journal import NO_CAUSE, Step, Timeline
from twin.fabric.model import QueuePair
from twin.fabric.rdma import retries_s, stall_s


def with_queue_pairs(story: Timeline, fault: PlannedFault, qp: QueuePair, *, rate_bps: float) -> Timeline:
    """`story` of a fault at one host, with rows for the queue pair out of that host and the one towards it.

    A path is lost from the fault until its sender's kernel forwards anew (Step.INSTALLED), or until the
    repair. Raises ScenarioError as rdma.stall_s.
    """
    here = f"host {fault.host}"
    there = f"host {0 if fault.host else 1}"
    at_s, where, step = list(story.at_s), list(story.where), list(story.step)
    what, cause = list(story.what), list(story.cause)
    for sender, receiver in ((here, there), (there, here)):
        gap_s, met = _lost_for(story, fault, sender)
        resumed_s = float(stall_s(qp, gap_s, rate_bps=rate_bps))
        sends_s = retries_s(qp, gap_s, rate_bps=rate_bps)
        for number, after_s in enumerate(sends_s.tolist(), start=1):
            arrives = after_s == resumed_s
            at_s.append(fault.at_s + after_s)
            where.append(f"{sender} → {receiver}")
            step.append(Step.RESUMED if arrives else Step.RETRANSMITTED)
            what.append(f"sent for the {_ordinal(number)} time again" + ("; it arrives" if arrives else ""))
            cause.append(met if arrives else 0)
        if not np.isfinite(resumed_s):
            at_s.append(fault.at_s + float(sends_s[-1]) + qp.ack_timeout_s)
            where.append(f"{sender} → {receiver}")
            step.append(Step.FAILED)
            what.append(f"queue pair in error after {qp.retry_count} retries")
            cause.append(0)
    return _in_order(at_s, where, step, what, cause)


def _lost_for(story: Timeline, fault: PlannedFault, sender: str) -> tuple[float, int]:
    """Seconds, and the row that ends it (the fault's own where nothing does)."""
    rows = enumerate(zip(story.where, story.step, story.at_s.tolist(), strict=True))
    for row, (where, step, at_s) in rows:
        if step is Step.REPAIRED or (step is Step.INSTALLED and where in (sender, "job")):
            return at_s - fault.at_s, row
    return fault.down_s, 0


def _ordinal(number: int) -> str:
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")


def _in_order(
    at_s: list[float], where: list[str], step: list[Step], what: list[str], cause: list[int]
) -> Timeline:
    order = np.argsort(at_s, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return Timeline(
        np.array(at_s)[order],
        tuple(where[row] for row in order),
        tuple(step[row] for row in order),
        tuple(what[row] for row in order),
        np.array([NO_CAUSE if cause[row] == NO_CAUSE else place[cause[row]] for row in order], np.int64),
    )
