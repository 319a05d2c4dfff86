"""Telemetry on the wire: period records of one host, many per UDP datagram, signed and numbered.

For: packing records, and verifying received datagrams, without sockets. Not for: the reliable channel
(service.py). A datagram is a header, up to MAX_RECORDS records and the first 16 bytes of the HMAC-SHA256 (RFC
2104) of both under the session's key, which the agent got over TLS. All is little-endian:

    header  magic "TB", version u8, 0 u8, count u16, 0 u16, session u64, sequence u64, sent_ns i64
    record  id i64, end_ns i64, memory_bytes i64, quota_us u32, unused_us u32, usage_us u32, throttled_us u32,
            flags u32 (1 throttled, 2 idle)

Quota, unused runtime and usage are µs per CFS period. A quota of 2^32 − 1 means that there is none, and
unused is then 0. Times are those of the agent's CLOCK_MONOTONIC, so the controller only compares them with
each other. The replay window is that of RFC 4303 (ESP), 3.4.3.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Flags
from testbed.containers.cgroup.group import QUOTA_PERIOD_US
from testbed.containers.ports import Records
from testbed.containers.remote.refusals import Kind, Refusals

VERSION = 1
KEY_BYTES = 32
WINDOW = 1024
"""Largest lag of a datagram's number behind the newest one of its session. Older datagrams are refused."""

RECORD = np.dtype(
    [
        ("id", "<i8"),
        ("end_ns", "<i8"),
        ("memory_bytes", "<i8"),
        ("quota_us", "<u4"),
        ("unused_us", "<u4"),
        ("usage_us", "<u4"),
        ("throttled_us", "<u4"),
        ("flags", "<u4"),
    ]
)
_HEADER = struct.Struct("<2sBBHHQQq")
_MAGIC = b"TB"
_MAC_BYTES = 16
_NO_QUOTA = 2**32 - 1
_THROTTLED, _IDLE = 1, 2
MAX_BYTES = 1472
"""Largest datagram, bytes. It fits an Ethernet frame unfragmented: 1500 less the IPv4 and UDP headers."""

_RECORD_BYTES = RECORD.itemsize
MAX_RECORDS = (MAX_BYTES - _HEADER.size - _MAC_BYTES) // _RECORD_BYTES

MOST_CORES = 8192
"""Largest quota and usage that a record may have, cores: the largest NR_CPUS of Linux."""

MOST_BYTES = 1 << 50
"""Largest memory that a record may have, bytes."""


class Batch(NamedTuple):
    """The records of an accepted datagram. sent_ns: time at which the agent sent it, by the agent's clock,
    ns. body: the packed records."""

    session: int
    sent_ns: int
    body: bytes

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.body) // _RECORD_BYTES


class Sealer:
    """Packs one session's records. The sequence number grows by one with each datagram."""

    def __init__(self, session: int, key: bytes) -> None:
        self._session = session
        self._key = key
        self.sequence = 0

    def seal(self, records: Records, now_ns: int) -> list[bytes]:
        """Return datagrams of at most MAX_RECORDS records each. now_ns: time of sending, ns."""
        rows = _rows(records)
        sealed = []
        for first in range(0, len(rows), MAX_RECORDS):
            part = rows[first : first + MAX_RECORDS]
            self.sequence += 1
            header = _HEADER.pack(_MAGIC, VERSION, 0, len(part), 0, self._session, self.sequence, now_ns)
            body = header + part.tobytes()
            sealed.append(body + _mac(self._key, body))
        return sealed


