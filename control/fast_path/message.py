"""What hosts tell each other: the ToRs by which they cannot be reached. Keyed, sequenced, replay refused.

For: sealing a report into a datagram and opening one. Not for: when to tell (fast_path.py), nor sockets.

The sequence number is the sender's wall clock in nanoseconds, made to rise: so nobody has to remember it
over a restart, and a receiver that has just started refuses what is older than `window_s`. Hosts' clocks must
agree within that; where they do not, reports are refused and failover is BGP's alone.
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
    """Host `sender` (IPv4 of its loopback) cannot be reached by `tors`, which holds for lifetime_s unless it
    says otherwise. It is all that the host has to say: a ToR that is not named works again."""

    sender: int
    tors: frozenset[int]
    lifetime_s: float


class Refusal(StrEnum):
    """Why a datagram was not believed."""

    MALFORMED = "not a report"
    FORGED = "its key is not ours"
    STRANGER = "its sender is no host of this fabric"
    STALE = "its clock is too far from ours"
    REPLAYED = "an equal or newer one of its sender came before"


class Sealer:
    """Seals the reports of one host with the fabric's key. Raises ScenarioError for a key that is short."""

    def __init__(self, key: bytes) -> None:
        self._key, self._last = _checked(key), 0

    def seal(self, report: Report, clock_ns: int) -> bytes:
        """The datagram; clock_ns: the wall clock. Raises ScenarioError for more than MOST_TORS."""
        if len(report.tors) > MOST_TORS:
            raise ScenarioError(f"fast path: {len(report.tors)} ToRs in a report; {MOST_TORS} fit")
        self._last = max(self._last + 1, clock_ns)
        lifetime_ms = round(report.lifetime_s * 1e3)
        head = _HEAD.pack(_MAGIC, report.sender, self._last, lifetime_ms, len(report.tors))
        body = head + b"".join(_TOR.pack(tor) for tor in sorted(report.tors))
        return body + hmac.digest(self._key, body, "sha256")


class Opener:
    """Opens what the hosts in `senders` sent. refused: how many datagrams, by reason."""

    def __init__(self, key: bytes, senders: Iterable[int], window_s: float) -> None:
        self._key, self._window_ns = _checked(key), round(window_s * _SECOND_NS)
        self._last: dict[int, int] = dict.fromkeys(senders, 0)
        self._refused: Counter[Refusal] = Counter()

    @property
    def refused(self) -> Mapping[Refusal, int]:
        """Datagrams that were not believed."""
        return self._refused

    def open(self, datagram: bytes, clock_ns: int) -> Report | None:
        """The report, or None for one that is refused; clock_ns: the wall clock now."""
        opened = self._opened(datagram, clock_ns)
        if isinstance(opened, Refusal):
            self._refused[opened] += 1
            return None
        return opened

    def _opened(self, datagram: bytes, clock_ns: int) -> Report | Refusal:
        body, digest = datagram[:-_DIGEST_BYTES], datagram[-_DIGEST_BYTES:]
        if len(body) < _HEAD.size:
            return Refusal.MALFORMED
        # Nothing is looked at before the key is: a stranger learns nothing but that it was refused.
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
        raise ScenarioError(f"fast path: a key of {len(key)} bytes; take {LEAST_KEY_BYTES} or more")
    return key
