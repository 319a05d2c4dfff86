"""Speak netlink with the kernel's routing side in arrays: full dumps, batches of changes, notifications.

For: tens of thousands of entries (docs/decisions/0021). Not for: the meaning of messages (dumps.py, rules/)
or for setting things up, which pyroute2 does (rtnetlink.py). Source: RFC 3549, linux/netlink.h,
linux/rtnetlink.h. A socket belongs to the namespace in which it was made. Words are the machine's: lowest
byte first, as on x86 and arm64.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from twinbed import BackendError

Words = NDArray[np.uint32]
Whole = NDArray[np.int64]
Path = tuple[int, ...]
"""An attribute's kind, preceded by the kinds of the attributes that it is nested in."""

HEADER = struct.Struct("=IHHII")
"""struct nlmsghdr: length, kind, flags, sequence number, port."""

REQUEST, ACK, ROOT_AND_MATCH = 0x1, 0x4, 0x300
DUMP_INTERRUPTED = 0x10
ERROR, DONE = 2, 3

FIRST_HEADER_WORD = HEADER.size // 4

_SOL_NETLINK, _ADD_MEMBERSHIP, _DROP_MEMBERSHIP, _STRICT_CHECK = 270, 1, 2, 12
_SO_RCVBUFFORCE = 33
_MOST_BYTES = 1 << 17
"""Largest datagram that is read, bytes. The kernel's dumps have datagrams of 32 KiB."""

_KIND_MASK = 0x3FFF
"""The bits of an attribute's type that are its kind; the others are flags (nested, byte order)."""


class Inside(Enum):
    """Content of an attribute. HOPS: struct rtnexthop with attributes; a hop's kind is its number."""

    ATTRIBUTES = "attributes"
    HOPS = "hops"


@dataclass(frozen=True, slots=True)
class Messages:
    """Netlink messages in the order of their arrival.

    words: 32-bit words of all messages. starts: int64[n], index of each message's first word. interrupted:
    whether the kernel says that the table changed meanwhile. parts: number of datagrams in which they came.
    """

    words: Words
    starts: Whole
    interrupted: bool = False
    parts: int = 1

    def column(self, word: int) -> Whole:
        """Return int64[n]: each message's word number `word`."""
        return self.words[self.starts + word].astype(np.int64)

    def take(self, rows: Whole | NDArray[np.bool_]) -> Messages:
        """Return the messages at `rows` (positions or a mask)."""
        return Messages(self.words, self.starts[rows], self.interrupted, self.parts)

    @property
    def kinds(self) -> Whole:
        """Kind of each message (RTM_…), int64[n]."""
        return self.column(1) & 0xFFFF


class Alike:
    """Messages with the same attributes at the same places, so that one attribute is one column."""

    def __init__(self, words: Words, starts: Whole, places: Mapping[Path, int]) -> None:
        self._words, self._network = words, words.view(words.dtype.newbyteorder(">"))
        self._starts, self._places = starts, places
        self.count = len(starts)

    def __contains__(self, path: Path) -> bool:
        return path in self._places

    @property
    def paths(self) -> Collection[Path]:
        """The attributes that the messages have."""
        return self._places.keys()

    def place(self, *path: int) -> int:
        """Return the attribute's first word, counted from the message's first word."""
        return self._places[path]

    def size_bytes(self, *path: int) -> int:
        """Return the attribute's size, the same in every message; 0 if there is none."""
        place = self._places.get(path)
        return 0 if place is None else int(self._words[self._starts[0] + place - 1] & 0xFFFF) - 4

    def header(self, word: int) -> Whole:
        """Return int64[count]: a word of the family's header (0: the first after nlmsghdr)."""
        return self._words[self._starts + FIRST_HEADER_WORD + word].astype(np.int64)

    def word(self, *path: int, at: int = 0, missing: int = 0) -> Whole:
        """Return int64[count]: the attribute's word in host byte order; `missing` if there is none."""
        place = self._places.get(path)
        if place is None:
            return np.full(self.count, missing, np.int64)
        return self._words[self._starts + place + at].astype(np.int64)

    def network_word(self, *path: int, at: int = 0, missing: int = 0) -> Whole:
        """Return the same as `word`, but read in network byte order, as for an IPv4 address."""
        place = self._places.get(path)
        if place is None:
            return np.full(self.count, missing, np.int64)
        return self._network[self._starts + place + at].astype(np.int64)

    def mac(self, *path: int) -> Whole:
        """Return int64[count]: the attribute's six bytes as a number, the first byte highest."""
        return (self.network_word(*path) << 16) | (self.network_word(*path, at=1) >> 16)

    def text(self, row: int, *path: int) -> str:
        """Return one message's attribute as text; empty if there is none."""
        if path not in self._places:
            return ""
        place = int(self._starts[row]) + self._places[path]
        data = self._words[place : place + (int(self._words[place - 1] & 0xFFFF) + 3 >> 2) - 1].tobytes()
        return data.partition(b"\0")[0].decode(errors="replace")


