"""What is measured of a real fabric: by which road it fails over, with which timers, and what breaks.

For: naming a setting, and the fabric that it needs. Not for: how often each is measured (plan.py) nor
measuring (campaign.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from control.fabric import BfdTimers, Direction, Fault, FaultKind
from testbed.fabric.model import Plan


class Road(StrEnum):
    """STOCK: FRR as a user gets it. REAL_TIME: bfdd before everything, no next-hop groups in the kernel;
    bgpd holds as ever. FAST: that, and the fast path besides."""

    STOCK = "stock"
    REAL_TIME = "real-time"
    FAST = "fast"


class What(StrEnum):
    """What breaks at the ToR's port: silently, both ways or only what the host sends (OUT) or receives (IN);
    or with a loss of carrier."""

    BOTH = "both"
    OUT = "out"
    IN = "in"
    CARRIER = "carrier"


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """busy: every CPU has something else to do all the time."""

    road: Road
    multiplier: int
    interval_ms: int
    what: What = What.BOTH
    busy: bool = False

    @property
    def key(self) -> str:
        """Such as `fast-5x50-both`, or `fast-5x50-both-busy`."""
        return f"{self.road}-{self.timers_text.replace('×', 'x')}-{self.what}" + "-busy" * self.busy

    @property
    def strands_groups(self) -> bool:
        """Whether a fault leaves the kernel's next-hop groups without an uplink that comes back: where there
        are such groups, and the kernel takes uplinks out of them itself."""
        return self.road is Road.STOCK and self.what is What.CARRIER

    @property
    def timers_text(self) -> str:
        """Such as `5×50`."""
        return f"{self.multiplier}×{self.interval_ms}"

    @property
    def timers(self) -> BfdTimers:
        """BFD's."""
        return BfdTimers(self.interval_ms / 1e3, self.multiplier)

    def plan(self, name: str) -> Plan:
        """The fabric that it is measured on: two hosts at two ToRs."""
        return Plan(name=name, bfd=self.timers, real_time=True, stock=self.road is Road.STOCK)

    def fault(self, host: int, uplink: int) -> Fault:
        """What breaks, there."""
        if self.what is What.CARRIER:
            return Fault(FaultKind.LINK, host=host, uplink=uplink, silent=False)
        one_way = {What.OUT: Direction.OUT, What.IN: Direction.IN}.get(self.what)
        return Fault(FaultKind.PORT, host=host, uplink=uplink, one_way=one_way)


def setting(key: str) -> Setting:
    """The setting of a key. Raises ValueError for what is none."""
    busy = key.endswith("-busy")
    road, timers, what = key.removesuffix("-busy").rsplit("-", 2)
    multiplier, interval_ms = timers.split("x")
    return Setting(Road(road), int(multiplier), int(interval_ms), What(what), busy)
