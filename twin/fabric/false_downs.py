"""Sessions that a stalled machine brings down although their links work, and the times without any path.

For: gaps of faults on a machine that stalls: a second link out of use makes a short gap a long one. Not for:
the number of such sessions in an hour (bfd.py), nor outages of many hosts (failover.py). Source: as in
`bfd.false_downs_per_hour`; RFC 5882 §4.3: a session that is down takes its link out of use, whatever it
carries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from twin.fabric.bfd import check_timers, silence_s
from twin.fabric.model import Floats, Handling, Topology, Whole
from twin.fabric.rdma import in_order
from twin.fabric.topology import paths

Span = tuple[float, float]
"""Begin and end, s."""


@dataclass(frozen=True, slots=True)
class FalseDowns:
    """Times in which links are out of use without a fault, one row each, ordered by window.

    window: int64[n], index of the observed window. host, uplink: int64[n], the link. begin_s, end_s:
    float64[n], s.
    """

    window: Whole
    host: Whole
    uplink: Whole
    begin_s: Floats
    end_s: Floats


def false_downs(
    topology: Topology, handling: Handling, since_s: Floats, lasts_s: Floats, seed: np.random.SeedSequence
) -> FalseDowns:
    """Return the links that stalls in these windows take down. All sessions run on one machine.

    since_s, lasts_s: float64[w], begin and length of each window, s. Raises as bfd.check_timers does.
    """
    timers, stalls = handling.timers, handling.control.stalls
    check_timers(timers)
    random = np.random.default_rng(seed)
    window = np.repeat(np.arange(len(since_s)), random.poisson(stalls.per_s * lasts_s))
    length_s = stalls.floor_s + random.exponential(stalls.excess_s, len(window))
    over_s = since_s[window] + random.random(len(window)) * lasts_s[window] + length_s
    links = topology.hosts * topology.uplinks
    ages_s = [silence_s(timers, len(window) * links, random) for _ in range(2)]
    # The end that has heard nothing for longer gives the session up.
    silent_s = length_s[:, None] + np.maximum(*ages_s).reshape(len(window), links)
    stall, link = np.nonzero(silent_s > timers.detection_s)
    begin_s = over_s[stall]
    again_s = handling.control.session_up_s.draw(len(stall), random)
    return FalseDowns(
        window[stall], link // topology.uplinks, link % topology.uplinks, begin_s, begin_s + again_s
    )


def without_path(
    topology: Topology, source: int, destination: int, unused: Iterable[tuple[int, int, Span]]
) -> list[Span]:
    """Return the times in which no path between two hosts works, in order.

    unused: host, uplink and span of every time in which a link is out of use.
    """
    spans: dict[tuple[int, int], list[Span]] = {}
    for host, uplink, span in unused:
        spans.setdefault((host, uplink), []).append(span)
    common: list[Span] = [(-np.inf, np.inf)]
    for first, _, last in paths(topology, source, destination).tolist():
        of_path = spans.get((source, first), []) + spans.get((destination, last), [])
        out_of_use = in_order(np.array(of_path).reshape(-1, 2)).tolist()
        both = [(max(a, c), min(b, d)) for a, b in common for c, d in out_of_use]
        common = [span for span in both if span[0] < span[1]]
    return common
