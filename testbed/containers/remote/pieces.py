"""Long lists in messages of bounded size.

For: splitting what one side has to say. Not for: putting it together, which each receiver does itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from google.protobuf.message import Message

PIECE_BYTES = 256 << 10
"""Largest piece, bytes, well below a message's largest size; a single entry may be larger."""

_Entry = TypeVar("_Entry", bound=Message)


def pieces(entries: Iterable[_Entry]) -> Iterator[list[_Entry]]:
    """Yield the entries in order, in lists of at most PIECE_BYTES together."""
    piece: list[_Entry] = []
    size = 0
    for entry in entries:
        entry_bytes = entry.ByteSize()
        if piece and size + entry_bytes > PIECE_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(entry)
        size += entry_bytes
    if piece:
        yield piece
