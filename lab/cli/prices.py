"""`twinbed prices`: lists the catalogue, shows price histories, and imports newer prices.

For: the group's options and tables. Not for: the verb `ladder` (ladder.py), reading prices (traces.catalogue)
or storing updates (lab.cloud.input.price_list).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.ladder import ladder
from lab.cli.options import Format, FormatOption, NoProgressOption, argument, emit, option
from lab.runs.formats import Column, Record, Result
from twinbed import ScenarioError
from twinbed.text import counted

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(no_args_is_help=True, help="List and update the prices of instance types, and replay them.")
app.command("ladder")(ladder)
_PRICE = (
    Column("market", "market"),
    Column("price_usd_h", "price", "$/h", 4),
    Column("as_of", "since"),
    Column("sold", "sold"),
    Column("source", "source"),
)
_LIST = (
    Column("type", "type"), Column("cloud", "cloud"), Column("region", "region"), Column("vcpus", "vCPUs"),
    Column("memory_gib", "memory", "GiB", 1), Column("gpus", "GPUs"), Column("gpu_model", "GPU"), *_PRICE,
)  # fmt: skip
_FOR_PEOPLE = (
    Column("type", "type"), Column("place", "cloud/region"), Column("vcpus", "vCPUs"),
    Column("memory_gib", "memory", "GiB", 1), Column("accelerators", "GPUs"), *_PRICE[:2],
)  # fmt: skip
"""Columns of the list in a table, which is so narrow that names of types stay whole in 100 columns."""
_RANGE = re.compile(r"(\d+(?:\.\d+)?)?(:)?(\d+(?:\.\d+)?)?")
_SHOWN = 20
"""Rows of the table for people. The other formats have all rows, unless --top limits them."""

_NAMED = 5
"""Most types that a note names."""
_OPTION = {"name": "type", "provider": "cloud"}
"""Options of `list` by the column that they choose from, where the names differ."""

_RegionOption = Annotated[str | None, option("NAME", "Only this region.", "--region")]
_MarketOption = Annotated[str | None, option("on-demand|spot", "Only these prices.", "--market")]
_CatalogueOption = Annotated[
    Path | None, option("FILE", "Your own table, CSV or Parquet, in place of the rest.", "--catalogue")
]
_TopOption = Annotated[int | None, option("N", f"Rows. Default: all; {_SHOWN} in a table.", "--top", min=1)]


@app.command("list")
def list_(
    cloud: Annotated[str | None, option("aws|azure|gcp", "Only this provider.")] = None,
    region: _RegionOption = None,
    market: _MarketOption = None,
    name: Annotated[str | None, option("TEXT", "Only types with this in their name.", "--type")] = None,
    gpu: Annotated[
        str | None, option("MODEL", "Only types with GPUs whose model has this in its name.")
    ] = None,
    vcpus: Annotated[str | None, option("FROM:TO", "vCPUs, e.g. 8, 8:16, 8: or :16.")] = None,
    memory: Annotated[str | None, option("FROM:TO", "Memory, GiB, e.g. 32:64.")] = None,
    catalogue: _CatalogueOption = None,
    top: _TopOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """List the newest price of each type, region and market, the cheapest first."""
    from lab.cloud.input.price_list import in_use
    from traces.catalogue.catalogue import newest

    rows = newest(_of(in_use(catalogue).prices, provider=cloud, region=region, market=market))
    for column, text in (("name", name), ("gpu_model", gpu)):
        if text is not None:
            rows = rows[rows[column].astype(str).str.contains(text, case=False, regex=False)]
    if gpu is not None:
        rows = rows[rows["gpus"] > 0]
        if rows.empty and name is None:
            known = ", ".join(sorted(set(in_use(catalogue).prices["gpu_model"].dropna()) - {""}))
            raise ScenarioError(f"--gpu {gpu}: no price there; the catalogue has {known}")
    for column, span, given in (("vcpus", vcpus, "--vcpus"), ("memory_gib", memory, "--memory")):
        if span is not None:
            rows = rows[rows[column].between(*_span(span, given))]
    if rows.empty:
        raise ScenarioError("no price in the catalogue fits all these options; leave one out")
    columns = _FOR_PEOPLE if form is Format.TABLE else _LIST
    _show(rows.sort_values(["price_per_h", "name", "region"], kind="stable"), columns, top, form)


@app.command()
def history(
    name: Annotated[str, argument("TYPE", "An instance type, or PROVIDER/TYPE.")],
    region: _RegionOption = None,
    market: _MarketOption = None,
    catalogue: _CatalogueOption = None,
    top: _TopOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Show every price of a type with the day from which it holds: by region and market, the newest first."""
    from lab.cloud.input.price_list import in_use

    prices = in_use(catalogue)
    cloud, name = prices.provider_of(name)
    rows = _of(prices.prices, provider=cloud, name=name, region=region, market=market)
    # A source is a sentence, and few rows have one of their own. Nearly all rows are sold.
    where = (Column("place", "cloud/region"),) if form is Format.TABLE else _LIST[:3]
    keys = ["provider", "region", "market", "as_of"]
    order = rows.sort_values(keys, ascending=[True, True, True, False], kind="stable")
    _show(order, (*where, *(_PRICE[:-2] if form is Format.TABLE else _PRICE)), top, form, {"type": name})