class _Session:
    """Key and replay window of one agent's session."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self._keyed = hmac.new(key, digestmod="sha256")
        self.highest = 0
        self.received = 0
        self._seen = 0  # bit i: sequence highest − i has arrived

    @property
    def lost(self) -> int:
        return self.highest - self.received

    def mac(self, body: bytes) -> bytes:
        """Return the same as `_mac`. It copies a hash that already contains the key, which takes half the
        time."""
        keyed = self._keyed.copy()
        keyed.update(body)
        return keyed.digest()[:_MAC_BYTES]

    def refusal(self, sequence: int) -> Kind | None:
        """Return why a datagram with this sequence number must be refused. None: it is accepted, and the
        number is recorded."""
        ahead = sequence - self.highest
        if ahead > 0:
            self._seen = 1 if ahead >= WINDOW else (self._seen << ahead | 1) & ((1 << WINDOW) - 1)
            self.highest = sequence
        elif -ahead >= WINDOW:
            return "too old"
        elif self._seen >> -ahead & 1:
            return "replayed"
        else:
            self._seen |= 1 << -ahead
        self.received += 1
        return None


class Gate:
    """Accepts each datagram of the sessions' agents once. All other datagrams are refused and counted by
    kind: oversized, malformed, foreign (of another session), version, forged, replayed, too old."""

    def __init__(self, refusals: Refusals) -> None:
        self.refusals = refusals
        self.sessions: dict[int, _Session] = {}
        self._past_received = 0
        self._past_lost = 0

    @property
    def received(self) -> int:
        """Number of datagrams accepted in all sessions."""
        return self._past_received + sum(session.received for session in self.sessions.values())

    @property
    def lost(self) -> int:
        """Number of datagrams missing in all sessions' sequences, without late ones."""
        return self._past_lost + sum(session.lost for session in self.sessions.values())

    def open(self, session: int, key: bytes) -> None:
        """Accept the session's datagrams from now on."""
        self.sessions[session] = _Session(key)

    def close(self, session: int) -> None:
        """Refuse the session's datagrams from now on. Its counts stay. Unknown sessions are ignored."""
        ended = self.sessions.pop(session, None)
        if ended is not None:
            self._past_received += ended.received
            self._past_lost += ended.lost

    def receive(self, data: bytes, sender: str) -> Batch | None:
        """Return the content of a datagram, or None if it is refused. sender: for the log."""
        kind, batch = self._judge(data)
        if kind is not None:
            self.refusals.add(kind, f"datagram of {len(data)} bytes from {sender}")
        return batch

    def _judge(self, data: bytes) -> tuple[Kind | None, Batch | None]:
        if len(data) > MAX_BYTES:
            return "oversized", None
        if len(data) < _HEADER.size + _MAC_BYTES:
            return "malformed", None
        magic, version, zero, count, zeros, number, sequence, sent_ns = _HEADER.unpack_from(data)
        session = self.sessions.get(number)
        if magic != _MAGIC or session is None:
            return "foreign", None
        if version != VERSION:
            return "version", None
        signed = data[:-_MAC_BYTES]
        if not hmac.compare_digest(session.mac(signed), data[-_MAC_BYTES:]):
            return "forged", None
        body = signed[_HEADER.size :]
        if (
            zero
            or zeros
            or not 0 < count <= MAX_RECORDS
            or len(body) != count * _RECORD_BYTES
            or sequence < 1
        ):
            return "malformed", None
        refusal = session.refusal(sequence)
        return (refusal, None) if refusal else (None, Batch(number, sent_ns, body))


def _mac(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:_MAC_BYTES]


def _rows(records: Records) -> NDArray[Any]:
    rows = np.zeros(len(records.ids), RECORD)
    rows["id"] = records.ids
    rows["end_ns"] = records.end_ns
    rows["memory_bytes"] = records.memory_bytes
    rows["quota_us"] = _us(records.quota_cores, QUOTA_PERIOD_US)
    limited = records.quota_cores < np.inf
    rows["unused_us"] = _us(np.where(limited, records.unused_cores, 0.0), QUOTA_PERIOD_US)
    rows["usage_us"] = _us(records.usage_cores, QUOTA_PERIOD_US)
    rows["throttled_us"] = _us(records.throttled_s, 1e6)
    rows["flags"] = records.throttled * _THROTTLED + records.idle * _IDLE
    return rows


def _us(amount: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    return np.rint(np.clip(amount * scale, 0, _NO_QUOTA))


def unpack(bodies: Iterable[bytes]) -> tuple[Records, Flags]:
    """Return the records of accepted datagrams, in order, and bool[n]: whether each is possible. A quota of
    inf means that there is none; its unused runtime is 0."""
    rows = np.frombuffer(b"".join(bodies), RECORD)
    ids, end_ns = rows["id"].astype(np.int64), rows["end_ns"].astype(np.int64)
    memory_bytes, flags = rows["memory_bytes"].astype(np.int64), rows["flags"].astype(np.uint32)
    quota_cores, usage_cores = rows["quota_us"] / QUOTA_PERIOD_US, rows["usage_us"] / QUOTA_PERIOD_US
    none = rows["quota_us"] == _NO_QUOTA
    possible = (
        (np.minimum(ids, end_ns) >= 0)
        & (memory_bytes >= 0)
        & (memory_bytes <= MOST_BYTES)
        & (quota_cores > 0)
        & (none | (quota_cores <= MOST_CORES))
        & (usage_cores <= MOST_CORES)
        & (flags <= _THROTTLED | _IDLE)
    )
    quota_cores[none] = np.inf
    unused_cores = np.minimum(rows["unused_us"] / QUOTA_PERIOD_US, quota_cores)
    unused_cores[none] = 0.0
    records = Records(
        ids=ids,
        end_ns=end_ns,
        quota_cores=quota_cores,
        unused_cores=unused_cores,
        throttled=(flags & _THROTTLED) > 0,
        usage_cores=usage_cores,
        memory_bytes=memory_bytes,
        throttled_s=rows["throttled_us"] / 1e6,
        idle=(flags & _IDLE) > 0,
    )
    return records, possible
