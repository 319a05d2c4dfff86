"""Settings measured on a real fabric: the road of its failover, its timers, and the fault.

For: a setting's name, and the fabric that it needs. Not for: the number of measurements (plan.py), or
measuring (campaign.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from control.fabric import BfdTimers, Direction, Fault, FaultKind
from testbed.fabric.model import Plan

STEADY_S = {True: 0.8, False: 0.55}
"""Time that everything must be back before the next fault, s, or the next fault would be a second one.
After a lost carrier (True), BGP comes back before BFD and restarts when BFD reports. The fast path trusts
a returned uplink after 0.5 s, and an agent's report may be 0.2 s old."""
AFTER_S = 0.1
"""Time between the last change of a route and the repair, s. Losses in it belong to the fault."""
GROUPS_KEPT_S = 1
"""Time that zebra keeps a next-hop group that no route uses, s (its own default is 180 s), where
`Setting.strands_groups`. The kernel takes an uplink without carrier out of its groups, and zebra 8.4 does
not notice. A group that zebra still has when the uplink is back is used again without that uplink."""

GROUPS_GONE_S = GROUPS_KEPT_S + 0.5
"""Time after the last change of a route, s, until stranded groups are gone, so that a returned uplink gets
new groups."""


class Road(StrEnum):
    """The software with which a fabric fails over.

    STOCK: FRR as a user installs it.
    REAL_TIME: bfdd has the highest priority and the kernel has no next-hop groups; bgpd waits as usual.
    FAST: REAL_TIME with the fast path.
    PLANE: FAST with our own data plane of BFD, in hosts and ToRs.
    """

    STOCK = "stock"
    REAL_TIME = "real-time"
    FAST = "fast"
    PLANE = "plane"


class What(StrEnum):
    """The fault at the ToR's port: silent in both directions, or only in the host's sending (OUT) or
    receiving (IN), or a lost carrier."""

    BOTH = "both"
    OUT = "out"
    IN = "in"
    CARRIER = "carrier"


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """One setting of a measurement.

    busy: every CPU has other work all the time. spines: number of spines that join the racks of the two hosts
    (0: they are in one rack).
    """

    road: Road
    multiplier: int
    interval_ms: int
    what: What = What.BOTH
    busy: bool = False
    spines: int = 0

    @property
    def key(self) -> str:
        """Return a name such as `fast-5x50-both`, `fast-5x50-both-busy` or `fast-5x50-both-2spines`."""
        where = f"-{self.spines}spines" if self.spines else ""
        return f"{self.road}-{self.timers_text.replace('×', 'x')}-{self.what}" + "-busy" * self.busy + where

    @property
    def strands_groups(self) -> bool:
        """Return whether a fault leaves the kernel's next-hop groups without a returned uplink: there are
        groups, and the kernel removes uplinks from them by itself."""
        return self.road is Road.STOCK and self.what is What.CARRIER

    @property
    def timers_text(self) -> str:
        """Return a text such as `5×50`."""
        return f"{self.multiplier}×{self.interval_ms}"

    @property
    def timers(self) -> BfdTimers:
        """Return the timers of BFD."""
        return BfdTimers(self.interval_ms / 1e3, self.multiplier)

    def plan(self, name: str) -> Plan:
        """Return the plan of its fabric: two hosts at two ToRs, or in two racks of two ToRs."""
        stock, plane = self.road is Road.STOCK, self.road is Road.PLANE
        racks = 2 if self.spines else 1
        return Plan(
            name=name,
            tors=2 * racks,
            bfd=self.timers,
            real_time=True,
            stock=stock,
            bfd_plane=plane,
            racks=racks,
            spines=self.spines,
        )

    def fault(self, host: int, uplink: int) -> Fault:
        """Return the fault at this link."""
        if self.what is What.CARRIER:
            return Fault(FaultKind.LINK, host=host, uplink=uplink, silent=False)
        one_way = {What.OUT: Direction.OUT, What.IN: Direction.IN}.get(self.what)
        return Fault(FaultKind.PORT, host=host, uplink=uplink, one_way=one_way)


def setting(key: str) -> Setting:
    """Return the setting of a key without spines. Raises ValueError for an unknown key."""
    busy = key.endswith("-busy")
    road, timers, what = key.removesuffix("-busy").rsplit("-", 2)
    multiplier, interval_ms = timers.split("x")
    return Setting(Road(road), int(multiplier), int(interval_ms), What(what), busy)
