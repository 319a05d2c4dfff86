"""Instance types, their prices and how they are billed, each with its source and date.

For: `load()` → the catalogue that ships (prices.csv, billing.toml) or one of the user's in the same columns.
Not for: price histories (traces/readers), nor for computing costs. A price holds for a region and a market
(on-demand, spot) from its date on; what could not be looked up says "assumption" in its source.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from twinbed import TraceError

MARKETS = ("on-demand", "spot")
CURRENCY = "USD"
"""The one currency: converting would need a rate and its date, which no table here has."""
COLUMNS = (
    "name",
    "provider",
    "region",
    "market",
    "price_per_h",
    "currency",
    "as_of",
    "vcpus",
    "memory_gib",
    "gpus",
    "gpu_model",
    "network_bps",
    "family",
    "cpu_speed",
    "disk_gib",
    "source",
)


@dataclass(frozen=True, slots=True)
class Listing:
    """One row: a type with its price per hour in a region and market since `as_of`; NaN where not known."""

    name: str
    provider: str
    region: str
    market: str
    price_usd_h: float
    as_of: date
    vcpus: float
    memory_gib: float
    gpus: int
    gpu_model: str
    network_bps: float
    family: str
    cpu_speed: float
    disk_gib: float
    source: str


@dataclass(frozen=True, slots=True)
class Billing:
    """A provider's rules: billed in steps of increment_s, at least minimum_s; fees are shares of a price.

    disk_price_per_gib_month: USD; startup_s: before a worker works; startup_billed: whether that is paid for;
    source: of each of these.
    """

    provider: str
    service: str
    increment_s: float
    minimum_s: float
    management_fee: float
    disk_gib: float
    disk_price_per_gib_month: float
    disk_fee: float
    startup_s: float
    startup_billed: bool
    as_of: date
    source: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Listings and billing rules; every question that has no answer names what there is."""

    listings: tuple[Listing, ...]
    billings: Mapping[str, Billing]

    def price(
        self, name: str, region: str, market: str = "on-demand", on_date: date | None = None
    ) -> Listing:
        """The listing that held on a date (the newest if none is given).

        Raises TraceError for a type, region or market that is unknown, or a date before the first price.
        """
        rows = list(self.listings)
        for column, what, value in (
            ("name", "instance type", name),
            ("region", "region", region),
            ("market", "market", market),
        ):
            there = sorted({str(getattr(row, column)) for row in rows})
            rows = [row for row in rows if getattr(row, column) == value]
            if not rows:
                raise TraceError(f"catalogue has no {what} {value!r} here; there are {', '.join(there)}")
        held = [row for row in rows if on_date is None or row.as_of <= on_date]
        if not held:
            first = min(row.as_of for row in rows)
            raise TraceError(
                f"catalogue has no price of {name} in {region} on {on_date}; the first is of {first}"
            )
        return max(held, key=lambda row: row.as_of)

    def types(
        self, region: str, market: str = "on-demand", on_date: date | None = None
    ) -> dict[str, Listing]:
        """Every type that has a price there, by name. Raises TraceError if there is none."""
        names = {row.name for row in self.listings if row.region == region and row.market == market}
        if not names:
            regions = sorted({row.region for row in self.listings if row.market == market})
            raise TraceError(f"catalogue has no {market} price in {region!r}; regions: {', '.join(regions)}")
        return {name: self.price(name, region, market, on_date) for name in sorted(names)}

    def billing(self, provider: str) -> Billing:
        """A provider's rules. Raises TraceError naming the providers that there are."""
        if provider not in self.billings:
            there = ", ".join(sorted(self.billings))
            raise TraceError(f"no billing rules of provider {provider!r}; there are {there}")
        return self.billings[provider]


def load(prices: Path | None = None, billing: Path | None = None) -> Catalogue:
    """The catalogue that ships, or tables of the user's. Raises TraceError naming file, row and column."""
    here = files("traces.catalogue")
    return Catalogue(
        _listings(prices or here.joinpath("prices.csv")), _billings(billing or here.joinpath("billing.toml"))
    )


def _listings(path: Path | Traversable) -> tuple[Listing, ...]:
    reader = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise TraceError(f"{path}: no column {missing[0]!r}; a catalogue has {', '.join(COLUMNS)}")
    rows = tuple(_listing(row, f"{path}: row {number}") for number, row in enumerate(reader, start=2))
    if not rows:
        raise TraceError(f"{path}: no rows; a catalogue has at least one price")
    _once_each(rows, path)
    return rows


def _once_each(rows: Iterable[Listing], path: Path | Traversable) -> None:
    seen: set[tuple[str, str, str, date]] = set()
    for row in rows:
        key = (row.name, row.region, row.market, row.as_of)
        if key in seen:
            raise TraceError(
                f"{path}: {row.name} in {row.region} ({row.market}) has two prices of {row.as_of}"
            )
        seen.add(key)


def _listing(row: Mapping[str, str], where: str) -> Listing:
    if row["currency"] != CURRENCY:
        raise TraceError(
            f"{where}: currency {row['currency']!r}; convert to {CURRENCY} and say the rate in source"
        )
    if row["market"] not in MARKETS:
        raise TraceError(f"{where}: market {row['market']!r}; it is one of {', '.join(MARKETS)}")
    if not row["source"]:
        raise TraceError(f"{where}: source is empty; say where the price is from, or 'assumption'")

    def number(column: str, least: float) -> float:
        text = row[column]
        if not text:
            return float("nan")
        try:
            value = float(text)
        except ValueError:
            raise TraceError(f"{where}: {column} {text!r} is no number") from None
        if not value >= least:
            raise TraceError(f"{where}: {column} is {text}; it is at least {least:g}")
        return value

    price = number("price_per_h", 0.0)
    if not 0 < price < float("inf"):
        raise TraceError(f"{where}: price_per_h {row['price_per_h']!r}; a listing has a price above zero")
    try:
        as_of = date.fromisoformat(row["as_of"])
    except ValueError:
        raise TraceError(f"{where}: as_of {row['as_of']!r} is no date (YYYY-MM-DD)") from None
    return Listing(
        row["name"],
        row["provider"],
        row["region"],
        row["market"],
        price,
        as_of,
        number("vcpus", 0.0),
        number("memory_gib", 0.0),
        int(float(row["gpus"] or 0)),
        row["gpu_model"],
        number("network_bps", 0.0),
        row["family"],
        number("cpu_speed", 0.0),
        number("disk_gib", 0.0),
        row["source"],
    )


def _billings(path: Path | Traversable) -> dict[str, Billing]:
    rules: dict[str, Billing] = {}
    for provider, table in tomllib.loads(path.read_text(encoding="utf-8")).items():
        currency = table.pop("currency", None)
        if currency != CURRENCY:
            raise TraceError(f"{path}: {provider}: currency {currency!r}; only {CURRENCY} is known")
        try:
            as_of = date.fromisoformat(table.pop("as_of"))
            rules[provider] = Billing(provider=provider, as_of=as_of, **table)
        except (TypeError, KeyError, ValueError) as wrong:
            raise TraceError(f"{path}: {provider}: {wrong}; see the keys of the table that ships") from None
    return rules
