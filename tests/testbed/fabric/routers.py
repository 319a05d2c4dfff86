"""The configurations of all of a fabric's routers as one text, for comparing them."""

from __future__ import annotations

from testbed.fabric import devices, frr
from testbed.fabric.model import Fabric, Host


def configurations(fabric: Fabric) -> str:
    """Return FRR's configurations and the nftables chains of every router, router by router."""
    parts = []
    for router in fabric.routers:
        chains = devices._spread(router) if isinstance(router, Host) else devices._faults(router)
        parts += [frr._zebra(fabric.plan, router), frr._bfdd(fabric.plan), frr._bgpd(router), chains]
    return "\n".join(parts)
