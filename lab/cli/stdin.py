"""Standard input in place of a file: `-` where a verb takes a trace or a scenario.

For: copying standard input to a file, since readers of traces seek in it, and naming it `-` in messages. Not
for: reading the text, which obeys the same limits as a file.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import typer

from twinbed import TraceError
from twinbed.files import MIB

NAME = "-"
_CHUNK = MIB
_kept: list[str] = []
"""Paths that hold standard input in this process."""


def trace(context: typer.Context, source: str) -> str:
    """Return the path of a copy of standard input for `-`; other text unchanged. The copy is removed when the
    verb ends.

    Raises TraceError if it is empty or larger than a trace may be.
    """
    if source != NAME:
        return source
    from traces.parquet_file import MOST_FILE_BYTES

    folder = Path(tempfile.mkdtemp(prefix="twinbed-stdin-"))
    context.call_on_close(lambda: shutil.rmtree(folder, ignore_errors=True))
    path, size = folder / NAME, 0
    with path.open("wb") as copy:
        while chunk := sys.stdin.buffer.read(_CHUNK):
            size += len(chunk)
            if size > MOST_FILE_BYTES:
                raise TraceError(f"-: larger than {MOST_FILE_BYTES // MIB} MiB, the most that is read")
            copy.write(chunk)
    if not size:
        raise TraceError("-: standard input is empty, expected a trace")
    _kept.append(str(path))
    return str(path)


def traces(context: typer.Context, sources: list[str] | None) -> list[str] | None:
    """Return sources with `-` replaced as by `trace`. Raises TraceError if it occurs twice."""
    if sources and sources.count(NAME) > 1:
        raise TraceError("-: standard input can be read once; give `-` once")
    return sources and [trace(context, source) for source in sources]


def named(text: str) -> str:
    """Return a message or a cell in which standard input has the name that the user gave."""
    for path in _kept:
        text = text.replace(path, NAME)
    return text
