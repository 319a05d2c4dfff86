"""Read tables of other programs (CSV, plain or gzipped, and Parquet), and report every failure in one line.

For: all text readers. Not for: the meaning of columns (each reader says it), nor time grids (regular.py).
"""

from __future__ import annotations

import csv
import gzip
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from traces import gzipped, parquet_file
from traces.parquet_file import MOST_USER_COLUMNS
from twinbed import TraceError
from twinbed.files import MIB, as_text
from twinbed.text import printable

MOST_FILE_BYTES = 1024 * MIB
"""Largest size of a stored file, bytes."""

MOST_LINE_BYTES = MIB
"""Longest line, bytes. It has room for 10,000 columns of a hundred characters."""

MOST_CELLS = 50_000_000
"""Largest number of cells of a table. They are counted while it is read."""

LARGEST = 1e18
"""Largest absolute value of a number, so that no unit makes it overflow."""

_SECONDS = (1e9, 1e11)
"""Times from 2001 on, if they are seconds; the first weeks of 1970 and on, if they are milliseconds."""

_MISSING = ("", "nan", "NaN", "NA", "null")
"""Cells that stand for a missing number in public data sets."""

_BLANK = b", \t\r\n"
"""The characters of a line without a value."""

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

_SLICE = 4096
"""Number of cells that are read together where some cell is no number."""


