"""Names what is measured on a real fabric: the road of its failover, its timers, and what breaks.

For: a setting's name, and the fabric that it needs. Not for: how often it is measured (plan.py), or measuring
(campaign.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from control.fabric import BfdTimers, Direction, Fault, FaultKind
from testbed.fabric.model import Plan


class Road(StrEnum):
    """How a fabric fails over.

    STOCK: FRR as a user installs it. REAL_TIME: bfdd has the highest priority and the kernel has no next-hop
    groups; bgpd waits as usual. FAST: REAL_TIME with the fast path. PLANE: FAST with our own data plane of
    BFD, in hosts and ToRs.
    """

    STOCK = "stock"
    REAL_TIME = "real-time"
    FAST = "fast"
    PLANE = "plane"


class What(StrEnum):
    """What breaks at the ToR's port: a silent fault in both directions, or only in what the host sends
    (OUT) or receives (IN), or a lost carrier."""

    BOTH = "both"
    OUT = "out"
    IN = "in"
    CARRIER = "carrier"


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """One setting of a measurement. busy: every CPU has other work all the time."""

    road: Road
    multiplier: int
    interval_ms: int
    what: What = What.BOTH
    busy: bool = False

    @property
    def key(self) -> str:
        """Returns a name such as `fast-5x50-both` or `fast-5x50-both-busy`."""
        return f"{self.road}-{self.timers_text.replace('×', 'x')}-{self.what}" + "-busy" * self.busy

    @property
    def strands_groups(self) -> bool:
        """Returns whether a fault leaves the kernel's next-hop groups without a returned uplink: there are
        groups, and the kernel removes uplinks from them by itself."""
        return self.road is Road.STOCK and self.what is What.CARRIER

    @property
    def timers_text(self) -> str:
        """Returns a text such as `5×50`."""
        return f"{self.multiplier}×{self.interval_ms}"

    @property
    def timers(self) -> BfdTimers:
        """Returns the timers of BFD."""
        return BfdTimers(self.interval_ms / 1e3, self.multiplier)

    def plan(self, name: str) -> Plan:
        """Returns the plan of its fabric: two hosts at two ToRs."""
        stock, plane = self.road is Road.STOCK, self.road is Road.PLANE
        return Plan(name=name, bfd=self.timers, real_time=True, stock=stock, bfd_plane=plane)

    def fault(self, host: int, uplink: int) -> Fault:
        """Returns the fault at this link."""
        if self.what is What.CARRIER:
            return Fault(FaultKind.LINK, host=host, uplink=uplink, silent=False)
        one_way = {What.OUT: Direction.OUT, What.IN: Direction.IN}.get(self.what)
        return Fault(FaultKind.PORT, host=host, uplink=uplink, one_way=one_way)


def setting(key: str) -> Setting:
    """Returns the setting of a key. Raises ValueError for an unknown key."""
    busy = key.endswith("-busy")
    road, timers, what = key.removesuffix("-busy").rsplit("-", 2)
    multiplier, interval_ms = timers.split("x")
    return Setting(Road(road), int(multiplier), int(interval_ms), What(what), busy)
