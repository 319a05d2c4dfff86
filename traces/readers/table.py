"""Reads tables that somebody else wrote (CSV, plain or gzipped), and reports every failure in one line.

For: all text readers. Not for: what the columns mean (each reader says that), nor time grids (regular.py).
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from twinbed import TraceError

FIRST_LINE = 2
"""File line of a table's first row: line 1 is the header."""

_HEADER_BYTES = 1 << 16


def header(path: Path) -> list[str]:
    """Returns the column names in a CSV's first line.

    Raises TraceError when the file is missing, empty, binary, or not the gzip that its name claims.
    """
    try:
        with _open(path) as file:
            start = file.read(_HEADER_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error
    if not start.strip():
        raise TraceError(f"{path}: the file is empty, expected a header line and rows")
    if b"\0" in start:
        raise TraceError(f"{path}: binary data, expected CSV text")
    try:
        line = start.splitlines()[0].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not UTF-8 text (byte {error.start} of the header)") from error
    return [name.strip() for name in next(csv.reader([line], skipinitialspace=True))]


def read_text(path: Path, max_rows: int) -> pd.DataFrame:
    """Returns all cells of a CSV as text, one column per header name; the index is the line number in the
    file.

    Blank lines are left out. Raises TraceError as `header` does, and on a duplicate column, a line with
    too many fields, no rows, or more than max_rows rows.
    """
    names = header(path)
    for name in names:
        if names.count(name) > 1:
            raise TraceError(f"{path}: column {name!r} appears twice in the header")
    try:
        with _open(path) as file:
            frame = pd.read_csv(
                file,
                header=0,
                names=names,
                dtype="str",
                na_filter=False,
                skip_blank_lines=False,
                skipinitialspace=True,
                nrows=max_rows + 1,
                encoding="utf-8-sig",
            )
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, pd.errors.ParserError) as error:
        raise _unreadable(path, error) from error
    _refuse_surplus(path, frame)
    frame.index = pd.RangeIndex(FIRST_LINE, FIRST_LINE + len(frame))
    if len(frame) > max_rows:
        raise TraceError(f"{path}: more than {max_rows} rows; select a part, or raise max_rows")
    blank = (frame.fillna("") == "").all(axis=1)
    if blank.any():
        frame = frame[~blank]
    if frame.empty:
        raise TraceError(f"{path}: no rows below the header, expected at least one")
    return frame


def numbers(path: Path, cells: pd.Series[str], *, blank_is_nan: bool = False) -> NDArray[np.float64]:
    """Returns a text column as float64[n]; empty cells become NaN if blank_is_nan.

    Raises TraceError, which names the line and column of the first cell that is not a finite number.
    """
    text = pa.array(cells.str.strip(), pa.string(), from_pandas=True).fill_null("")
    blank = pc.equal(text, "")
    filled = pc.if_else(blank, "nan", text)
    try:
        values = np.asarray(filled.cast(pa.float64()), np.float64)
    except pa.ArrowInvalid:
        values = np.array([_number(cell) for cell in filled.to_pylist()], np.float64)
    bad = ~np.isfinite(values)
    if blank_is_nan:
        bad &= ~np.asarray(blank)
    refuse(path, cells, bad, "a finite number")
    return values


def read_known(path: Path, columns: Sequence[str], **types: str) -> pd.DataFrame:
    """Returns the named columns of a public data set's CSV, parsed by pandas (missing values are NaN).

    Raises TraceError as `header` does, on a missing column and on a cell that does not parse.
    """
    require(path, header(path), columns)
    try:
        with _open(path) as file:
            frame = pd.read_csv(file, dtype=types or None)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise _unreadable(path, error) from error
    _refuse_surplus(path, frame)
    frame = frame[list(columns)]
    if frame.empty:
        raise TraceError(f"{path}: no rows below the header, expected at least one")
    text = [name for name in columns if name not in types and not pd.api.types.is_numeric_dtype(frame[name])]
    for name in text:
        cells = frame[name].astype("str").set_axis(range(FIRST_LINE, FIRST_LINE + len(frame)))
        numbers(path, cells, blank_is_nan=True)
    return frame


def iso_ns(path: Path, cells: pd.Series[str]) -> NDArray[np.int64] | None:
    """Returns ISO 8601 times as nanoseconds since 1970, int64[n]; UTC if no zone is given.

    Returns None if the first cell looks like a number. Raises TraceError, which names the line of the first
    cell that is no time.
    """
    if cells.iloc[0].count("-") < 2 or "e" in cells.iloc[0].lower():
        return None
    stamps = pd.to_datetime(cells.str.strip(), format="ISO8601", utc=True, errors="coerce")
    refuse(path, cells, stamps.isna().to_numpy(), "an ISO 8601 time")
    return np.asarray(stamps.dt.as_unit("ns").astype("int64"), np.int64)


def refuse(path: Path, cells: pd.Series[str], bad: NDArray[np.bool_], expected: str) -> None:
    """Raises TraceError, which names the line and column of the first bad cell, if there is one."""
    if bad.any():
        row = int(np.argmax(bad))
        shown = repr(cells.iloc[row].strip()) if cells.iloc[row].strip() else "an empty cell"
        raise TraceError(
            f"{path}: line {cells.index[row]}, column {cells.name}: {shown}, expected {expected}"
        )


def only(path: Path, frame: pd.DataFrame, names: Sequence[str]) -> str:
    """Returns the one of `names` that is a column. Raises TraceError if none is, or more than one."""
    present = [name for name in names if name in frame]
    if len(present) > 1:
        raise TraceError(f"{path}: columns {' and '.join(present)} mean the same; keep one")
    if not present:
        have = ", ".join(map(str, frame.columns[:12]))
        raise TraceError(f"{path}: no column {' or '.join(map(repr, names))}; the file has {have}")
    return present[0]


def require(path: Path, columns: Sequence[str], wanted: Iterable[str]) -> None:
    """Raises TraceError, which names the columns of `wanted` that are not in `columns`."""
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise TraceError(
            f"{path}: no column {', '.join(map(repr, missing))}; the file has {', '.join(columns[:12])}"
        )


def one_of(path: Path, noun: str, value: object, known: Iterable[object]) -> None:
    """Raises TraceError, which lists `known`, if `value` is not one of them."""
    options = sorted(set(known), key=str)
    if value not in options:
        raise TraceError(f"{path}: no {noun} {value!r}; there are {', '.join(map(str, options[:20]))}")


def _refuse_surplus(path: Path, frame: pd.DataFrame) -> None:
    """Raises TraceError if the first row has surplus fields: pandas would take them for row labels."""
    if not isinstance(frame.index, pd.RangeIndex):
        raise TraceError(f"{path}: line {FIRST_LINE} has more fields than the header")


def _number(cell: str) -> float:
    try:
        return float(pa.scalar(cell).cast(pa.float64()).as_py())
    except pa.ArrowInvalid:
        return float("nan")


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _unreadable(path: Path, error: BaseException) -> TraceError:
    if isinstance(error, FileNotFoundError):
        return TraceError(f"{path}: no such file")
    if isinstance(error, gzip.BadGzipFile):
        return TraceError(f"{path}: its name ends in .gz, but it is not gzip data")
    if isinstance(error, EOFError | zlib.error):
        return TraceError(f"{path}: the gzip data is cut short or damaged")
    if isinstance(error, UnicodeDecodeError):
        return TraceError(f"{path}: not UTF-8 text (binary data?)")
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return TraceError(f"{path}: cannot be read as CSV ({reason})")
