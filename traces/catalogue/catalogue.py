"""Look up instance types, their prices, and providers' billing rules, each with its source and date.

For: the catalogue that ships (prices.parquet, billing.toml), or a user's tables with the same columns. Not
for: reading tables (table.py), nor computing costs. A price holds for a region and a market from its date
until the next one. The source of a figure that could not be looked up says "assumption".
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar

import pandas as pd
from pydantic import ConfigDict, Field, TypeAdapter

from traces.catalogue import table
from traces.catalogue.table import COLUMNS as COLUMNS
from traces.catalogue.table import LARGEST, Currency, checked
from traces.catalogue.table import Listing as Listing
from twinbed import TraceError
from twinbed.files import MIB, read_user_text

PRICES = Path(__file__).with_name("prices.parquet")
"""The table of prices that ships; `python -m studies prices` makes it."""

_SHOWN = 6
"""Largest number of known values that an error names."""
_MOST_BILLING_BYTES = MIB

_Amount = Annotated[float, Field(ge=0, le=LARGEST)]
_Step = Annotated[float, Field(gt=0, le=LARGEST)]


@dataclass(frozen=True, slots=True)
class Billing:
    """A provider's rules. Time is billed in steps of increment_s seconds, and at least minimum_s.

    service: the provider's service that has these rules
    increment_s, minimum_s: billing step and least billed time, s
    management_fee, disk_fee: fees as shares of the price of machines and of disks
    disk_gib: disk of each worker, GiB
    disk_price_per_gib_month: price of a disk, USD per GiB and month
    startup_s: time before a worker works, s
    startup_billed: whether that time is billed
    as_of: day on which the rules held
    source: value's name → its source
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
    currency: Currency
    as_of: date
    source: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Catalogue:
    """Prices and billing rules. prices: table, indexed by table.KEY. billings: provider → rules."""

    prices: pd.DataFrame
    billings: Mapping[str, Billing]

    def price(
        self, name: str, region: str, market: str = "on-demand", on_date: date | None = None
    ) -> Listing:
        """Return the listing that held on a date.

        name: a type, or PROVIDER/TYPE. on_date: None: the newest listing. Raises TraceError for a type,
        region or market that is unknown, a date before the first price, a type that the region does not sell,
        and a type without its provider that two providers sell there.
        """
        rows, asked = self.prices, name
        provider, name = self.provider_of(name)
        if provider is not None:
            rows = rows[rows["provider"] == provider]
        for column, value in (("name", name), ("region", region), ("market", market)):
            chosen = rows[rows[column] == value]
            if chosen.empty:
                noun = {"name": "instance type"}.get(column, column)
                whose = "" if column == "name" else f" of {name}"
                named = f" --type {name}" * bool(whose)
                known = _nearest(rows[column], value, named)
                raise TraceError(f"catalogue has no {noun} {value!r}{whose}; {known}")
            rows = chosen
        sellers = sorted(set(rows["provider"]))
        if len(sellers) > 1:
            which = " or ".join(f"{seller}/{name}" for seller in sellers)
            raise TraceError(f"{name} in {region} is a type of {' and '.join(sellers)}; name {which}")
        held = rows if on_date is None else rows[rows["as_of"] <= pd.Timestamp(on_date)]
        if held.empty:
            first = rows["as_of"].min().date()
            raise TraceError(f"no price of {name} in {region} on {on_date}; the first is of {first}")
        listing = table.listings(held.tail(1))[0]
        if not listing.sold:
            raise TraceError(
                f"{region} does not sell {name}; twinbed prices list --type {name} shows who does"
            )
        return replace(listing, name=asked)

    def provider_of(self, name: str) -> tuple[str | None, str]:
        """Return the provider and the type of PROVIDER/TYPE; None and the name itself for another name."""
        provider, _, rest = name.partition("/")
        return (provider, rest) if rest and provider in self.distinct("provider") else (None, name)

    def types(self, region: str, market: str = "on-demand") -> dict[str, Listing]:
        """Return name → listing for every type that is sold there. Raises TraceError if there is none.

        The name is PROVIDER/TYPE if two providers have a type of that name in the region.
        """
        of_market = self.prices[self.prices["market"] == market]
        if of_market.empty:
            known = _nearest(self.prices["market"], market)
            raise TraceError(f"catalogue has no market {market!r}; {known}")
        here = newest(of_market[of_market["region"] == region])
        here = here[here["sold"]]
        if here.empty:
            known = _nearest(of_market["region"], region)
            raise TraceError(f"catalogue has no {market} price in region {region!r}; {known}")
        of_region = self.prices[self.prices["region"] == region].drop_duplicates(["provider", "name"])
        twice = set(of_region["name"][of_region.duplicated("name")])
        named = [
            replace(listing, name=f"{listing.provider}/{listing.name}") if listing.name in twice else listing
            for listing in table.listings(here)
        ]
        return {listing.name: listing for listing in named}

    def distinct(self, column: str, region: str | None = None) -> list[str]:
        """Return the distinct values of a text column, in one region (None: in all regions)."""
        rows = self.prices if region is None else self.prices[self.prices["region"] == region]
        return sorted(map(str, rows[column].unique()))

    def billing(self, provider: str) -> Billing:
        """Return a provider's rules. Raises TraceError, which names the known providers."""
        if provider not in self.billings:
            known = ", ".join(sorted(self.billings))
            raise TraceError(f"no billing rules of provider {provider!r}; there are {known}")
        return self.billings[provider]


def newest(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the newest row of each type, region and market."""
    return rows.drop_duplicates(table.KEY[:-1], keep="last")


def load(prices: Path | None = None, billing: Path | None = None) -> Catalogue:
    """Return the catalogue that ships, or one of the user's tables.

    Raises TraceError, which names file, row and column.
    """
    return Catalogue(
        _shipped() if prices is None else table.read(prices),
        _billings(billing or Path(__file__).with_name("billing.toml")),
    )


@cache
def _shipped() -> pd.DataFrame:
    return table.read(PRICES)


def _nearest(values: pd.Series, like: str, options: str = "") -> str:
    """Return the known values in words, the most similar first, and the command that lists them with these
    options."""
    known = sorted({str(value) for value in values})
    shown = get_close_matches(like, known, n=5) if len(known) > _SHOWN else known
    more = len(known) - len(shown)
    if not shown:
        shown, more = known[:_SHOWN], len(known) - _SHOWN
    others = f" and {more} more" * bool(more)
    return f"there are {', '.join(shown)}{others}; twinbed prices list{options} --format csv lists all"


def _billings(path: Path) -> dict[str, Billing]:
    try:
        tables = tomllib.loads(read_user_text(path, _MOST_BILLING_BYTES, TraceError))
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise TraceError(f"{path}: not a TOML file: {str(error).splitlines()[0]}") from None
    for provider, rules in tables.items():
        if not isinstance(rules, dict):
            raise TraceError(f"{path}: {provider!r}: expected a table of rules")
    checker = TypeAdapter(Billing)
    return {
        provider: checked(
            checker,
            {"provider": provider, **rules},
            f"{path}: {provider if provider.isprintable() else repr(provider)}",
        )
        for provider, rules in tables.items()
    }
