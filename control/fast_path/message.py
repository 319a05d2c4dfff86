"""The reports that hosts send each other: the ToRs over which they cannot be reached.

For: sealing a report into an authenticated datagram, and opening one; replays are refused. Not for: deciding
when to send (fast_path.py), or sockets. Source: our design; HMAC-SHA-256 (RFC 2104).

The sequence number is the sender's wall clock in nanoseconds, forced to rise. So nobody has to store it
across a restart, and a receiver that has just started refuses reports older than `window_s`. The hosts'
clocks must agree within `window_s`; otherwise reports are refused and only BGP handles the failover.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from twinbed import ScenarioError

LEAST_KEY_BYTES = 16
MOST_TORS = 64

_MAGIC = b"tbfp\x01"
_HEAD = struct.Struct("!5sIQIB")
_TOR = struct.Struct("!I")
_DIGEST_BYTES = hashlib.sha256().digest_size
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Report:
    """Host `sender` cannot be reached over `tors`.

    A report replaces the sender's earlier one: a ToR that is not named works again. sender: IPv4 address of
    the host's loopback; lifetime_s: the report expires after this time, s.
    """

    sender: int
    tors: frozenset[int]
    lifetime_s: float


class Refusal(StrEnum):
    """Why a datagram is refused."""

    MALFORMED = "it is not a report"
    FORGED = "it was not signed with our key"
    STRANGER = "its sender is not a host of this fabric"
    STALE = "its clock differs too much from ours"
    REPLAYED = "an equal or newer report of its sender came before"


class Sealer:
    """Seal the reports of one host with the fabric's key. Raises ScenarioError if the key is too short."""

    def __init__(self, key: bytes) -> None:
        self._key, self._last = _checked(key), 0

    def seal(self, report: Report, clock_ns: int) -> bytes:
        """Return the datagram. clock_ns: the wall clock. Raises ScenarioError for more than MOST_TORS."""
        if len(report.tors) > MOST_TORS:
            raise ScenarioError(f"fast path: {len(report.tors)} ToRs in a report; at most {MOST_TORS} fit")
        self._last = max(self._last + 1, clock_ns)
        lifetime_ms = round(report.lifetime_s * 1e3)
        head = _HEAD.pack(_MAGIC, report.sender, self._last, lifetime_ms, len(report.tors))
        body = head + b"".join(_TOR.pack(tor) for tor in sorted(report.tors))
        return body + hmac.digest(self._key, body, "sha256")


class Opener:
    """Checks and decodes the datagrams of the hosts in `senders`."""

    def __init__(self, key: bytes, senders: Iterable[int], window_s: float) -> None:
        self._key, self._window_ns = _checked(key), round(window_s * _SECOND_NS)
        self._last: dict[int, int] = dict.fromkeys(senders, 0)
        self._refused: Counter[Refusal] = Counter()

    @property
    def refused(self) -> Mapping[Refusal, int]:
        """Number of refused datagrams by reason."""
        return self._refused

    def open(self, datagram: bytes, clock_ns: int) -> Report | None:
        """Return the report, or None if it is refused. clock_ns: the wall clock now."""
        opened = self._opened(datagram, clock_ns)
        if isinstance(opened, Refusal):
            self._refused[opened] += 1
            return None
        return opened

    def _opened(self, datagram: bytes, clock_ns: int) -> Report | Refusal:
        body, digest = datagram[:-_DIGEST_BYTES], datagram[-_DIGEST_BYTES:]
        if len(body) < _HEAD.size:
            return Refusal.MALFORMED
        # The key is checked first. A sender without the key then learns only that the datagram was refused.
        if not hmac.compare_digest(hmac.digest(self._key, body, "sha256"), digest):
            return Refusal.FORGED
        magic, sender, sequence, lifetime_ms, count = _HEAD.unpack_from(body)
        if magic != _MAGIC or len(body) != _HEAD.size + count * _TOR.size:
            return Refusal.MALFORMED
        if sender not in self._last:
            return Refusal.STRANGER
        if abs(clock_ns - sequence) > self._window_ns:
            return Refusal.STALE
        if sequence <= self._last[sender]:
            return Refusal.REPLAYED
        self._last[sender] = sequence
        tors = frozenset(tor for (tor,) in _TOR.iter_unpack(body[_HEAD.size :]))
        return Report(sender, tors, lifetime_ms / 1e3)


def _checked(key: bytes) -> bytes:
    if len(key) < LEAST_KEY_BYTES:
        raise ScenarioError(
            f"fast path: a key of {len(key)} bytes is too short; use {LEAST_KEY_BYTES} or more"
        )
    return key
