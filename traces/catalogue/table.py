"""The table of prices: its rows, and how it is read and written as CSV or Parquet.

For: the catalogue that ships (prices.parquet), a user's own, and updates of it. Not for: looking prices up
(catalogue.py). A person keeps a CSV, so it is checked row by row when it is read. A Parquet table has
hundreds of thousands of rows, so its prices are checked when it is read, and the other figures when a row is
used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TypeVar, get_args

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, TypeAdapter, ValidationError, WrapValidator

from traces import rows
from traces.parquet_file import is_parquet, opened
from twinbed import TraceError
from twinbed.text import continued, printable

Currency = Literal["USD"]
"""The only currency. A conversion would need a rate and its date, which no table here has."""

Market = Literal["on-demand", "spot"]

LARGEST = 1e15
"""Largest number in a catalogue, in any unit, such as 1 Pbit/s. No product of two numbers overflows."""

MOST_ROWS = 2_000_000
"""Largest number of rows of a table: five times as many as the shipped table has."""

_T = TypeVar("_T")


def _unless_empty(text: str, number: Callable[[str], float]) -> float:
    return math.nan if text == "" else number(text)


_Known = Annotated[float, Field(ge=0, le=LARGEST), WrapValidator(_unless_empty)]
_Text = Annotated[str, Field(min_length=1)]
_Count = Annotated[int, Field(ge=0, le=1_000_000)]
_Price = Annotated[float, Field(alias="price_per_h", gt=0, le=LARGEST, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Listing:
    """One row: a type's price in a region and market. Numbers that are not known are NaN.

    name, provider, region: names that the provider uses
    market: on-demand or spot
    price_usd_h: price, USD per hour (column price_per_h)
    as_of: the day from which the price holds
    vcpus: virtual CPUs
    memory_gib: memory, GiB
    gpus, gpu_model: number of GPUs and their name
    network_bps: bandwidth, bit/s
    family: the provider's name for types of one kind
    cpu_speed: speed of one CPU relative to others of the catalogue
    disk_gib: local disk, GiB
    source: where the price is from, or "assumption"
    sold: whether the region sells the type; if not, its price may lack the GPU. Without this column, all is
        sold
    """

    name: _Text
    provider: _Text
    region: _Text
    market: Market
    price_usd_h: _Price
    currency: Currency
    as_of: date
    vcpus: _Known
    memory_gib: _Known
    gpus: _Count
    gpu_model: str
    network_bps: _Known
    family: str
    cpu_speed: _Known
    disk_gib: _Known
    source: _Text
    sold: bool = True


COLUMNS = tuple(field.name.replace("price_usd_h", "price_per_h") for field in fields(Listing))
"""The columns that a table of prices has."""
TEXT = ("name", "provider", "region", "market", "currency", "gpu_model", "family", "source")
KEY = ["provider", "name", "region", "market", "as_of"]
"""The columns that identify a row: one type, region, market and day."""
NUMBERS = tuple(name for name in COLUMNS if name not in (*TEXT, "as_of", "sold"))
WHERE = ("file", "row")
"""Columns that a table has in memory only: the file from which a row is, and its number there."""

_LISTING = TypeAdapter(Listing)


def read(path: Path) -> pd.DataFrame:
    """Return a table of prices, by KEY: COLUMNS and WHERE, text as categories, as_of as datetime64.

    Raises TraceError, which names file and row.
    """
    frame = _parquet(path) if is_parquet(path) else _csv(path)
    if not len(frame):
        raise TraceError(f"{path}: no rows; a catalogue has at least one price")
    frame["file"] = pd.Categorical([str(path)] * len(frame))
    frame = frame.sort_values(KEY, kind="stable", ignore_index=True)
    # The first row that cannot be a price is refused, because prices are also used without their rows.
    price = frame["price_per_h"].between(0, LARGEST, inclusive="right") & frame["as_of"].notna()
    price &= frame["market"].isin(get_args(Market)) & frame["currency"].isin(get_args(Currency))
    listings(frame[~price].sort_values("row").head(1))
    twice = frame.duplicated(KEY)
    if twice.any():
        row = frame[twice].iloc[0]
        held = printable(f"{row['name']} in {row['region']} ({row['market']})")
        raise TraceError(f"{path}: row {row['row']}: {held} has two prices of {str(row['as_of'])[:10]}")
    return frame


def write(path: Path | BinaryIO, frame: pd.DataFrame, notice: str) -> None:
    """Write COLUMNS of a table as Parquet, as small as possible. notice: text about the data's licences."""
    frame = frame.sort_values(KEY, kind="stable")
    columns: dict[str, pa.Array] = {}
    for name in COLUMNS:
        values = frame[name].astype("str") if name in TEXT else frame[name]
        kind = pa.date32() if name == "as_of" else pa.int32() if name == "gpus" else None
        kind = pa.bool_() if name == "sold" else kind
        column = pa.array(values.to_numpy(), kind or (None if name in TEXT else pa.float64()))
        columns[name] = column.dictionary_encode() if name in TEXT else column
    table = pa.table(columns).replace_schema_metadata({"notice": notice})
    pq.write_table(table, path, compression="zstd", compression_level=22, row_group_size=MOST_ROWS)