def alike(messages: Messages, header_words: int, nested: Mapping[Path, Inside]) -> Iterator[Alike]:
    """Yield the messages by layout. header_words: length of the family's header, words. nested: attributes
    that are parsed, too.

    One message of each layout is parsed attribute by attribute. The others are compared with it by columns.
    """
    words, left = messages.words, messages.starts
    while left.size:
        length = words[left] >> 2
        start = int(left[0])
        places: dict[Path, int] = {}
        marks: list[tuple[int, int]] = []
        first = start + FIRST_HEADER_WORD + header_words
        _walk(words, start, (first, start + int(length[0])), (), nested, places, marks)
        same = length == length[0]
        for place, mask in marks:
            candidates = left[same]
            fits = (words[candidates + place] & mask) == (words[start + place] & mask)
            if not fits.all():
                same[same] = fits
        yield Alike(words, left[same], places)
        left = left[~same]


def _walk(
    words: Words,
    start: int,
    span: tuple[int, int],
    path: Path,
    nested: Mapping[Path, Inside],
    places: dict[Path, int],
    marks: list[tuple[int, int]],
) -> None:
    """Record the place of each attribute in a message (places), and the words that determine it (marks)."""
    at, end = span
    hops = nested.get(path) is Inside.HOPS
    number = 0
    while at < end:
        word = int(words[at])
        length, kind = word & 0xFFFF, number if hops else (word >> 16) & _KIND_MASK
        if length < 4:
            return
        attribute_path = (*path, kind)
        behind = at + ((length + 3) >> 2)
        places.setdefault(attribute_path, at + 1 - start)
        # The upper half of a hop's first word is its state, which is not part of the layout.
        marks.append((at - start, 0xFFFF if hops else 0xFFFFFFFF))
        if hops or attribute_path in nested:
            _walk(words, start, (at + 1 + hops, behind), attribute_path, nested, places, marks)
        at, number = behind, number + 1


