"""Rates of flows that share links: max-min fairness, as per-packet turns on every link come to.

For: the β of a collective whose flows meet on an uplink, with all uplinks or with those a fault leaves. Not
for: packets in turn on one link (rdma.shared_series), nor which path a flow takes (ecmp.py).

Source: Bertsekas and Gallager, "Data Networks", 1992, 6.5.2 (progressive filling).
"""

from __future__ import annotations

import numpy as np

from twin.fabric.model import Floats, Topology, Whole
from twinbed import ScenarioError

NO_LINK = -1


def edge_links(
    topology: Topology, source: Whole, destination: Whole, uplink: Whole, last_uplink: Whole
) -> Whole:
    """int64[n, 2], links at the edge of flows between hosts (int64[n] each), NO_LINK within a host.

    A host's uplink u sends as link host · U + u, and receives as that + H · U.
    """
    out = source * topology.uplinks + uplink
    into = (topology.hosts + destination) * topology.uplinks + last_uplink
    return np.where((source == destination)[:, None], NO_LINK, np.column_stack((out, into)))


def edge_capacity_bps(topology: Topology) -> Floats:
    """float64[2 · H · U], of the links as edge_links numbers them."""
    return np.full(2 * topology.hosts * topology.uplinks, topology.rate_bps)


def fair_rates_bps(links: Whole, capacity_bps: Floats) -> Floats:
    """float64[n]: each flow's rate, raised evenly for all until a link of theirs is full; inf without links.

    links: int64[n, k], of each flow, NO_LINK where it has fewer; capacity_bps: float64[L]. Raises
    ScenarioError for a link that does not exist.
    """
    if links.size and (links.min() < NO_LINK or links.max() >= len(capacity_bps)):
        raise ScenarioError(f"links: a flow uses one that is not among the {len(capacity_bps)}")
    rates = np.full(len(links), np.inf)
    left = np.array(capacity_bps, np.float64)
    used = links != NO_LINK
    waiting = used.any(axis=1)
    while waiting.any():
        rows = used & waiting[:, None]
        count = np.bincount(links[rows], minlength=len(left))
        share = np.divide(left, count, out=np.full(len(left), np.inf), where=count > 0)
        # Every link that has the least share is full at once: symmetrical fabrics take one round.
        least = max(share.min(), 0.0)
        full = share <= least * (1 + 1e-12)
        done = (rows & full[links]).any(axis=1)
        rates[done] = least
        left -= np.bincount(links[used & done[:, None]], minlength=len(left)) * least
        waiting &= ~done
    return rates
