"""Inspect applications' paths: whether an endpoint answers another, and how much a host's uplinks carry.

For: waiting until a path works again, and telling whether a fault hit a used path, or one that hashing left
empty. Not for: measuring how long a path was gone (probe.py), or an application's throughput (streams.py).
Source: proc(5), RFC 863 (discard). The kernel's counters include the overlay's headers, BFD and BGP.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path

from testbed.fabric import links
from testbed.fabric.model import Endpoint, Host, Uplink

_NOBODY_LISTENS = 9
"""TCP's discard port. Nobody listens there, so the other kernel answers that it is closed."""

_COUNTERS = Path("/proc/thread-self/net/dev")
_IN_BYTES, _OUT_BYTES = 0, 8
"""Columns of net/dev after the device's name (proc(5))."""


def answers(source: Endpoint, destination: Endpoint, *, within_s: float = 0.5) -> bool:
    """Return whether a TCP segment and its answer get through within within_s."""
    with links.in_namespace(source.namespace), socket.socket() as asking:
        asking.settimeout(within_s)
        try:
            asking.connect((destination.address, _NOBODY_LISTENS))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Carried:
    """Rates of a host over an uplink, bytes per second: sent (out_per_s) and received (in_per_s)."""

    out_per_s: float
    in_per_s: float


def carried(host: Host, uplink: Uplink, *, over_s: float = 0.5) -> Carried:
    """Measure for over_s seconds, and return the mean rates."""
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
