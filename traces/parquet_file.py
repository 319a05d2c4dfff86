"""Open a Parquet file from an untrusted source, after a check of its footer.

For: every reader of a user's Parquet. Not for: the meaning of the columns. A few bytes of Parquet can encode
millions of rows, so a file is judged by its footer and not by its size on disk.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from traces.schema import MOST_READ_CELLS
from twinbed import BackendError, TraceError
from twinbed.files import MIB, open_regular, read_head
from twinbed.text import printable

MAGIC = b"PAR1"
"""The first and last four bytes of every Parquet file."""

MOST_FILE_BYTES = 1024 * MIB
"""Largest size of a stored file, bytes."""

MOST_FOOTER_BYTES = 4 * MIB
"""Largest footer, bytes. It is parsed before its content can be checked."""

MOST_COLUMNS = 64
"""Largest number of columns of a file, unless its reader allows more."""

MOST_USER_COLUMNS = 10_000
"""Largest number of columns of a user's table. More containers are better stored in lines."""

MOST_BYTES = 1024 * MIB
"""Largest size of a file's unpacked columns, as the footer declares it, bytes."""

_LENGTH_BYTES = 4

_COLUMNS = """
    SELECT row_group_id, row_group_num_rows, path_in_schema, num_values, total_uncompressed_size
    FROM parquet_metadata(?)
"""


def is_parquet(path: Path) -> bool:
    """Return whether a file is Parquet by its name or its first bytes. Raises TraceError if it is missing."""
    if not path.exists():
        raise TraceError(f"{path}: no such file")
    return path.suffix in {".parquet", ".pq"} or read_head(path, len(MAGIC), TraceError) == MAGIC


@contextmanager
def opened(
    path: Path,
    text: Collection[str] = (),
    numbers: Collection[str] = (),
    most_rows: int = MOST_READ_CELLS,
    most_columns: int = MOST_COLUMNS,
) -> Iterator[pq.ParquetFile]:
    """Open the Parquet file at `path`.

    Raises TraceError, in one line, for whatever Arrow and DuckDB refuse, and BackendError if memory is short.

    text, numbers: names of columns that must be text or numbers if the file has them. Text stays
    dictionary-encoded, so that a repeated long word is stored once.
    most_rows, most_columns: largest numbers of rows and columns.
    """
    if not path.exists():
        raise TraceError(f"{path}: no such file")
    with open_regular(path, MOST_FILE_BYTES, TraceError) as raw:
        try:
            _check_footer(path, raw)
            metadata = pq.read_metadata(raw)
            _check_size(path, raw, metadata, most_rows, most_columns)
            leaves = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
            kept = [name for name in text if name in leaves]
            raw.seek(0)
            with pq.ParquetFile(
                raw, metadata=metadata, read_dictionary=kept, page_checksum_verification=True
            ) as file:
                _check_types(path, file.schema_arrow, text, numbers)
                yield file
        except (pa.ArrowException, duckdb.Error, OSError, ValueError) as error:
            # Thrift raises the same error for a lack of memory as for damage. Only its text differs.
            short = isinstance(error, pa.ArrowMemoryError | duckdb.OutOfMemoryException)
            if short or "std::bad_alloc" in str(error):
                # The file itself may be undamaged.
                raise BackendError(f"{path}: not enough memory to read it") from error
            raise TraceError(f"{path}: not a readable Parquet file ({_first_line(error)})") from error


def _check_footer(path: Path, file: BinaryIO) -> None:
    """Raise TraceError if the footer is too long to be parsed. Arrow judges files without a footer."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _LENGTH_BYTES - len(MAGIC)))
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    file.seek(0)
    if MOST_FOOTER_BYTES < length <= end:
        raise TraceError(f"{path}: a footer of {length} bytes, expected at most {MOST_FOOTER_BYTES}")


def _check_size(
    path: Path, file: BinaryIO, metadata: pq.FileMetaData, most_rows: int, most_columns: int
) -> None:
    """Raise TraceError if the footer declares more columns, rows or bytes than a file may have.

    DuckDB reads the columns' entries, because Arrow ends the process at some entries that contradict
    themselves. The file is named by its descriptor, since DuckDB takes `*` and `[` in a path for patterns.
    """
    if metadata.num_columns > most_columns:
        raise TraceError(f"{path}: {metadata.num_columns} columns, expected at most {most_columns}")
    if not 0 <= metadata.num_rows <= most_rows:
        raise TraceError(f"{path}: {metadata.num_rows} rows, expected at most {most_rows}")
    with duckdb.connect() as database:
        columns = database.execute(_COLUMNS, [f"/dev/fd/{file.fileno()}"]).fetchall()
    rows = {group: group_rows for group, group_rows, *_ in columns}
    for _, group_rows, name, values, _ in columns:
        if values != group_rows:
            raise TraceError(f"{path}: column {name!r} has not one value a row")
    size = sum(column_bytes for *_, column_bytes in columns)
    if sum(rows.values()) != metadata.num_rows or not 0 <= size <= MOST_BYTES:
        raise TraceError(
            f"{path}: {sum(rows.values())} rows in {size} bytes, expected {metadata.num_rows} in {MOST_BYTES}"
        )


def _check_types(path: Path, schema: pa.Schema, text: Collection[str], numbers: Collection[str]) -> None:
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        # A column without a single value is written with the type of null.
        is_number = is_number or pa.types.is_null(field.type)
        if (field.name in text and not is_text) or (field.name in numbers and not is_number):
            expected = "text" if field.name in text else "numbers"
            raise TraceError(
                f"{path}: column {field.name} holds {str(field.type)[:60]!r}, expected {expected}"
            )


def _first_line(error: BaseException) -> str:
    # Arrow quotes the file's own bytes, which may be a terminal's control sequences.
    return printable(str(error).split("\n", 1)[0]) or type(error).__name__