class Socket:
    """A socket to the kernel's routing side. Usable as a context manager.

    buffer_bytes: size of the kernel's receive buffer, bytes. CAP_NET_ADMIN may exceed the system's limit.
    port: number by which the kernel says whose request a notification is about. Raises BackendError if there
    is no netlink.
    """

    def __init__(self, buffer_bytes: int = 1 << 20) -> None:
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        except OSError as error:
            raise BackendError(f"netlink: no socket ({error.strerror}); this needs Linux") from error
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer_bytes)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        with contextlib.suppress(OSError):
            # Without strict checking the kernel expects other headers in requests to dump neighbours.
            self._socket.setsockopt(_SOL_NETLINK, _STRICT_CHECK, 1)
        self._socket.bind((0, 0))
        self.port: int = self._socket.getsockname()[0]
        self._sequence = 0

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor, for epoll."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._socket.close()

    def join(self, groups: Collection[int]) -> None:
        """Receive notifications of these groups (RTNLGRP_…) from now on."""
        for group in groups:
            self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)

    def leave(self, groups: Collection[int]) -> None:
        """Receive notifications of these groups no more."""
        for group in groups:
            self._socket.setsockopt(_SOL_NETLINK, _DROP_MEMBERSHIP, group)

    def dump(self, kind: int, body: bytes) -> Messages:
        """Return a complete table. kind: RTM_GET…. body: the family's header and the attributes that select.

        Raises OSError with the kernel's reason.
        """
        self._sequence += 1
        request = HEADER.pack(HEADER.size + len(body), kind, REQUEST | ROOT_AND_MATCH, self._sequence, 0)
        self._socket.send(request + body)
        parts: list[bytes] = []
        rows: list[Whole] = []
        first = 0
        last_kind = 0
        while last_kind != DONE:
            part = self._socket.recv(_MOST_BYTES)
            starts = _starts(part)
            if HEADER.unpack_from(part, 4 * starts[0])[3] != self._sequence:
                continue  # the rest of an earlier dump that failed
            last_kind = HEADER.unpack_from(part, 4 * starts[-1])[1]
            if last_kind in (ERROR, DONE):
                _check(part, int(starts[-1]))
                starts = starts[:-1]
            if starts.size:
                parts.append(part)
                rows.append(starts + first)
                first += len(part) >> 2
        words = np.frombuffer(b"".join(parts), np.uint32)
        starts = np.concatenate([np.empty(0, np.int64), *rows])
        interrupted = bool(((words[starts + 1] >> 16) & DUMP_INTERRUPTED).any())
        return Messages(words, starts, interrupted, len(parts))

    def change(self, requests: bytes, count: int) -> list[tuple[int, int]]:
        """Make `count` requests with sequence numbers 0, 1, … The last one asks for an answer.

        Returns (sequence number, errno) of the refused ones. Raises OSError if the kernel takes none of them.
        """
        self._socket.send(requests)
        refused: list[tuple[int, int]] = []
        while True:
            part = self._socket.recv(_MOST_BYTES)
            for start in _starts(part).tolist():
                _, kind, _, number, _ = HEADER.unpack_from(part, 4 * start)
                if kind != ERROR:
                    continue
                (code,) = struct.unpack_from("=i", part, 4 * start + HEADER.size)
                if code:
                    refused.append((number, -code))
                if number == count - 1:
                    return refused

    def receive(self) -> bytes | None:
        """Return a waiting datagram of notifications, or None. Raises OSError ENOBUFS if some were lost."""
        try:
            return self._socket.recv(_MOST_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None


def request(kind: int, flags: int, body: bytes, number: int = 0) -> bytes:
    """Return a request for a change that asks for an answer. body: the family's header and attributes."""
    return HEADER.pack(HEADER.size + len(body), kind, REQUEST | ACK | flags, number, 0) + body


def attribute(kind: int, data: bytes) -> bytes:
    """Return an attribute with its header, padded to whole words."""
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def messages_of(datagrams: list[bytes]) -> Messages:
    """Return the messages of datagrams, in order."""
    whole = b"".join(datagrams)
    return Messages(np.frombuffer(whole, np.uint32), _starts(whole))


def _starts(part: bytes) -> Whole:
    """Return int64[n]: the first word of each message."""
    if not part:
        return np.empty(0, np.int64)
    lengths = np.frombuffer(part, np.uint32)
    step = (int(lengths[0]) + 3) >> 2
    if len(lengths) % step == 0 and (lengths[::step] == lengths[0]).all():
        # All messages are as long as the first, as in most of a large dump.
        return np.arange(0, len(lengths), step)
    words = memoryview(part).cast("I")
    starts: list[int] = []
    at = 0
    while at < len(words):
        starts.append(at)
        at += (words[at] + 3) >> 2
    return np.array(starts, np.int64)


def _check(part: bytes, start: int) -> None:
    """Raise OSError for a dump that the kernel refused or broke off."""
    length = HEADER.unpack_from(part, 4 * start)[0]
    code = struct.unpack_from("=i", part, 4 * start + HEADER.size)[0] if length > HEADER.size else 0
    if code < 0:
        raise OSError(-code, os.strerror(-code))


def name_of(number: int) -> str:
    """Return an error number as text, such as `ENOSPC: No space left on device`."""
    return f"{errno.errorcode.get(number, number)}: {os.strerror(number)}"
