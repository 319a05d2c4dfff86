"""Instance types, their prices and how they are billed, each with its source and date.

For: `load()` returns the catalogue that ships (prices.csv, billing.toml) or one of the user's in the same
columns. Not for: price histories (traces/readers), nor for computing costs. A price holds for a region and a
market from its date on. The source of a figure that could not be looked up says "assumption".
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, WrapValidator

from traces import rows
from twinbed import TraceError
from twinbed.files import MIB, read_user_text

_Currency = Literal["USD"]
"""The one currency. Converting would need a rate and its date, which no table here has."""

_T = TypeVar("_T")


def _unless_empty(text: str, number: Callable[[str], float]) -> float:
    return number(text) if text else math.nan


_LARGEST = 1e15
"""Largest number of a catalogue, in any unit: 1 Pbit/s. No product of two overflows."""

_MOST_BILLING_BYTES = MIB

_Known = Annotated[float, Field(ge=0, le=_LARGEST), WrapValidator(_unless_empty)]
_Count = Annotated[int, Field(ge=0, le=1_000_000)]
_Price = Annotated[float, Field(alias="price_per_h", gt=0, le=_LARGEST, allow_inf_nan=False)]
_Amount = Annotated[float, Field(ge=0, le=_LARGEST)]
_Step = Annotated[float, Field(gt=0, le=_LARGEST)]


@dataclass(frozen=True, slots=True)
class Listing:
    """One row of prices.csv: a type's price in a region and market. Numbers that are not known are NaN.

    name, provider, region: as the provider calls them
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
    """

    name: str
    provider: str
    region: str
    market: Literal["on-demand", "spot"]
    price_usd_h: _Price
    currency: _Currency
    as_of: date
    vcpus: _Known
    memory_gib: _Known
    gpus: _Count
    gpu_model: str
    network_bps: _Known
    family: str
    cpu_speed: _Known
    disk_gib: _Known
    source: Annotated[str, Field(min_length=1)]


COLUMNS = tuple(field.name.replace("price_usd_h", "price_per_h") for field in fields(Listing))
"""The columns that a catalogue of prices has."""


@dataclass(frozen=True, slots=True)
class Billing:
    """A provider's rules. Time is billed in steps of increment_s seconds, and at least minimum_s.

    service: what the rules are of
    management_fee, disk_fee: shares of the price of machines and of disks
    disk_gib: disk of each worker, GiB
    disk_price_per_gib_month: price of a disk, USD per GiB and month
    startup_s: seconds before a worker works
    startup_billed: whether those seconds are paid for
    as_of: day on which the rules held
    source: where each of these is from
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    provider: str
    service: str
    increment_s: _Step
    minimum_s: _Amount
    management_fee: _Amount
    disk_gib: _Amount
    disk_price_per_gib_month: _Amount
    disk_fee: _Amount
    startup_s: _Amount
    startup_billed: bool
    currency: _Currency
    as_of: date
    source: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Prices and billing rules. An error names the values that there are."""

    listings: tuple[Listing, ...]
    billings: Mapping[str, Billing]

    def price(
        self, name: str, region: str, market: str = "on-demand", on_date: date | None = None
    ) -> Listing:
        """Returns the listing that held on a date; the newest if no date is given.

        Raises TraceError for a type, region or market that is unknown, or a date before the first price.
        """
        rows = list(self.listings)
        for column, value in (("name", name), ("region", region), ("market", market)):
            known = sorted({str(getattr(row, column)) for row in rows})
            rows = [row for row in rows if getattr(row, column) == value]
            if not rows:
                noun = {"name": "instance type"}.get(column, column)
                raise TraceError(f"catalogue has no {noun} {value!r} here; there are {', '.join(known)}")
        held = [row for row in rows if on_date is None or row.as_of <= on_date]
        if not held:
            first = min(row.as_of for row in rows)
            raise TraceError(f"no price of {name} in {region} on {on_date}; the first is of {first}")
        return max(held, key=lambda row: row.as_of)

    def types(
        self, region: str, market: str = "on-demand", on_date: date | None = None
    ) -> dict[str, Listing]:
        """Returns every type that has a price there, by name. Raises TraceError if there is none."""
        names = {row.name for row in self.listings if row.region == region and row.market == market}
        if not names:
            regions = sorted({row.region for row in self.listings if row.market == market})
            raise TraceError(f"catalogue has no {market} price in {region!r}; regions: {', '.join(regions)}")
        return {name: self.price(name, region, market, on_date) for name in sorted(names)}

    def billing(self, provider: str) -> Billing:
        """Returns a provider's rules. Raises TraceError, which names the known providers."""
        if provider not in self.billings:
            known = ", ".join(sorted(self.billings))
            raise TraceError(f"no billing rules of provider {provider!r}; there are {known}")
        return self.billings[provider]


def load(prices: Path | None = None, billing: Path | None = None) -> Catalogue:
    """Returns the catalogue that ships, or one of the user's tables.

    Raises TraceError, which names file, row and column.
    """
    shipped = Path(__file__)
    return Catalogue(
        _listings(prices or shipped.with_name("prices.csv")),
        _billings(billing or shipped.with_name("billing.toml")),
    )


def _listings(path: Path) -> tuple[Listing, ...]:
    names, cells = rows.read(path)
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise TraceError(f"{path}: no column {missing[0]!r}; a catalogue has {', '.join(COLUMNS)}")
    checker, listings = TypeAdapter(Listing), dict[tuple[str, str, str, date], Listing]()
    for number, text in cells:
        row = _checked(checker, {**text, "gpus": text["gpus"] or 0}, f"{path}: row {number}")
        key = (row.name, row.region, row.market, row.as_of)
        if key in listings:
            held = f"{row.name} in {row.region} ({row.market})"
            raise TraceError(f"{path}: row {number}: {held} has two prices of {row.as_of}")
        listings[key] = row
    if not listings:
        raise TraceError(f"{path}: no rows; a catalogue has at least one price")
    return tuple(listings.values())


def _billings(path: Path) -> dict[str, Billing]:
    try:
        tables = tomllib.loads(read_user_text(path, _MOST_BILLING_BYTES, TraceError))
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise TraceError(f"{path}: not a TOML file: {str(error).splitlines()[0]}") from None
    for provider, table in tables.items():
        if not isinstance(table, dict):
            raise TraceError(f"{path}: {provider!r}: expected a table of rules")
    checker = TypeAdapter(Billing)
    return {
        provider: _checked(
            checker,
            {"provider": provider, **table},
            f"{path}: {provider if provider.isprintable() else repr(provider)}",
        )
        for provider, table in tables.items()
    }


def _checked(checker: TypeAdapter[_T], values: Mapping[str, Any], row: str) -> _T:
    try:
        return checker.validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        key, value = ".".join(map(str, first["loc"])), first["input"]
        given = f" {value!r}" if isinstance(value, str) else ""
        raise TraceError(f"{row}: {key}{given}: {first['msg'].lower()}") from None
