"""How long noticing, choosing and forwarding anew take at each end of a dead link, under each scheme.

For: the random steps of many faults at once, as arrays. Not for: which flows a fault hits and when a path
works again (failover.py), nor the same steps as events in time (control_plane.py).
Source: SPEC §2; TESTBED's trials for the BGP daemon's hold at each hop; Linux bonding (miimon, LACP).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.fabric import BfdTimers, Direction
from twin.fabric.bfd import detection_s
from twin.fabric.delays import draw
from twin.fabric.model import Bond, ControlPlane, Flags, Floats, Reroute, Scheme

OVERLAYS = (Scheme.THORN_SOFTWARE, Scheme.THORN)
_LOST_LACPDUS = 3


@dataclass(frozen=True, slots=True)
class Manner:
    """How faults are met: all that a scheme's steps depend on."""

    scheme: Scheme
    control: ControlPlane
    timers: BfdTimers
    bond: Bond
    reroute: Reroute


def noticed_s(
    manner: Manner,
    silent: Flags,
    random: np.random.Generator,
    *,
    out: Flags,
    into: Flags,
    delay_s: float = 0.0,
) -> Floats:
    """float64[n, 2], from each of n faults until the end that sends OUT (the host) and IN (the ToR) knows.

    out, into: bool[n], the host's directions that are lost; delay_s: one way over the link.
    """
    count, scheme = len(silent), manner.scheme
    if scheme is Scheme.NONE:
        return np.full((count, 2), np.inf)
    if scheme is Scheme.REROUTE:
        return np.full((count, 2), manner.reroute.timeout_s)
    if scheme is Scheme.BOND:
        heard_s = random.uniform(0.0, manner.bond.lacp_s, (count, 2))
        quiet = _LOST_LACPDUS * manner.bond.lacp_s - heard_s
        quiet = _told_by_the_other(quiet, out, into, delay_s)
    else:
        quiet = detection_s(manner.timers, count, random)
        quiet = _told_by_the_other(quiet, out, into, delay_s)
    carrier = np.stack([draw(manner.control.carrier_s, count, random) for _ in Direction], axis=1)
    if scheme is Scheme.BOND:
        # The driver looks at its carrier every miimon, wherever in that time the fault fell.
        carrier[:, Direction.OUT] = random.uniform(0.0, manner.bond.miimon_s, count)
    return np.where(silent[:, None], quiet, carrier)


def acted_s(manner: Manner, known_s: Floats, random: np.random.Generator) -> Floats:
    """float64[n], when the fast path of a host that knows of its own dead link at known_s turns away from it;
    inf where hosts have none."""
    if manner.control.fast is None or manner.scheme not in OVERLAYS:
        return np.full(len(known_s), np.inf)
    return known_s + draw(manner.control.fast.late_s, len(known_s), random)


def host_steps_s(
    manner: Manner, known_s: Floats, fast_s: Floats, silent: Flags, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """(selected, installed), float64[n], at a host that knows of its own dead link at known_s, and whose fast
    path acts at fast_s.

    Without a carrier the kernel itself stops using a next hop (ignore_routes_with_linkdown), a bond its
    device: nobody waits for the routing daemon.
    """
    if manner.scheme is Scheme.REROUTE:
        return known_s, known_s + manner.reroute.rebuild_s
    if manner.scheme is Scheme.BOND:
        return known_s, known_s
    selected = known_s + np.where(silent, manner.control.hold_s, 0.0)
    installed = selected + np.where(silent, draw(manner.control.route_s, len(known_s), random), 0.0)
    return _sooner(manner, (selected, installed), fast_s, random)


def far_steps_s(
    manner: Manner, known_s: Floats, fast_s: Floats, local_repair: bool, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """(selected, installed), float64[n], for traffic towards a dead link that its ToR knows of at known_s,
    and of which its host's fast path tells the sender from fast_s on (inf: it cannot).

    local_repair: the switch before the dead link has another path (spines) and takes it; otherwise it
    withdraws the route, and each sending host selects anew after a message and a hold of its own.
    """
    control = manner.control
    if manner.scheme is Scheme.REROUTE:
        return known_s, known_s + manner.reroute.rebuild_s
    if manner.scheme is Scheme.BOND:
        # MLAG: the switch turns to its peer, which has the same host, as soon as it knows.
        return known_s, known_s + draw(control.route_s, len(known_s), random)
    selected = known_s + control.hold_s
    if not local_repair:
        selected = selected + draw(control.message_s, len(known_s), random) + control.hold_s
    installed = selected + draw(control.route_s, len(known_s), random)
    if control.fast is not None:
        fast_s = fast_s + draw(control.fast.told_s, len(known_s), random)
    return _sooner(manner, (selected, installed), fast_s, random)


def _sooner(
    manner: Manner, steps: tuple[Floats, Floats], fast_s: Floats, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """BGP's steps, or the fast path's from fast_s on where that is sooner."""
    if manner.control.fast is None:
        return steps
    selected, installed = steps
    fast = fast_s + draw(manner.control.fast.route_s, len(fast_s), random)
    sooner = fast < installed
    return np.where(sooner, fast_s, selected), np.where(sooner, fast, installed)


def again_s(manner: Manner, count: int, random: np.random.Generator) -> Floats:
    """float64[count], from a link's repair until traffic uses it, where its loss had been noticed."""
    if manner.scheme in OVERLAYS:
        return draw(manner.control.session_up_s, count, random)
    if manner.scheme is Scheme.BOND:
        return np.asarray(random.uniform(0.0, manner.bond.lacp_s, count), np.float64)
    return np.zeros(count)


def _told_by_the_other(quiet: Floats, out: Flags, into: Flags, delay_s: float) -> Floats:
    """An end that still hears the other learns of the fault from it, one delay after that one knows."""
    told = quiet.copy()
    hears_all = out & ~into
    told[hears_all, Direction.OUT] = quiet[hears_all, Direction.IN] + delay_s
    heard_by_all = into & ~out
    told[heard_by_all, Direction.IN] = quiet[heard_by_all, Direction.OUT] + delay_s
    return told
