"""The timeline of one fault: the events at each machine, until all consequences are over.

For: the explorer and reports, with the retransmissions of two queue pairs over the lost path. Not for: many
faults (failover.py), nor series of sends (rdma.py).
"""

from __future__ import annotations

import numpy as np
import simpy

from control.fabric import PlannedFault
from twin.fabric.bfd import SLOW_INTERVAL_S, check_timers
from twin.fabric.control_plane import control_plane
from twin.fabric.journal import NO_CAUSE, Step, Timeline
from twin.fabric.model import Delay, Handling, QueuePair, Scheme, Topology
from twin.fabric.rdma import Link, retries_s, stall_s
from twin.fabric.steps import BY_NCCL
from twin.fabric.topology import check
from twinbed.text import counted

_SLOWEST = 3
"""A lognormal delay stays below median · (p95 / median)³ in all but one of a million cases."""


def timeline(
    topology: Topology,
    fault: PlannedFault,
    handling: Handling,
    seed: np.random.SeedSequence,
) -> Timeline:
    """Return the events after `fault` until nothing changes any more.

    Sessions run before the fault, so let it begin some intervals after 0 s. Raises ScenarioError as
    topology.check, bfd.check_timers and faults.check_faults do.
    """
    check(topology, handling.scheme)
    check_timers(handling.timers)
    env = simpy.Environment()
    journal = control_plane(env, topology, fault, handling, seed)
    env.run(until=fault.at_s + _settled_s(fault, handling))
    return journal.timeline()


def _settled_s(fault: PlannedFault, handling: Handling) -> float:
    control, bond, reroute = handling.control, handling.bond, handling.reroute
    met_s = {
        **dict.fromkeys((Scheme.NONE, *BY_NCCL), 0.0),
        Scheme.BOND: max(4 * bond.lacp_s, bond.miimon_s) + _slowest_s(control.route_s),
        Scheme.REROUTE: reroute.timeout_s + reroute.rebuild_s,
    }.get(handling.scheme)
    if met_s is None:
        steps = (control.carrier_s, control.message_s, control.route_s, control.rule_s)
        met_s = handling.timers.detection_s + 2 * control.hold_s + sum(_slowest_s(delay) for delay in steps)
    if np.isinf(fault.down_s):
        return met_s + SLOW_INTERVAL_S
    again_s = _slowest_s(control.session_up_s) + _slowest_s(control.rule_s) + SLOW_INTERVAL_S
    return max(met_s, fault.down_s + again_s)


def _slowest_s(delay: Delay) -> float:
    return delay.median_s * (delay.p95_s / delay.median_s) ** _SLOWEST if delay.median_s else 0.0


def with_queue_pairs(story: Timeline, fault: PlannedFault, qp: QueuePair, *, rate_bps: float) -> Timeline:
    """Add rows for two busy queue pairs to `story`, one in each direction between the fault's host and
    another host.

    A path is lost from the fault until its sender's kernel forwards by another (Step.INSTALLED), or until the
    repair. Raises ScenarioError as rdma.stall_s does.
    """
    link = Link(rate_bps)
    here = f"host {fault.host}"
    there = f"host {0 if fault.host else 1}"
    at_s, where, step = list(story.at_s), list(story.where), list(story.step)
    what, cause = list(story.what), list(story.cause)
    for sender, receiver in ((here, there), (there, here)):
        gap_s, met = _lost_for(story, fault, sender)
        resumed_s = float(stall_s(qp, gap_s, link))
        sends_s = retries_s(qp, gap_s, link)
        for number, after_s in enumerate(sends_s.tolist(), start=1):
            arrives = after_s == resumed_s
            at_s.append(fault.at_s + after_s)
            where.append(f"{sender} → {receiver}")
            step.append(Step.RESUMED if arrives else Step.RETRANSMITTED)
            what.append(f"retry {number}" + ("; it arrives" if arrives else ""))
            cause.append(met if arrives else 0)
        if not np.isfinite(resumed_s):
            at_s.append(fault.at_s + qp.ladder.error_s)
            where.append(f"{sender} → {receiver}")
            step.append(Step.FAILED)
            what.append(f"queue pair in error after {counted(len(sends_s), 'retry', 'retries')}")
            cause.append(0)
    return _in_order(at_s, where, step, what, cause)


def _lost_for(story: Timeline, fault: PlannedFault, sender: str) -> tuple[float, int]:
    """Return how long the sender's path is lost, s, and the row that ends this (0, the fault, if none)."""
    rows = enumerate(zip(story.where, story.step, story.at_s.tolist(), strict=True))
    for row, (where, step, at_s) in rows:
        if step is Step.REPAIRED or (step is Step.INSTALLED and where in (sender, "job")):
            return at_s - fault.at_s, row
    return fault.down_s, 0


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
