"""What faults do to flows: which paths lose packets, and until when.

For: outages of thousands of faults on a topology under a scheme, and gaps of a single edge fault as a
distribution. Not for: the steps' lengths (steps.py), the same as events in time (control_plane.py), nor what
a gap does to a transfer (rdma.py).

A path is the source's uplink, the destination's, and a ToR (or two and a spine) between; flows use the
shortest paths. A dead link's flows are lost until the sender's side forwards them by another path that works,
or the link comes back before that. A link that was found dead is used again session_up_s after its repair;
faults of a link that nobody uses hurt nobody. A link that comes back just before it is given up, while there
is no other, counts as lost until its session is up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from control.fabric import BfdTimers, Direction, FaultKind, PlannedFault
from twin.containers.compiled import kernel
from twin.fabric.bfd import check_timers
from twin.fabric.faults import DeadLinks, dead_links
from twin.fabric.model import (
    NO_SPINE,
    Bond,
    ControlPlane,
    Flags,
    Floats,
    Outages,
    Reroute,
    Scheme,
    Topology,
    Whole,
)
from twin.fabric.steps import Manner, acted_s, again_s, far_steps_s, host_steps_s, noticed_s
from twin.fabric.topology import all_pairs, check
from twinbed import ScenarioError

_ROWS_AT_MOST = 1 << 24
"""Rows of outages, somewhat above a GiB of them: more is a mistake, and named as one."""


def failover(
    topology: Topology,
    faults: list[PlannedFault],
    scheme: Scheme,
    control: ControlPlane,
    timers: BfdTimers,
    seed: np.random.SeedSequence,
    *,
    bond: Bond = Bond(),  # noqa: B008  (frozen)
    reroute: Reroute = Reroute(),  # noqa: B008  (frozen)
    pairs: Whole | None = None,
) -> Outages:
    """The outages of `faults` among `pairs` (int64[m, 2], source and destination; None: all), by fault.

    Raises ScenarioError as topology.check, faults.check_faults and bfd.check_timers, and for pairs of hosts
    that do not exist.
    """
    check(topology, scheme)
    check_timers(timers)
    links = dead_links(topology, faults)
    between = _checked(topology, all_pairs(topology) if pairs is None else np.asarray(pairs, np.int64))
    manner = Manner(scheme, control, timers, bond, reroute)
    random = np.random.default_rng(seed)
    silent = np.array([fault.silent for fault in faults], np.bool_)[links.fault]
    known = noticed_s(manner, silent, random, out=links.out, into=links.into, delay_s=topology.delay_s)
    known = _noticed_once(known, links, faults)
    lasted = links.repair_s - links.begin_s
    found = known.min(axis=1) < lasted
    usable_s = links.repair_s + np.where(found, again_s(manner, len(found), random), 0.0)
    unused = _Unused(topology, links.host * topology.uplinks + links.uplink, links.begin_s, usable_s)
    rows = _rows(topology, links, unused.fresh, faults, between, scheme)
    return _outages(topology, links, manner, known, silent, unused, rows, between, random)


def gap_samples(
    scheme: Scheme,
    control: ControlPlane,
    timers: BfdTimers,
    silent: bool,
    n: int,
    seed: np.random.SeedSequence,
    *,
    bond: Bond = Bond(),  # noqa: B008  (frozen)
    reroute: Reroute = Reroute(),  # noqa: B008  (frozen)
    down_s: float = np.inf,
    spines: bool = False,
) -> Floats:
    """float64[n, 2], how long traffic OUT of and IN to a host is lost by n separate faults of a link.

    down_s: how long each fault lasts (inf: Scheme.NONE never ends); the host has another uplink that works.
    spines: the ToR repairs locally. One value IN is one sender's. Raises ScenarioError as check_timers.
    """
    check_timers(timers)
    manner = Manner(scheme, control, timers, bond, reroute)
    random = np.random.default_rng(seed)
    both, quiet = np.ones(n, np.bool_), np.full(n, silent)
    known = noticed_s(manner, quiet, random, out=both, into=both)
    fast_s = acted_s(manner, known[:, Direction.OUT], random)
    _, out_s = host_steps_s(manner, known[:, Direction.OUT], fast_s, quiet, random)
    _, in_s = far_steps_s(manner, known[:, Direction.IN], fast_s, spines, random)
    installed = np.stack([out_s, in_s], axis=1)
    known[:, Direction.IN] = np.minimum(known[:, Direction.IN], fast_s)
    return np.where(known < down_s, _ended(scheme, installed, down_s), down_s)


def _ended(scheme: Scheme, installed: Floats, repair: Floats | float) -> Floats:
    """A new communicator is waited for though the old path is back; a route is not."""
    return installed if scheme is Scheme.REROUTE else np.minimum(installed, repair)


def _noticed_once(known: Floats, links: DeadLinks, faults: list[PlannedFault]) -> Floats:
    """What lies behind a dead ToR (a spine) notices once, not once per host."""
    tor = np.array([fault.kind is FaultKind.TOR for fault in faults], np.bool_)[links.fault]
    _, first, index = np.unique(links.fault, return_index=True, return_inverse=True)
    shared = known.copy()
    shared[tor, Direction.IN] = known[first[index], Direction.IN][tor]
    return shared


def _checked(topology: Topology, pairs: Whole) -> Whole:
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ScenarioError(f"failover: pairs: shape {pairs.shape}: give a source and a destination per row")
    outside = (pairs < 0) | (pairs >= topology.hosts)
    if outside.any() or (pairs[:, 0] == pairs[:, 1]).any():
        raise ScenarioError(f"failover: pairs: two different hosts of 0 to {topology.hosts - 1} in each row")
    return pairs


class _Unused:
    """When links are not used: merged intervals per link, and which faults met a link in use.

    fresh: bool[n], per dead link; first: int64[links + 1]; begin_s, end_s: float64[intervals].
    """

    def __init__(self, topology: Topology, link: Whole, begin_s: Floats, usable_s: Floats) -> None:
        order = np.lexsort((begin_s, link))
        count, fresh, begin, end, of = _merge(link[order], begin_s[order], usable_s[order])
        self.fresh: Flags = np.empty(len(link), np.bool_)
        self.fresh[order] = fresh
        self.begin_s, self.end_s = begin[:count], end[:count]
        self.first: Whole = np.searchsorted(of[:count], np.arange(topology.hosts * topology.uplinks + 1))


def _rows(
    topology: Topology,
    links: DeadLinks,
    fresh: Flags,
    faults: list[PlannedFault],
    pairs: Whole,
    scheme: Scheme,
) -> tuple[Whole, ...]:
    """(link, pair, first uplink, last uplink, direction), int64[rows] each."""
    dead_tor = np.array([fault.tor if fault.kind is FaultKind.TOR else -1 for fault in faults], np.int64)
    hosts = np.arange(topology.hosts + 1)
    sources = np.argsort(pairs[:, 0], kind="stable")
    destinations = np.argsort(pairs[:, 1], kind="stable")
    arguments = (
        topology.tor_of,
        topology.spines > NO_SPINE,
        scheme is Scheme.NONE,
        links.host,
        links.uplink,
        links.out & fresh,
        links.into & fresh,
        dead_tor[links.fault],
        pairs,
        sources,
        np.searchsorted(pairs[sources, 0], hosts),
        destinations,
        np.searchsorted(pairs[destinations, 1], hosts),
    )
    count = _emit(*arguments, np.empty((0, 5), np.int64))
    if count > _ROWS_AT_MOST:
        raise ScenarioError(f"failover: {count} outages among {len(pairs)} pairs: give only pairs that talk")
    rows = np.empty((count, 5), np.int64)
    _emit(*arguments, rows)
    return tuple(np.ascontiguousarray(rows[:, column]) for column in range(5))


def _outages(
    topology: Topology,
    links: DeadLinks,
    manner: Manner,
    known: Floats,
    silent: Flags,
    unused: _Unused,
    rows: tuple[Whole, ...],
    pairs: Whole,
    random: np.random.Generator,
) -> Outages:
    link, pair, first, last, direction = rows
    begin_s, repair_s = links.begin_s[link], links.repair_s[link]
    # A host changes all its routes at once; hosts far away each for themselves.
    fast_s = acted_s(manner, known[:, Direction.OUT], random)
    host_selected, host_installed = host_steps_s(manner, known[:, Direction.OUT], fast_s, silent, random)
    far = direction == Direction.IN
    selected, installed = host_selected[link], host_installed[link]
    # What a host tells helps those who have a link to the same switch.
    mine = topology.tor_of[pairs[pair[far], 0], first[far]] == topology.tor_of[pairs[pair[far], 1], last[far]]
    told_s = np.where(mine, fast_s[link[far]], np.inf)
    selected[far], installed[far] = far_steps_s(
        manner, known[link[far], Direction.IN], told_s, topology.spines > NO_SPINE, random
    )
    known_s = known[link, direction]
    known_s[far] = np.minimum(known_s[far], told_s)
    detected_s = begin_s + known_s
    installed_s = begin_s + installed
    lag = np.subtract(installed, selected, where=np.isfinite(installed), out=np.zeros(len(link)))
    noticed = detected_s < repair_s
    # An MLAG pair has a link between its switches.
    crosses = topology.spines > NO_SPINE or manner.scheme is Scheme.BOND
    works_s, by_other = _works_again(
        topology.tor_of,
        crosses,
        topology.uplinks,
        unused.first,
        unused.begin_s,
        unused.end_s,
        pairs[pair],
        first,
        last,
        np.where(noticed, installed_s, np.inf),
    )
    end_s = np.where(works_s <= installed_s, _ended(manner.scheme, installed_s, repair_s), works_s)
    anew = noticed & by_other
    return Outages(
        fault=links.fault[link],
        source=pairs[pair, 0],
        destination=pairs[pair, 1],
        uplink=first,
        direction=direction,
        begin_s=begin_s,
        end_s=np.where(noticed, end_s, repair_s),
        detected_s=np.where(noticed, detected_s, np.inf),
        selected_s=np.where(anew, np.maximum(begin_s + selected, works_s - lag), np.inf),
        installed_s=np.where(anew, works_s, np.inf),
        last_uplink=last,
    )


@kernel
def _merge(
    link: Whole, begin_s: Floats, usable_s: Floats
) -> tuple[int, NDArray[np.bool_], Floats, Floats, Whole]:
    """Intervals in the order of link and begin → (how many remain, fresh, begin, end, link)."""
    size = len(link)
    fresh = np.zeros(size, np.bool_)
    begin, end, of = np.empty(size), np.empty(size), np.empty(size, np.int64)
    count = 0
    for row in range(size):
        if count and of[count - 1] == link[row] and begin_s[row] < end[count - 1]:
            end[count - 1] = max(end[count - 1], usable_s[row])
        else:
            fresh[row] = True
            begin[count], end[count], of[count] = begin_s[row], usable_s[row], link[row]
            count += 1
    return count, fresh, begin, end, of


@kernel
def _used(tor_of: Whole, spines: bool, one: bool, s: int, first: int, d: int, last: int) -> bool:
    """Whether flows from s to d use that path: a shortest one, and with `one` only the first of them."""
    uplinks = tor_of.shape[1]
    near = tor_of[s, first] == tor_of[d, last]
    if not near:
        if not spines:
            return False
        for a in range(1 if one else uplinks):
            for b in range(uplinks):
                if tor_of[s, a] == tor_of[d, b]:
                    return False
    if one:
        if first:
            return False
        for b in range(last):
            if not near or tor_of[d, b] == tor_of[s, first]:
                return False
    return True


@kernel
def _emit(
    tor_of: Whole,
    spines: bool,
    one: bool,
    host: Whole,
    uplink: Whole,
    out: NDArray[np.bool_],
    into: NDArray[np.bool_],
    dead_tor: Whole,
    pairs: Whole,
    sources: Whole,
    first_source: Whole,
    destinations: Whole,
    first_destination: Whole,
    rows: Whole,
) -> int:
    """Writes a row per lost path as far as `rows` has room, and returns how many there are."""
    count, uplinks = 0, tor_of.shape[1]
    for k in range(len(host)):
        h, u = host[k], uplink[k]
        if out[k]:
            for at in range(first_source[h], first_source[h + 1]):
                pair = sources[at]
                for last in range(uplinks):
                    if _used(tor_of, spines, one, h, u, pairs[pair, 1], last):
                        if count < len(rows):
                            rows[count] = (k, pair, u, last, 0)
                        count += 1
        if into[k]:
            for at in range(first_destination[h], first_destination[h + 1]):
                pair = destinations[at]
                s = pairs[pair, 0]
                for first in range(uplinks):
                    # A sender at the dead switch itself sees its own link dead: that row is there already.
                    if tor_of[s, first] != dead_tor[k] and _used(tor_of, spines, one, s, first, h, u):
                        if count < len(rows):
                            rows[count] = (k, pair, first, u, 1)
                        count += 1
    return count


@kernel
def _free_from(link: int, at_s: float, first: Whole, begin_s: Floats, end_s: Floats) -> float:
    """The earliest time from at_s at which `link` is used."""
    low, high = first[link], first[link + 1]
    while low < high:
        middle = (low + high) // 2
        if begin_s[middle] <= at_s:
            low = middle + 1
        else:
            high = middle
    if low > first[link] and end_s[low - 1] > at_s:
        return float(end_s[low - 1])
    return at_s


@kernel
def _works_again(
    tor_of: Whole,
    spines: bool,
    uplinks: int,
    first_of: Whole,
    begin_s: Floats,
    end_s: Floats,
    pairs: Whole,
    first: Whole,
    last: Whole,
    from_s: Floats,
) -> tuple[Floats, NDArray[np.bool_]]:
    """Per row, when from from_s on some path of its pair works, and whether that is another than its own."""
    works, other = np.full(len(from_s), np.inf), np.zeros(len(from_s), np.bool_)
    for row in range(len(from_s)):
        if from_s[row] == np.inf:
            continue
        s, d = pairs[row, 0], pairs[row, 1]
        for a in range(uplinks):
            for b in range(uplinks):
                if not spines and tor_of[s, a] != tor_of[d, b]:
                    continue
                at_s, before = from_s[row], -np.inf
                while at_s > before and at_s < np.inf:
                    before = at_s
                    at_s = _free_from(s * uplinks + a, at_s, first_of, begin_s, end_s)
                    at_s = _free_from(d * uplinks + b, at_s, first_of, begin_s, end_s)
                mine = a == first[row] and b == last[row]
                if at_s < works[row] or (at_s == works[row] and at_s < np.inf and not mine):
                    works[row], other[row] = at_s, not mine
    return works, other
