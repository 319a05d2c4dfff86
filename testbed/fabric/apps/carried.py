"""Measure what a host's uplinks carry now, to know whether a fault there affects an application's flows.

For: telling a fault of a used path from a fault of a path that hashing left empty. Not for: an application's
throughput (streams.py). Source: proc(5). The kernel's counters include the overlay's headers, BFD and BGP.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from testbed.fabric import links
from testbed.fabric.model import Host, Uplink

_COUNTERS = Path("/proc/thread-self/net/dev")
_IN_BYTES, _OUT_BYTES = 0, 8
"""Columns of net/dev after the device's name (proc(5))."""


@dataclass(frozen=True, slots=True)
class Carried:
    """Bytes per second that a host sends over an uplink, and that it receives there."""

    out_per_s: float
    in_per_s: float


def carried(host: Host, uplink: Uplink, *, over_s: float = 0.5) -> Carried:
    """Return the mean rates over the next over_s seconds."""
    before, began = _counters(host, uplink), time.monotonic()
    time.sleep(over_s)
    after, ended = _counters(host, uplink), time.monotonic()
    out, into = (now - then for now, then in zip(after, before, strict=True))
    return Carried(out / (ended - began), into / (ended - began))


def _counters(host: Host, uplink: Uplink) -> tuple[int, int]:
    with links.in_namespace(host.namespace):
        lines = _COUNTERS.read_text(encoding="ascii").splitlines()
    values = next(line.split(":")[1].split() for line in lines if line.split(":")[0].strip() == uplink.device)
    return int(values[_OUT_BYTES]), int(values[_IN_BYTES])
