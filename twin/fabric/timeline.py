"""The timeline of one fault: what happens where, from the fault to the last of its consequences.

For: the explorer and reports. Not for: what a transfer saw meanwhile (rdma.py).
"""

from __future__ import annotations

import numpy as np
import simpy

from control.fabric import BfdTimers, PlannedFault
from twin.fabric.bfd import SLOW_INTERVAL_S, check_timers
from twin.fabric.control_plane import control_plane
from twin.fabric.journal import Timeline
from twin.fabric.model import Bond, ControlPlane, Delay, Reroute, Scheme, Topology
from twin.fabric.topology import check

_SLOWEST = 3
"""A lognormal delay stays below median · (p95 / median)³ in all but one of a million cases."""


def timeline(
    topology: Topology,
    fault: PlannedFault,
    scheme: Scheme,
    control: ControlPlane,
    timers: BfdTimers,
    seed: np.random.SeedSequence,
    *,
    bond: Bond = Bond(),  # noqa: B008  (frozen)
    reroute: Reroute = Reroute(),  # noqa: B008  (frozen)
    until_s: float | None = None,
) -> Timeline:
    """What follows `fault`, up to until_s (None: until all is as it will stay).

    Before it the sessions run as they do: let it begin some intervals after 0 s. Raises ScenarioError as
    topology.check, bfd.check_timers and faults.check_faults.
    """
    check(topology, scheme)
    check_timers(timers)
    env = simpy.Environment()
    journal = control_plane(env, topology, fault, scheme, control, timers, seed, bond=bond, reroute=reroute)
    if until_s is None:
        until_s = fault.at_s + _settled_s(fault, scheme, control, timers, bond, reroute)
    env.run(until=until_s)
    return journal.timeline()


def _settled_s(
    fault: PlannedFault,
    scheme: Scheme,
    control: ControlPlane,
    timers: BfdTimers,
    bond: Bond,
    reroute: Reroute,
) -> float:
    met_s = {
        Scheme.NONE: 0.0,
        Scheme.BOND: max(4 * bond.lacp_s, bond.miimon_s) + _slowest_s(control.route_s),
        Scheme.REROUTE: reroute.timeout_s + reroute.rebuild_s,
    }.get(scheme)
    if met_s is None:
        steps = (control.carrier_s, control.message_s, control.route_s, control.rule_s)
        met_s = timers.detection_s + 2 * control.hold_s + sum(_slowest_s(each) for each in steps)
    if np.isinf(fault.down_s):
        return met_s + SLOW_INTERVAL_S
    again_s = _slowest_s(control.session_up_s) + _slowest_s(control.rule_s) + SLOW_INTERVAL_S
    return max(met_s, fault.down_s + again_s)


def _slowest_s(delay: Delay) -> float:
    return delay.median_s * (delay.p95_s / delay.median_s) ** _SLOWEST if delay.median_s else 0.0