@app.command()
def update(
    source: Annotated[
        str | None,
        argument(
            "[FILE|URL]",
            "Spare Cores' SQLite database; a URL may end in .bz2. Default: the package sparecores-data, "
            "which fetches it.",
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Add the prices of Spare Cores (CC-BY-SA-4.0) to those that ship.

    They are kept in $TWINBED_PRICES, else in prices.parquet in your data folder.
    """
    from lab.cli.progress import Bar
    from lab.cloud.input import price_list

    with Bar(1, wanted=not no_progress, preparing="reading prices") as bar:
        count = price_list.update(source, lambda share: bar("prices", share))
    columns = (Column("path", "Kept in"), Column("prices", "Prices", decimals=0))
    emit(Result(columns, ({"path": str(price_list.default_path()), "prices": count},)), form)


def _of(rows: pd.DataFrame, **wanted: str | None) -> pd.DataFrame:
    """Return the rows with these values. Raises ScenarioError that names the nearest known value."""
    from difflib import get_close_matches

    told = options = ""
    for column, value in wanted.items():
        if value is None:
            continue
        chosen = rows[rows[column] == value]
        if chosen.empty:
            known = sorted({str(known) for known in rows[column].unique()})
            close = get_close_matches(value, known, 5, 0.4) or known[:10]
            near = known if len(known) <= _NAMED else close
            noun = _OPTION.get(column, column)
            others = f" and {len(known) - len(near)} more" * (len(near) < len(known))
            raise ScenarioError(
                f"no price of {noun} {value!r}{told}; there are {', '.join(near)}{others}; "
                f"twinbed prices list{options} --format csv lists all"
            )
        told, options = f"{told} of {value}", f"{options} --{_OPTION.get(column, column)} {value}"
        rows = chosen
    return rows


def _span(text: str, option: str) -> tuple[float, float]:
    match = _RANGE.fullmatch(text.strip())
    if match is None or not (match[1] or match[3]):
        raise ScenarioError(f"{option} {text}: expected a number or FROM:TO, e.g. 8, 8:16, 8: or :16")
    if not match[2]:
        return float(match[1]), float(match[1])
    least, most = float(match[1] or 0), float(match[3] or "inf")
    if least > most:
        raise ScenarioError(
            f"{option} {text}: the range ends below its begin; did you mean {match[3]}:{match[1]}?"
        )
    return least, most


def _show(
    rows: pd.DataFrame,
    columns: tuple[Column, ...],
    top: int | None,
    form: Format,
    facts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    from traces.catalogue.table import listings

    most = top or (_SHOWN if form is Format.TABLE else None)
    shown = rows if most is None else rows.head(most)
    records: tuple[Record, ...] = tuple(
        {
            "type": row.name, "cloud": row.provider, "region": row.region, "vcpus": row.vcpus,
            "memory_gib": row.memory_gib, "gpus": row.gpus, "gpu_model": row.gpu_model, "market": row.market,
            "price_usd_h": row.price_usd_h, "as_of": row.as_of.isoformat(), "sold": row.sold,
            "source": row.source, "place": f"{row.provider}/{row.region}",
            "accelerators": f"{row.gpus:g} × {row.gpu_model.removeprefix('NVIDIA ')}" if row.gpus else "",
        }
        for row in listings(shown)
    )  # fmt: skip
    more = len(rows) - len(shown)
    notes: tuple[str, ...] = ()
    if more:
        left = counted(more, "more row", "more rows")
        notes = (f"{left}; --top N or --format csv shows {'it' if more == 1 else 'them'}.",)
    if form is Format.TABLE:
        if len(records) > 1 and len({row["market"] for row in records}) == 1:
            columns = tuple(column for column in columns if column.key != "market")
            notes += (f"All prices are {str(records[0]['market']).replace('-', ' ')}.",)
        unsold = dict.fromkeys(f"{row['type']} in {row['region']}" for row in records if not row["sold"])
        if unsold:
            named = ", ".join([*unsold][:_NAMED]) + ", …" * (len(unsold) > _NAMED)
            notes += (f"Not sold: {named}. Such a price may lack the GPU.",)
        notes += tuple(f"Source: {source}." for source in sorted({str(row["source"]) for row in records}))
    emit(Result(columns, records, facts, notes=notes), form)
