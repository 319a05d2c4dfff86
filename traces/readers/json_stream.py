"""Read JSON objects that follow each other in a file that is too large for the memory.

For: traces of profilers (kineto.py, chakra.py). Not for: files that fit into memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TextIO, cast

from twinbed import TraceError
from twinbed.files import MIB

MOST_TEXT_BYTES = 2048 * MIB
"""Largest size of a trace's unpacked text, bytes: some ten million events."""
_MOST_OBJECT_BYTES = MIB
"""Largest size of one object's text, bytes."""

_BETWEEN = re.compile(r"[\s,]*")


def objects(file: TextIO, text: str, where: str, closing: str = "") -> Iterator[dict[str, Any]]:
    """Yield the objects, and read the file piece by piece.

    text: text that was read already. closing: text that ends the objects; "": the end of the file. where:
    path, for messages.
    """
    decoder, at, size = json.JSONDecoder(), 0, len(text)
    while True:
        at = cast("re.Match[str]", _BETWEEN.match(text, at)).end()
        if closing and text.startswith(closing, at):
            return
        try:
            event, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            piece = file.read(MIB)
            if not piece and at == len(text) and not closing:
                return
            if not piece or len(text) - at > 2 * _MOST_OBJECT_BYTES:
                raise TraceError(f"{where}: the events end early: {error.msg}; export it again") from None
            text, at, size = text[at:] + piece, 0, size + len(piece)
            if size > MOST_TEXT_BYTES:
                raise TraceError(f"{where}: more than 2 GiB of text; profile fewer steps") from None
            continue
        yield event
