"""The effect of faults on flows: which paths lose packets, and until when.

For: the outages of thousands of faults on a topology under a scheme; the gaps of a single edge fault as a
distribution. Not for: the lengths of the steps (steps.py), the same steps as events in time
(control_plane.py), nor the effect of a gap on a transfer (rdma.py). A path consists of the source's uplink,
the destination's uplink, and a ToR (or two ToRs and a spine) between them. Flows use the shortest paths.
Flows over a dead link are lost until the sender's side forwards them by another working path, or until the
link works again before that. A link that was detected as dead is used again session_up_s after its repair;
faults of a link that is not in use have no effect. If a link comes back just before it is given up and
there is no other path, it counts as lost until its session is up.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from control.fabric import Direction, FaultKind, PlannedFault
from twin.containers.compiled import kernel
from twin.fabric.bfd import check_timers
from twin.fabric.faults import DeadLinks, dead_links
from twin.fabric.model import NO_SPINE, Flags, Floats, Handling, Outages, Scheme, Topology, Whole
from twin.fabric.steps import acted_s, again_s, far_steps_s, host_steps_s, noticed_s
from twin.fabric.topology import all_pairs, check
from twinbed import ScenarioError

ROWS_AT_MOST = 1 << 24
"""Largest number of outages, which take somewhat more than 1 GiB. A larger number counts as a mistake."""


def failover(
    topology: Topology,
    faults: list[PlannedFault],
    handling: Handling,
    seed: np.random.SeedSequence,
    *,
    pairs: Whole | None = None,
) -> Outages:
    """Return the outages that `faults` cause among `pairs`, ordered by fault.

    pairs: int64[m, 2], source and destination (None: all pairs of hosts). Raises ScenarioError as
    topology.check, faults.check_faults and bfd.check_timers do, and for pairs of hosts that do not exist.
    """
    check(topology, handling.scheme)
    check_timers(handling.timers)
    links = _repaired_together(dead_links(topology, faults), topology.uplinks)
    between = _checked(topology, all_pairs(topology) if pairs is None else np.asarray(pairs, np.int64))
    random = np.random.default_rng(seed)
    silent = np.array([fault.silent for fault in faults], np.bool_)[links.fault]
    known = noticed_s(handling, silent, random, out=links.out, into=links.into, delay_s=topology.delay_s)
    known = _noticed_once(known, links, faults)
    lasted = links.repair_s - links.begin_s
    detected = known.min(axis=1) < lasted
    usable_s = links.repair_s + np.where(detected, again_s(handling, len(detected), random), 0.0)
    unused = _Unused(topology, links.host * topology.uplinks + links.uplink, links.begin_s, usable_s)
    rows = _rows(topology, links, unused.fresh, faults, between, handling.scheme)
    # Spines have other paths around a dead ToR.
    of_tor = np.array([fault.kind is FaultKind.TOR for fault in faults], np.bool_)[links.fault]
    local = of_tor & (topology.spines > NO_SPINE)
    return _outages(topology, links, handling, known, silent, unused, rows, between, local, random)


def gap_samples(
    handling: Handling,
    silent: bool,
    n: int,
    seed: np.random.SeedSequence,
    *,
    down_s: float = np.inf,
) -> Floats:
    """Return float64[n, 2]: the time for which each of n separate faults of a link loses traffic OUT of and
    IN to a host, s.

    down_s: duration of each fault, s (inf: under Scheme.NONE the gap never ends). The host has another
    working uplink.
    A value IN is that of one sender. Raises ScenarioError as check_timers does.
    """
    check_timers(handling.timers)
    random = np.random.default_rng(seed)
    both, quiet = np.ones(n, np.bool_), np.full(n, silent)
    known = noticed_s(handling, quiet, random, out=both, into=both)
    fast_s = acted_s(handling, known[:, Direction.OUT], random)
    _, out_s = host_steps_s(handling, known[:, Direction.OUT], fast_s, quiet, random)
    _, in_s = far_steps_s(handling, known[:, Direction.IN], fast_s, np.zeros(n, np.bool_), random)
    installed = np.stack([out_s, in_s], axis=1)
    known[:, Direction.IN] = np.minimum(known[:, Direction.IN], fast_s)
    return np.where(known < down_s, _ended(handling.scheme, installed, down_s), down_s)


def _ended(scheme: Scheme, installed: Floats, repair: Floats | float) -> Floats:
    """Return the time at which each gap ends, s. A job waits for its new communicator even if the old path
    works again; a route does not."""
    return installed if scheme is Scheme.REROUTE else np.minimum(installed, repair)


def _repaired_together(links: DeadLinks, uplinks: int) -> DeadLinks:
    """Extend faults that keep one direction of a link dead without interruption to the last repair among
    them."""
    kept = (links.host * uplinks + links.uplink) * 4 + links.out * 2 + links.into
    order = np.lexsort((links.begin_s, kept))
    _, fresh, _, end_s, _ = _merge(kept[order], links.begin_s[order], links.repair_s[order])
    repair_s = np.empty(len(order))
    repair_s[order] = end_s[np.cumsum(fresh) - 1]
    return replace(links, repair_s=repair_s)


def _noticed_once(known: Floats, links: DeadLinks, faults: list[PlannedFault]) -> Floats:
    """Give all links of a dead ToR one detection time IN, because the spines behind it notice once."""
    tor = np.array([fault.kind is FaultKind.TOR for fault in faults], np.bool_)[links.fault]
    _, first, index = np.unique(links.fault, return_index=True, return_inverse=True)
    shared = known.copy()
    shared[tor, Direction.IN] = known[first[index], Direction.IN][tor]
    return shared


def _checked(topology: Topology, pairs: Whole) -> Whole:
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ScenarioError(
            f"failover: pairs: shape {pairs.shape}: give a source and a destination in each row"
        )
    outside = (pairs < 0) | (pairs >= topology.hosts)
    if outside.any() or (pairs[:, 0] == pairs[:, 1]).any():
        raise ScenarioError(
            f"failover: pairs: give two different hosts of 0 to {topology.hosts - 1} in each row"
        )
    return pairs


class _Unused:
    """The times in which links are not used, as merged intervals per link.

    fresh: bool[n], whether each dead link was in use when its fault came.
    first: int64[links + 1], index of each link's first interval.
    begin_s, end_s: float64[intervals], s.
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
    """Return (link, pair, first uplink, last uplink, direction), int64[rows] each."""
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
    if count > ROWS_AT_MOST:
        raise ScenarioError(f"failover: {count} outages among {len(pairs)} pairs: give only pairs that talk")
    rows = np.empty((count, 5), np.int64)
    _emit(*arguments, rows)
    return tuple(np.ascontiguousarray(rows[:, column]) for column in range(5))


