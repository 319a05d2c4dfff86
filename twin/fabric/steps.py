"""The times of detection, path selection and installation at each end of a dead link, under each scheme.

For: the random steps of many faults at once, as arrays. Not for: which flows a fault hits and when a path
works again (failover.py), nor the same steps as events in time (control_plane.py).
Source: the THORN-ML chapter (chapter 3 of a doctoral thesis); measurements on the testbed for the BGP
daemon's hold at each hop; Linux bonding (miimon, LACP).
"""

from __future__ import annotations

import numpy as np

from control.fabric import Direction
from twin.fabric.bfd import detection_s
from twin.fabric.model import Flags, Floats, Handling, Scheme
from twin.fabric.sessions import LOST_LACPDUS

OVERLAYS = (Scheme.THORN_SOFTWARE, Scheme.THORN)
"""Schemes in which hosts run the overlay."""

BY_NCCL = (Scheme.NCCL_FAILOVER, Scheme.NCCL_RECOVERY)
"""Schemes in which only NCCL reacts to faults, and the network does nothing."""


def noticed_s(
    handling: Handling,
    silent: Flags,
    random: np.random.Generator,
    *,
    out: Flags,
    into: Flags,
    delay_s: float = 0.0,
) -> Floats:
    """Return float64[n, 2]: time from each fault until the end that sends OUT (the host) and IN (the ToR)
    knows of it, s.

    out, into: bool[n], whether the host's outgoing and incoming direction is lost. delay_s: one-way delay of
    the link, s.
    """
    count, scheme = len(silent), handling.scheme
    if scheme is Scheme.NONE or scheme in BY_NCCL:
        return np.full((count, 2), np.inf)
    if scheme is Scheme.REROUTE:
        return np.full((count, 2), handling.reroute.timeout_s)
    if scheme is Scheme.BOND:
        heard_s = random.uniform(0.0, handling.bond.lacp_s, (count, 2))
        quiet = LOST_LACPDUS * handling.bond.lacp_s - heard_s
    else:
        quiet = detection_s(handling.timers, count, random)
    quiet = _told_by_the_other(quiet, out, into, delay_s)
    carrier = np.stack([handling.control.carrier_s.draw(count, random) for _ in Direction], axis=1)
    if scheme is Scheme.BOND:
        # The driver checks its carrier every miimon. The fault comes at a random time between two checks.
        carrier[:, Direction.OUT] = random.uniform(0.0, handling.bond.miimon_s, count)
    return np.where(silent[:, None], quiet, carrier)


def acted_s(handling: Handling, known_s: Floats, random: np.random.Generator) -> Floats:
    """Return float64[n]: when the fast path leaves a dead link of which its host knows at known_s, s.

    It is inf if hosts have no fast path.
    """
    if handling.control.fast is None or handling.scheme not in OVERLAYS:
        return np.full(len(known_s), np.inf)
    return known_s + handling.control.fast.late_s.draw(len(known_s), random)


def host_steps_s(
    handling: Handling, known_s: Floats, fast_s: Floats, silent: Flags, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return (selected, installed), float64[n] each, s, at a host that knows of its own dead link at known_s
    and whose fast path acts at fast_s.

    After a loss of carrier nobody waits for the routing daemon. The kernel stops using a next hop by itself
    (ignore_routes_with_linkdown), and so does a bond with its device.
    """
    if handling.scheme is Scheme.REROUTE:
        return known_s, known_s + handling.reroute.rebuild_s
    if handling.scheme is Scheme.BOND:
        return known_s, known_s
    selected = known_s + np.where(silent, handling.control.hold_s, 0.0)
    installed = selected + np.where(silent, handling.control.route_s.draw(len(known_s), random), 0.0)
    return _sooner(handling, (selected, installed), fast_s, random)


def far_steps_s(
    handling: Handling, known_s: Floats, fast_s: Floats, local_repair: Flags, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return (selected, installed), float64[n] each, s, for traffic towards a dead link of which the switch
    before it knows at known_s.

    fast_s: float64[n], time at which the fast path of the host at the link reports, s (inf: there is none).
    local_repair: bool[n], whether that switch has another path and takes it, as a spine before a dead ToR.
    Otherwise it withdraws the route, and the machines before it (hosts of the rack, spines) select another
    path after a message and a hold of their own. A ToR has no other path to its own host: spines that prefer
    its path offer it none, and the others return its packets to it until they know.
    """
    control = handling.control
    if handling.scheme is Scheme.REROUTE:
        return known_s, known_s + handling.reroute.rebuild_s
    if handling.scheme is Scheme.BOND:
        # With MLAG, the switch sends by its peer, which has a link to the same host, as soon as it knows.
        return known_s, known_s + control.route_s.draw(len(known_s), random)
    selected = known_s + control.hold_s
    message_s = control.message_s.draw(len(known_s), random)
    selected = np.where(local_repair, selected, selected + message_s + control.hold_s)
    installed = selected + control.route_s.draw(len(known_s), random)
    if control.fast is not None:
        fast_s = fast_s + control.fast.told_s.draw(len(known_s), random)
    return _sooner(handling, (selected, installed), fast_s, random)


def _sooner(
    handling: Handling, steps: tuple[Floats, Floats], fast_s: Floats, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return BGP's steps, or those of the fast path from fast_s on where it is faster."""
    if handling.control.fast is None:
        return steps
    selected, installed = steps
    fast = fast_s + handling.control.fast.route_s.draw(len(fast_s), random)
    sooner = fast < installed
    return np.where(sooner, fast_s, selected), np.where(sooner, fast, installed)


def again_s(handling: Handling, count: int, random: np.random.Generator) -> Floats:
    """Return float64[count]: time from the repair of a link known to be dead until traffic uses it again,
    s."""
    if handling.scheme in OVERLAYS:
        return handling.control.session_up_s.draw(count, random)
    if handling.scheme is Scheme.BOND:
        return np.asarray(random.uniform(0.0, handling.bond.lacp_s, count), np.float64)
    return np.zeros(count)


def _told_by_the_other(quiet: Floats, out: Flags, into: Flags, delay_s: float) -> Floats:
    """Return the time at which each end knows, s, float64[n, 2]. An end that still hears the other end learns
    of the fault from it, one delay after the other end knows."""
    told = quiet.copy()
    hears_all = out & ~into
    told[hears_all, Direction.OUT] = quiet[hears_all, Direction.IN] + delay_s
    heard_by_all = into & ~out
    told[heard_by_all, Direction.IN] = quiet[heard_by_all, Direction.OUT] + delay_s
    return told