class _CheckedText:
    """The text of a CSV for a parser. Each line is checked before it is handed on. Blank lines are left out.

    A line has as many fields as the header, is UTF-8 and not too long, and a quoted field ends on the line on
    which it begins. So a parser makes no more cells than the file holds.

    names: names of the columns. lines: numbers of the lines below the header that were handed on.
    """

    def __init__(
        self, path: Path, file: BufferedReader | gzip.GzipFile, most_bytes: int, most_rows: int
    ) -> None:
        self.lines: list[int] = []
        self._path, self._file = path, file
        self._most_bytes, self._most_rows = most_bytes, most_rows
        self._header = self._line(1).removeprefix(gzipped.UTF8_MARK)
        if not self._header.strip():
            raise TraceError(f"{path}: the file is empty, expected a header line and rows")
        if self._header.lower().startswith(b"sep="):
            raise self._wrong(1, "is for Excel; delete it, or switch Grafana's 'Download for Excel' off")
        bare = re.sub(rb'"[^"]*"', b"", self._header)
        if self._header.startswith(_UTF16_MARKS):
            raise self._wrong(1, "the text is UTF-16; save it as UTF-8")
        if (b";" in bare or b"\t" in bare) and b"," not in bare:
            shown = printable(self._header[:120].decode("utf-8", "replace").strip().replace("\t", " "))
            raise self._wrong(1, f"expected ',' between fields and a point in numbers; the file has {shown}")
        self.names = [name.strip() for name in self._split(1, self._header)]
        _check_names(path, self.names)
        self._rows = self._checked()

    def read(self, size: int) -> bytes:
        """Return whole lines of about `size` bytes together; b"" at the end."""
        text, length = [self._header], len(self._header)
        self._header = b""
        while length < size and (line := next(self._rows, b"")):
            text.append(line)
            length += len(line)
        return b"".join(text)

    def __iter__(self) -> Iterator[bytes]:
        return self._rows

    def _line(self, number: int) -> bytes:
        line = self._file.readline(MOST_LINE_BYTES + 1)
        if len(line) > MOST_LINE_BYTES:
            raise self._wrong(number, f"longer than {MOST_LINE_BYTES} bytes, the most that is read")
        return line

    def _checked(self) -> Iterator[bytes]:
        columns, number, total = len(self.names), 1, len(self._header)
        most_rows = min(self._most_rows, MOST_CELLS // columns)
        # Every line of a large file comes through here, so this loop only does what most lines need.
        while line := self._line(number := number + 1):
            total += len(line)
            if total > self._most_bytes:
                raise gzipped.expands(self._path, self._most_bytes)
            # Only quotes can hide a comma. So in most lines commas are counted, and the line is not split.
            fields = len(self._split(number, line)) if b'"' in line else line.count(b",") + 1
            if line[0] in _BLANK and not line.strip(_BLANK):
                continue
            if fields != columns:
                more = "more" if fields > columns else "fewer"
                raise TraceError(
                    f"{self._path}: line {number} has {more} fields than the header: "
                    f"{fields}, and not {columns}"
                )
            if b"\0" in line or (b"\r" in line and b"\r" in line[:-2]):
                raise self._wrong(number, "binary data, expected CSV text")
            if not line.isascii():
                as_text(line, f"{self._path}: line {number}", TraceError)
            if len(self.lines) == most_rows:
                raise TraceError(
                    f"{self._path}: more than {most_rows} rows; select a part, or split the file"
                )
            self.lines.append(number)
            yield line if line.endswith(b"\n") else line + b"\n"

    def _split(self, number: int, line: bytes) -> list[str]:
        if b"\0" in line:
            raise self._wrong(number, "binary data, expected CSV text")
        text = as_text(line, f"{self._path}: line {number}", TraceError).rstrip("\r\n")
        try:
            return next(csv.reader([text], skipinitialspace=True, strict=True))
        except csv.Error as error:
            raise self._wrong(number, f"not CSV ({error})") from None

    def _wrong(self, number: int, problem: str) -> TraceError:
        return TraceError(f"{self._path}: line {number}: {problem}")


def _check_names(path: Path, names: Sequence[str]) -> None:
    if len(names) > MOST_USER_COLUMNS:
        raise TraceError(f"{path}: {len(names)} columns, more than {MOST_USER_COLUMNS}")
    seen = set[str]()
    for number, name in enumerate(names, start=1):
        if not name.isprintable():
            raise TraceError(f"{path}: the name of column {number} has a character that cannot be shown")
        if name in seen:
            raise TraceError(f"{path}: column {name!r} appears twice in the header")
        seen.add(name)


@contextmanager
def _opened(path: Path, most_rows: int = MOST_CELLS) -> Iterator[_CheckedText]:
    """Open a CSV, plain or gzipped, as checked text. Raises TraceError for any other file."""
    if not path.exists():
        raise TraceError(f"{path}: no such file")
    with gzipped.opened(path, MOST_FILE_BYTES) as file:
        if path.suffix == ".gz" and not isinstance(file, gzip.GzipFile):
            raise TraceError(f"{path}: its name ends in .gz, but it is not gzip data")
        try:
            yield _CheckedText(path, file, gzipped.most_text(file, MOST_FILE_BYTES), most_rows)
        except ValueError as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise TraceError(f"{path}: cannot be read as CSV ({reason})") from error


def header(path: Path) -> list[str]:
    """Return the column names in a CSV's first line, or of a Parquet table, whose index comes first.

    Raises TraceError when the file is missing, empty, binary, or not the gzip that its name claims.
    """
    if parquet_file.is_parquet(path):
        with parquet_file.opened(path, most_columns=MOST_USER_COLUMNS) as file:
            return _parquet_names(path, file.schema_arrow)
    with _opened(path) as text:
        return text.names


def read_text(path: Path, max_rows: int) -> pd.DataFrame:
    """Return all cells of a table as text, one column per name in `header`. The index is the number of the
    line in a CSV, and of the row in Parquet, whose missing values are empty cells.

    Blank lines are left out. Raises TraceError as `header` does, and on a duplicate column, a line with too
    many or too few fields, no rows, or more than max_rows rows.
    """
    if parquet_file.is_parquet(path):
        return _parquet_text(path, max_rows)
    with _opened(path, max_rows) as text:
        return _parsed(path, text, dtype="str", na_filter=False)


def _parquet_names(path: Path, schema: pa.Schema) -> list[str]:
    """Return a table's columns, those of the index of pandas first."""
    _check_names(path, schema.names)
    try:
        index = [name for name in schema.pandas_metadata["index_columns"] if name in schema.names]
    except (KeyError, RecursionError, TypeError, ValueError):
        index = []  # the table is not from pandas
    return [*index, *(name for name in schema.names if name not in index)]


def _parquet_text(path: Path, max_rows: int) -> pd.DataFrame:
    with parquet_file.opened(path, most_rows=max_rows, most_columns=MOST_USER_COLUMNS) as file:
        names = _parquet_names(path, file.schema_arrow)
        if file.metadata.num_rows * len(names) > MOST_CELLS:
            raise TraceError(f"{path}: more than {MOST_CELLS} cells; select a part, or split the file")
        cells = file.read()
        frame = pd.DataFrame({name: _text(cells.column(name)).to_pandas() for name in names}, dtype="str")
    if frame.empty:
        raise TraceError(f"{path}: no rows, expected at least one")
    frame.index = pd.RangeIndex(1, len(frame) + 1)
    return frame


def _text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as text; times are UTC if they have a zone, else as they are."""
    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        # The way by a number needs no table of zones.
        values = values.cast(pa.int64()).cast(pa.timestamp(values.type.unit))
    return values.cast(pa.string()).fill_null("")


def _parsed(path: Path, text: _CheckedText, **options: Any) -> pd.DataFrame:
    with warnings.catch_warnings():
        # A column of numbers and words is refused by name where numbers are wanted.
        warnings.simplefilter("ignore", pd.errors.DtypeWarning)
        frame: pd.DataFrame = pd.read_csv(
            cast(Any, text), header=0, names=text.names, index_col=False, skipinitialspace=True, **options
        )
    if frame.empty:
        raise TraceError(f"{path}: no rows below the header, expected at least one")
    frame.index = pd.Index(text.lines)
    return frame


def numbers(
    path: Path,
    cells: pd.Series[str],
    *,
    blank_is_nan: bool = False,
    expected: str = "a finite number, such as 1234.5",
) -> NDArray[np.float64]:
    """Return a text column as float64[n]. Empty cells become NaN if blank_is_nan. expected: end of the error.

    Raises TraceError, which names the line and column of the first cell that is not a finite number.
    """
    text = pa.array(cells.str.strip(), pa.string(), from_pandas=True).fill_null("")
    blank = pc.equal(text, "")
    filled = pc.if_else(blank, "nan", text)
    try:
        values = np.asarray(filled.cast(pa.float64()), np.float64)
    except pa.ArrowInvalid:
        values = _until_no_number(filled)
    bad = ~(np.abs(values) <= LARGEST)
    if blank_is_nan:
        bad &= ~np.asarray(blank)
    refuse(path, cells, bad, expected)
    return values


def read_known(path: Path, columns: Sequence[str], needed: Sequence[str] = (), **types: str) -> pd.DataFrame:
    """Return the named columns of a public data set's CSV, parsed by pandas. The index is the line number.

    needed: number columns without missing values. In other number columns a missing value is NaN, in text "".
    types: name of a column → its type.

    Raises TraceError as `header` does, on a missing column, and on a cell that is neither a finite number nor
    missing.
    """
    with _opened(path) as text:
        require(path, text.names, columns)
        wanted = list(dict.fromkeys(columns))
        missing = {name: list(_MISSING) for name in wanted if name not in types}
        frame = _parsed(path, text, dtype=types, usecols=wanted, na_values=missing, keep_default_na=False)[
            wanted
        ]
    for name in missing:
        if pd.api.types.is_numeric_dtype(frame[name]):
            values = frame[name].to_numpy(np.float64)
            bad = (np.abs(values) > LARGEST) | (np.isnan(values) & (name in needed))
            refuse(path, frame[name].astype("str").fillna(""), bad, "a finite number")
        else:
            # A blank that only Python knows is around a number, so pandas took the column for text.
            cells = frame[name].astype("str").fillna("")
            frame[name] = numbers(path, cells, blank_is_nan=name not in needed)
    return frame


def iso_ns(path: Path, cells: pd.Series[str]) -> NDArray[np.int64] | None:
    """Return ISO 8601 times as nanoseconds since 1970, int64[n]. They are UTC if they have no zone.

    Returns None if the first cell looks like a number. Raises TraceError, which names the line of the first
    cell that is no time.
    """
    if cells.iloc[0].count("-") < 2 or "e" in cells.iloc[0].lower():
        return None
    stamps = pd.to_datetime(cells.str.strip(), format="ISO8601", utc=True, errors="coerce")
    # Nanoseconds in 64 bits end in 1677 and 2262.
    outside = (stamps < pd.Timestamp.min.tz_localize("UTC")) | (stamps > pd.Timestamp.max.tz_localize("UTC"))
    refuse(path, cells, (stamps.isna() | outside).to_numpy(), "an ISO 8601 time")
    return np.asarray(stamps.dt.as_unit("ns").astype("int64"), np.int64)


def refuse_seconds(path: Path, times_ms: NDArray[np.float64], cure: str) -> None:
    """Raise TraceError if the earliest of these times, ms, is rather one of our days in seconds."""
    earliest = float(times_ms.min(initial=np.inf))
    if _SECONDS[0] <= earliest < _SECONDS[1]:
        raise TraceError(
            f"{path}: a time of {earliest:.10g} in milliseconds is of 1970; if these are seconds, {cure}"
        )


def refuse(path: Path, cells: pd.Series[str], bad: NDArray[np.bool_], expected: str) -> None:
    """Raise TraceError, which names the line and column of the first bad cell, if there is one."""
    if bad.any():
        row = int(np.argmax(bad))
        shown = repr(cells.iloc[row].strip()) if cells.iloc[row].strip() else "an empty cell"
        raise TraceError(
            f"{path}: line {cells.index[row]}, column {cells.name}: {shown}, expected {expected}"
        )


def only(path: Path, frame: pd.DataFrame, names: Sequence[str]) -> str:
    """Return the one of `names` that is a column. Raises TraceError if none is, or more than one."""
    present = [name for name in names if name in frame]
    if len(present) > 1:
        raise TraceError(f"{path}: columns {' and '.join(present)} mean the same; keep one")
    if not present:
        have = ", ".join(map(str, frame.columns[:12]))
        raise TraceError(f"{path}: no column {' or '.join(map(repr, names))}; the file has {have}")
    return present[0]


def require(path: Path, columns: Sequence[str], wanted: Iterable[str]) -> None:
    """Raise TraceError, which names the columns of `wanted` that are not in `columns`."""
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise TraceError(
            f"{path}: no column {', '.join(map(repr, missing))}; the file has {', '.join(columns[:12])}"
        )


def one_of(path: Path, noun: str, value: object, known: Iterable[object]) -> None:
    """Raise TraceError, which lists `known`, if `value` is not one of them."""
    options = sorted(set(known), key=str)
    if value not in options:
        raise TraceError(f"{path}: no {noun} {value!r}; there are {', '.join(map(str, options[:20]))}")


def _until_no_number(text: pa.Array) -> NDArray[np.float64]:
    """Return the numbers up to the first cell that is none; NaN from there on.

    One cell at a time takes hundreds of times as long as a slice, so only one slice is read so.
    """
    values = np.full(len(text), np.nan)
    for first in range(0, len(text), _SLICE):
        part = text[first : first + _SLICE]
        try:
            values[first : first + _SLICE] = part.cast(pa.float64())
        except pa.ArrowInvalid:
            values[first : first + _SLICE] = [_number(cell) for cell in part.to_pylist()]
            break
    return values


def _number(cell: str) -> float:
    try:
        return float(pa.scalar(cell).cast(pa.float64()).as_py())
    except pa.ArrowInvalid:
        return float("nan")