def _outages(
    topology: Topology,
    links: DeadLinks,
    handling: Handling,
    known: Floats,
    silent: Flags,
    unused: _Unused,
    rows: tuple[Whole, ...],
    pairs: Whole,
    local: Flags,
    random: np.random.Generator,
) -> Outages:
    link, pair, first, last, direction = rows
    begin_s, repair_s = links.begin_s[link], links.repair_s[link]
    # The host at the fault changes all its routes at once. Each host far away changes its own.
    fast_s = acted_s(handling, known[:, Direction.OUT], random)
    host_selected, host_installed = host_steps_s(handling, known[:, Direction.OUT], fast_s, silent, random)
    far = direction == Direction.IN
    selected, installed = host_selected[link], host_installed[link]
    # The host's report reaches the hosts of its rack and the spines.
    told_s = fast_s[link[far]]
    selected[far], installed[far] = far_steps_s(
        handling, known[link[far], Direction.IN], told_s, local[link[far]], random
    )
    known_s = known[link, direction]
    known_s[far] = np.minimum(known_s[far], told_s)
    detected_s = begin_s + known_s
    installed_s = begin_s + installed
    lag = np.subtract(installed, selected, where=np.isfinite(installed), out=np.zeros(len(link)))
    noticed = detected_s < repair_s
    # The switches of an MLAG pair have a link between them.
    crosses = topology.spines > NO_SPINE or handling.scheme is Scheme.BOND
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
    end_s = np.where(works_s <= installed_s, _ended(handling.scheme, installed_s, repair_s), works_s)
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
    """Merge intervals ordered by link and begin → (number of merged ones, fresh, begin, end, link)."""
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
    """Return whether flows from s to d use that path: a shortest path, and the first one if `one`."""
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
    """Write a row per lost path as far as `rows` has room, and return the number of lost paths."""
    count, uplinks = 0, tor_of.shape[1]
    for k in range(len(host)):
        h, u = host[k], uplink[k]
        if out[k]:
            for at in range(first_source[h], first_source[h + 1]):
                pair = sources[at]
                for last in range(uplinks):
                    if _used(tor_of, spines, one, h, u, pairs[pair, 1], last):
                        if count < len(rows):
                            rows[count, 0], rows[count, 1], rows[count, 2] = k, pair, u
                            rows[count, 3], rows[count, 4] = last, 0
                        count += 1
        if into[k]:
            for at in range(first_destination[h], first_destination[h + 1]):
                pair = destinations[at]
                s = pairs[pair, 0]
                for first in range(uplinks):
                    # A sender at the dead switch finds its own link dead, which is another row already.
                    if tor_of[s, first] != dead_tor[k] and _used(tor_of, spines, one, s, first, h, u):
                        if count < len(rows):
                            rows[count, 0], rows[count, 1], rows[count, 2] = k, pair, first
                            rows[count, 3], rows[count, 4] = u, 1
                        count += 1
    return count


@kernel
def _free_from(link: int, at_s: float, first: Whole, begin_s: Floats, end_s: Floats) -> float:
    """Return the earliest time from at_s on at which `link` is in use."""
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
    """Return for each row the first time from from_s on at which a path of its pair works, s, and whether it
    is another path than the row's own."""
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
                own = a == first[row] and b == last[row]
                if at_s < works[row] or (at_s == works[row] and at_s < np.inf and not own):
                    works[row], other[row] = at_s, not own
    return works, other
