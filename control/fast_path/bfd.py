"""Parse a BFD control packet that was overheard.

For: the state that the far end of a single-hop session reports. Not for: deciding when its silence is a fault
(fast_path.py). Source: RFC 5880 §4.1 (format), §6.8.6 (packets to discard); RFC 5881 §4 (port), §5 (TTL 255
proves that the sender is on the link).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from control.fabric import BfdState, BfdTimers

PORT = 3784

_IPV4_LEAST, _UDP, _TTL = 20, 17, 255
_UDP_HEADER = struct.Struct("!HHHH")
_CONTROL = struct.Struct("!BBBBIIIII")
_VERSION = 1
_AUTHENTICATED, _MULTIPOINT = 0x04, 0x01


@dataclass(frozen=True, slots=True)
class Control:
    """The fields of a control packet that matter here.

    source: the sender's IPv4 address as a number.
    state: the state of the sender's end.
    timers: the longest time between the sender's packets, and how many of them lost in a row are a fault.
    """

    source: int
    state: BfdState
    timers: BfdTimers


def parse(packet: bytes) -> Control | None:
    """Return the BFD control packet in an IPv4 packet; None if there is none or a receiver discards it."""
    if len(packet) < _IPV4_LEAST or packet[0] >> 4 != 4 or packet[9] != _UDP or packet[8] != _TTL:
        return None
    header = 4 * (packet[0] & 0x0F)
    body = packet[header + _UDP_HEADER.size :]
    if header < _IPV4_LEAST or len(body) < _CONTROL.size:
        return None
    if _UDP_HEADER.unpack_from(packet, header)[1] != PORT:
        return None
    first, flags, multiplier, length, mine, yours, interval_us, _, _ = _CONTROL.unpack_from(body)
    state = BfdState(flags >> 6)
    wrong = first >> 5 != _VERSION or length != _CONTROL.size or flags & (_AUTHENTICATED | _MULTIPOINT)
    unbound = yours == 0 and state not in (BfdState.DOWN, BfdState.ADMIN_DOWN)
    if wrong or unbound or multiplier == 0 or mine == 0:
        return None
    return Control(int.from_bytes(packet[12:16], "big"), state, BfdTimers(interval_us / 1e6, multiplier))
