"""Damaged input: a file of a corpus, changed in a few places.

For: bytes that are nearly right, which get further into a reader than noise does. Not for: any one format.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

MOST_BYTES = 1 << 18
"""Largest case, bytes. A small file must not cost much, so larger ones are of no use here."""

NUMBERS = (
    b"0", b"-1", b"-0.0", b"0.5", b"1e308", b"-1e308", b"1e-320", b"1e999", b"nan", b"inf", b"-inf",
    b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", b"2147483648", b"1" * 5000,
    b"1_000", b"0x10", b"1e18", b"1e9", b"\xd9\xa3",
)  # fmt: skip
"""Numbers at which arithmetic ends, and text that some parsers take for a number."""

WORDS = (
    b"", b"\n", b"\r", b"\r\n\r\n", b",", b",,", b'"', b'""', b"'", b": ", b"- ", b"#", b"\t", b"\0",
    b"\x1b[31m", b"\xff\xfe", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"{", b"}", b"[", b"]",
    b"{}", b"[]", b"null", b"true", b"~", b"&a ", b"*a", b"<<: *a", b"!!python/object:os.system ",
    b"!!binary ", b"? ", b"|\n", b"=", b"..", b"../../etc/passwd", b"/dev/zero", b"2024-02-30", b"0000-00-00",
    b"9999-12-31T23:59:60Z", b"1677-01-01", b"1/1e9", b"1e999999999", b"%s", b"{0}", b"\\u0000",
    b"[" * 3000, b"{a: " * 500, b"a" * 70_000,
)  # fmt: skip
"""What has a meaning for some parser, or none for all of them."""

_NUMBER = re.compile(rb"-?\d[\d.]*")
_Change = Callable[[st.DrawFn, bytes, Sequence[bytes]], bytes]


def _at(draw: st.DrawFn, data: bytes) -> int:
    return draw(st.integers(0, len(data)))


def _span(draw: st.DrawFn, data: bytes) -> tuple[int, int]:
    first = _at(draw, data)
    return first, min(len(data), first + draw(st.sampled_from([1, 2, 4, 16, 64, 1024])))


def _flip(draw: st.DrawFn, data: bytes, seeds: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = draw(st.integers(0, len(data) - 1))
    return data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]


def _truncate(draw: st.DrawFn, data: bytes, seeds: Sequence[bytes]) -> bytes:
    return data[: _at(draw, data)]


def _cut(draw: st.DrawFn, data: bytes, seeds: Sequence[bytes]) -> bytes:
    first, end = _span(draw, data)
    return data[:first] + data[end:]


def _overwrite(draw: st.DrawFn, data: bytes, seeds: Sequence[bytes]) -> bytes:
    first, end = _span(draw, data)
    filling = draw(st.sampled_from([b"\0", b"\xff", b"\x80", b"\x7f"]))
    return data[:first] + filling * (end - first) + data[end:]


def _many(draw: st.DrawFn, part: bytes) -> bytes:
    count = draw(st.sampled_from([1, 2, 50, 3000]))
    return part * min(count, MOST_BYTES // max(1, len(part)) + 1)


def _repeat(draw: st.DrawFn, data: bytes, seeds: Sequence[bytes]) -> bytes:
    first, end = _span(draw, data)
    return data[:end] + _many(draw, data[first:end]) + data[end:]


def _repeat_line(draw: st.DrawFn, data: bytes, seeds: Sequence[bytes]) -> bytes:
    lines = data.splitlines(keepends=True)
    at = draw(st.integers(0, max(0, len(lines) - 1)))
    return b"".join([*lines[: at + 1], _many(draw, b"".join(lines[at : at + 1])), *lines[at + 1 :]])


def _splice(draw: st.DrawFn, data: bytes, seeds: Sequence[bytes]) -> bytes:
    other = draw(st.sampled_from(seeds))
    return data[: _at(draw, data)] + other[_at(draw, other) :]


def _word(draw: st.DrawFn, data: bytes, seeds: Sequence[bytes]) -> bytes:
    at = _at(draw, data)
    return data[:at] + draw(st.sampled_from(WORDS)) + data[at:]


def _number(draw: st.DrawFn, data: bytes, seeds: Sequence[bytes]) -> bytes:
    places = list(_NUMBER.finditer(data))
    if not places:
        return data
    place = draw(st.sampled_from(places))
    number = draw(st.sampled_from(NUMBERS))
    if draw(st.booleans()):
        # Lengths that are written elsewhere in the file stay right.
        number = number.ljust(len(place[0]), b"9")[: len(place[0])]
    return data[: place.start()] + number + data[place.end() :]


CHANGES: tuple[_Change, ...] = (
    _flip, _truncate, _cut, _overwrite, _repeat, _repeat_line, _splice, _word, _number, _number,
)  # fmt: skip


class Case(bytes):
    """Bytes that Hypothesis shows shortened, because their whole text helps nobody."""

    def __repr__(self) -> str:
        return f"{len(self)} bytes"


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[bytes]) -> Case:
    """Draw one of the seeds with up to four changes. Gzipped content is mostly changed before it is
    compressed."""
    data = draw(st.sampled_from(seeds))
    packed = data[:2] == b"\x1f\x8b" and draw(st.integers(0, 3)) > 0
    if packed:
        try:
            data = zlib.decompressobj(31).decompress(data, MOST_BYTES)
        except zlib.error:
            packed = False
    for _ in range(draw(st.integers(0, 4))):
        data = draw(st.sampled_from(CHANGES))(draw, data, seeds)[:MOST_BYTES]
    return Case(gzip.compress(data, mtime=0) if packed else data)
