"""Opens files that a user may have compressed with gzip, and gives their content.

For: every reader of text. Not for: Parquet, nor the meaning of the content. The first bytes of a file say
whether it is gzipped, whatever its name.
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from twinbed import TraceError
from twinbed.files import MIB, open_regular

UTF8_MARK = b"\xef\xbb\xbf"
"""Bytes with which some programs begin a text in UTF-8."""

_MARK = b"\x1f\x8b"

_EXPANSION, _SMALL_BYTES = 100, 8 * MIB
"""Factor by which gzip data may expand, and size, bytes, to which they may expand in any case. Gzip makes
traces 5 to 50 times smaller."""


@contextmanager
def opened(path: Path, most_bytes: int) -> Iterator[BufferedReader | gzip.GzipFile]:
    """Open a file's content, to be read inside the block. most_bytes: largest size of the stored file.

    Raises TraceError that names the path, also for gzip data that turn out to be damaged inside the block.
    """
    with open_regular(path, most_bytes, TraceError) as raw:
        try:
            if raw.peek(len(_MARK)).startswith(_MARK):
                with gzip.GzipFile(fileobj=raw) as content:
                    yield content
            else:
                yield raw
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise TraceError(f"{path}: the gzip data is cut short or damaged; save it again") from None
        except OSError as refused:
            raise TraceError(f"{path}: {refused.strerror or refused}") from None


def most_text(file: BufferedReader | gzip.GzipFile, most_bytes: int) -> int:
    """Return the largest size of an opened file's content, bytes. most_bytes: that of a plain file."""
    if isinstance(file, gzip.GzipFile):
        return max(_SMALL_BYTES, _EXPANSION * os.fstat(file.fileno()).st_size)
    return most_bytes


def expands(path: Path, most_bytes: int) -> TraceError:
    """Return the error for content that is larger than `most_text` allows."""
    return TraceError(
        f"{path}: expands to more than {most_bytes // MIB} MiB, over {_EXPANSION} times its size; "
        "decompress it first"
    )


def head(path: Path, size: int) -> bytes:
    """Return the first bytes of a file's content, without UTF8_MARK. Raises TraceError."""
    with opened(path, sys.maxsize) as file:
        return file.read(size).removeprefix(UTF8_MARK)


def pieces(path: Path, most_bytes: int, size: int) -> Iterator[bytes]:
    """Yield a file's content in pieces of `size` bytes, without UTF8_MARK. Raises TraceError.

    most_bytes: largest size of the stored file.
    """
    with opened(path, most_bytes) as file:
        most, total = most_text(file, most_bytes), 0
        while piece := file.read(size):
            if not total:
                piece = piece.removeprefix(UTF8_MARK)
            total += len(piece)
            if total > most:
                raise expands(path, most)
            yield piece
