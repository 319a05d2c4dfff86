"""Open a profiler's trace, and read JSON objects that follow each other in a file larger than the memory.

For: traces of profilers (kineto.py, chakra.py). Not for: files that fit into memory.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, TextIO, cast

from traces import gzipped
from traces.readers.table import MOST_FILE_BYTES
from twinbed import TraceError
from twinbed.files import MIB

MOST_TEXT_BYTES = 2048 * MIB
"""Largest size of a trace's unpacked text, bytes: some ten million events."""
_MOST_OBJECT_BYTES = MIB
"""Largest size of one object's text, bytes."""

_OTHER_FORM = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""Python's errors about a value of another form than expected."""

_BETWEEN = re.compile(r"[\s,]*")


@contextmanager
def opened(path: Path, form: str, *errors: type[Exception]) -> Iterator[BufferedReader | gzip.GzipFile]:
    """Open a trace, gzipped or not, to be read inside the block. form: name of an event of another form.

    Raises TraceError that names the path, for damage, for Python's errors about values of another form than
    expected, and for `errors`, which are a parser's.
    """
    other: tuple[type[Exception], ...] = (*_OTHER_FORM, *errors)
    with gzipped.opened(path, MOST_FILE_BYTES) as file:
        try:
            yield file
        except UnicodeDecodeError as error:
            raise TraceError(f"{path}: not UTF-8 text (byte {error.start})") from None
        except other as error:
            raise TraceError(f"{path}: {form} ({error!r})") from None


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