def frame_of(listings: Iterable[tuple[int, Listing]]) -> pd.DataFrame:
    """Return listings with their row numbers as a table without `file`."""
    listed = list(listings)
    columns = {
        name: [getattr(row, name.replace("price_per_h", "price_usd_h")) for _, row in listed]
        for name in COLUMNS
    }
    frame = pd.DataFrame(columns, columns=list(COLUMNS))
    frame["row"] = [number for number, _ in listed]
    return _typed(frame)


def joined(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of both tables. If both have a row with the same KEY, the row of the second counts."""
    both = pd.concat([part.astype(dict.fromkeys((*TEXT, "file"), "str")) for part in (first, second)])
    both = both.drop_duplicates(KEY, keep="last").sort_values(KEY, kind="stable", ignore_index=True)
    return both.astype(dict.fromkeys((*TEXT, "file"), "category"))


def listings(frame: pd.DataFrame) -> list[Listing]:
    """Return a table's rows as listings. Raises TraceError, which names file and row, for invalid values."""
    plain = frame.astype(dict.fromkeys((*TEXT, "file"), "object"))
    return [
        checked(
            _LISTING,
            {
                str(name): "" if value is None or value != value else value
                for name, value in row.items()
                if name not in WHERE
            }
            | {"as_of": row["as_of"].date() if not pd.isna(row["as_of"]) else ""},
            f"{row['file']}: row {row['row']}",
        )
        for row in plain.to_dict("records")
    ]


def checked(checker: TypeAdapter[_T], values: Mapping[str, Any], row: str) -> _T:
    """Return the checker's result for a row. Raises TraceError, which begins with `row`."""
    try:
        return checker.validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        key, value = ".".join(map(str, first["loc"])), first["input"]
        given = f" {value!r}" if isinstance(value, str) else ""
        raise TraceError(f"{row}: {key}{given}: {continued(first['msg'])}") from None


def listing(values: Mapping[str, Any], row: str) -> Listing:
    """Return one row from its cells by column. Raises TraceError, which begins with `row`."""
    return checked(_LISTING, values, row)


def _csv(path: Path) -> pd.DataFrame:
    names, cells = rows.read(path)
    _complete(path, names)
    return frame_of(
        (number, listing({**text, "gpus": text["gpus"] or 0}, f"{path}: row {number}"))
        for number, text in cells
    )


def _parquet(path: Path) -> pd.DataFrame:
    with opened(path, TEXT, NUMBERS, MOST_ROWS) as file:
        _complete(path, file.schema_arrow.names)
        day = file.schema_arrow.field("as_of").type
        if not (pa.types.is_date(day) or (pa.types.is_timestamp(day) and day.tz is None)):
            raise TraceError(f"{path}: column as_of holds {str(day)!r}, expected dates")
        if "sold" in file.schema_arrow.names and file.schema_arrow.field("sold").type != pa.bool_():
            raise TraceError(f"{path}: column sold: expected true or false")
        # This is checked here, because text that is not UTF-8 is only found when Python decodes it.
        has = [name for name in COLUMNS if name in file.schema_arrow.names]
        frame = file.read(columns=has).unify_dictionaries().to_pandas(date_as_object=False)
    frame["row"] = range(1, len(frame) + 1)
    frame["sold"] = frame["sold"].fillna(True).astype(bool) if "sold" in frame else True
    return _typed(frame)


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    days = pd.to_datetime(frame["as_of"], errors="coerce").dt.floor("D").astype("datetime64[s]")
    return frame.astype(dict.fromkeys(TEXT, "category")).assign(as_of=days)


def _complete(path: Path, names: list[str]) -> None:
    missing = [name for name in COLUMNS if name not in (*names, "sold")]
    if missing:
        raise TraceError(f"{path}: no column {missing[0]!r}; a catalogue has {', '.join(COLUMNS)}")
    # pandas writes the index of filtered rows as such a column.
    if unknown := [name for name in names if name not in (*COLUMNS, "__index_level_0__")]:
        raise TraceError(f"{path}: unknown column {unknown[0]!r}; a catalogue has {', '.join(COLUMNS)}")
