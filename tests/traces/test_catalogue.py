from __future__ import annotations

import io
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from traces.catalogue import catalogue, table
from traces.readers import prices
from twinbed import TraceError

VERTEX = {
    "n1-standard-4",
    "n1-standard-8",
    "e2-standard-16",
    "n1-highcpu-16",
    "n1-highcpu-32",
    "e2-highmem-8",
    "e2-highmem-16",
}
HEADER = ",".join(catalogue.COLUMNS)
ROW = "small,any,here,on-demand,0.1,USD,2024-01-01,2,8,0,,1e9,any,,,assumption,yes"

BILLING = """[x]
service = "any"
increment_s = 1
minimum_s = 0
management_fee = 0
disk_gib = 0
disk_price_per_gib_month = 0
disk_fee = 0
startup_s = 0
startup_billed = false
currency = "USD"
as_of = "2024-01-01"
source = {}
"""


def written(tmp_path: Path, *rows: str) -> catalogue.Catalogue:
    path = tmp_path / "prices.csv"
    path.write_text("\n".join((HEADER, *rows)) + "\n", encoding="utf-8")
    return catalogue.load(path)


def test_the_catalogue_has_three_clouds_and_their_gpus() -> None:
    shipped = catalogue.load()
    assert set(shipped.types("us-central1")) & set(shipped.types("us-central1", "spot")) >= VERTEX
    assert shipped.distinct("provider") == ["aws", "azure", "gcp"]
    assert len(shipped.distinct("region")) > 60
    models = set(shipped.distinct("gpu_model"))
    assert {f"NVIDIA {name}" for name in ("T4", "L4", "V100 16GB", "A10G", "A100 40GB", "H100")} <= models
    large = shipped.price("p4d.24xlarge", "us-east-1")
    assert (large.gpus, large.gpu_model, large.vcpus) == (8, "NVIDIA A100 40GB", 96)
    assert catalogue.PRICES.stat().st_size < 2_000_000


def test_what_a_region_does_not_sell_is_not_offered() -> None:
    shipped = catalogue.load()
    assert "a2-highgpu-1g" in shipped.types("us-central1", "spot")
    assert "a2-highgpu-1g" not in shipped.types("asia-east2", "spot")
    with pytest.raises(
        TraceError, match=r"^asia-east2 does not sell a2-highgpu-1g; twinbed prices list --type"
    ):
        shipped.price("a2-highgpu-1g", "asia-east2", "spot")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_table_that_does_not_say_what_is_sold_sells_all(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"own.{form}"
    rows = pd.read_csv(io.StringIO(f"{HEADER}\n{ROW}\n"), dtype={"gpu_model": str}).drop(columns="sold")
    if form == "csv":
        rows.to_csv(path, index=False)
    else:
        days = rows.assign(as_of=pd.to_datetime(rows["as_of"]).dt.date, gpu_model="")
        days.to_parquet(path)
    assert list(catalogue.load(path).types("here")) == ["small"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_column_that_a_catalogue_does_not_have_is_refused(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"own.{form}"
    frame = written(tmp_path, ROW).prices[[*table.COLUMNS]].rename(columns={"sold": "sale"})
    frame.to_csv(path, index=False) if form == "csv" else frame.to_parquet(path)
    with pytest.raises(TraceError, match=r"unknown column 'sale'; a catalogue has name, "):
        catalogue.load(path)


def test_filtered_rows_that_pandas_wrote_with_their_index_are_a_catalogue(tmp_path: Path) -> None:
    path = tmp_path / "own.parquet"
    written(tmp_path, ROW).prices[[*table.COLUMNS]].set_axis([7]).to_parquet(path)
    assert list(catalogue.load(path).types("here")) == ["small"]


def test_what_is_neither_sold_nor_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="row 2: sold 'perhaps': input should be a valid boolean"):
        written(tmp_path, ROW.replace("yes", "perhaps"))
    frame = written(tmp_path, ROW).prices
    path = tmp_path / "own.parquet"
    table.write(path, frame, "")
    text = pq.read_table(path).set_column(16, "sold", [["yes"]])
    pq.write_table(text, path)
    with pytest.raises(TraceError, match="column sold: expected true or false"):
        table.read(path)


def test_what_the_shipped_jobs_were_priced_with_still_holds() -> None:
    row = catalogue.load().price("n1-standard-4", "us-central1")
    assert (row.price_usd_h, row.vcpus, row.memory_gib, row.network_bps) == (0.189999, 4, 15, 10e9)
    assert (row.gpus, row.as_of, row.market) == (0, date(2022, 2, 9), "on-demand")
    assert np.isnan(row.cpu_speed)


@pytest.mark.slow
def test_every_row_that_ships_is_one_and_says_where_it_is_from() -> None:
    prices = catalogue.load().prices
    # Each field is checked alone, so a row is one if all its values are those of rows that are. A price is
    # checked for its range only.
    price, others = prices["price_per_h"], set(catalogue.COLUMNS) - {"price_per_h"}
    new = np.logical_or.reduce([~prices[name].duplicated() for name in others])
    new[[price.argmin(), price.argmax()]] = True
    assert len(table.listings(prices[new])) == new.sum()
    assert price.notna().all()
    sources = prices[["provider", "source"]].drop_duplicates().to_numpy().tolist()
    assert all("Apache-2.0" in source for _, source in sources)
    assert all("CC-BY-SA-4.0" in source for provider, source in sources if provider != "gcp")
    assert b"CC-BY-SA-4.0" in pq.read_metadata(catalogue.PRICES).metadata[b"notice"]


def test_every_rule_says_where_it_is_from() -> None:
    for rules in catalogue.load().billings.values():
        assert set(rules.source) >= {"increment_s", "management_fee", "disk_gib", "startup_s"}


def test_a_table_is_the_same_as_csv_and_as_parquet(tmp_path: Path) -> None:
    read = written(tmp_path, ROW, ROW.replace("here", "there").replace(",2,8,", ",,8,")).prices
    table.write(tmp_path / "prices.parquet", read, "a notice")
    again = table.read(tmp_path / "prices.parquet")
    assert repr(table.listings(again)) == repr(table.listings(read))
    table.write(tmp_path / "again.parquet", again, "a notice")
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "prices.parquet").read_bytes()


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("price_per_h", -1.0, "row 1: price_per_h: input should be greater than 0"),
        ("vcpus", -1.0, "row 1: vcpus: input should be greater than or equal to 0"),
        ("market", "bid", "row 1: market 'bid': input should be 'on-demand' or 'spot'"),
    ],
)
def test_a_row_of_a_parquet_table_is_checked_when_it_is_used(
    tmp_path: Path, column: str, value: object, message: str
) -> None:
    frame = written(tmp_path, ROW).prices.astype({"market": "str"}).assign(**{column: value})
    table.write(tmp_path / "own.parquet", frame, "")
    with pytest.raises(TraceError, match=rf"own\.parquet: {message}"):
        table.listings(table.read(tmp_path / "own.parquet"))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("price_per_h", -1.0, "price_per_h: input should be greater than 0"),
        ("price_per_h", float("nan"), "price_per_h '': input should be a valid number"),
        ("market", "Spot", "market 'Spot': input should be 'on-demand' or 'spot'"),
        ("currency", "EUR", "currency 'EUR': input should be 'USD'"),
        ("as_of", pd.NaT, "as_of '': input should be a valid date"),
    ],
)
def test_a_parquet_table_with_a_row_that_is_no_price_is_refused(
    tmp_path: Path, column: str, value: object, message: str
) -> None:
    frame = written(tmp_path, ROW, ROW.replace("here", "there")).prices
    frame = frame.astype({"market": "str", "currency": "str"})
    frame.loc[1, column] = value
    path = tmp_path / "own.parquet"
    days = frame.assign(as_of=frame["as_of"].dt.date)
    days.drop(columns=["file", "row"]).to_parquet(path)
    with pytest.raises(TraceError, match=rf"own\.parquet: row 2: {message}"):
        table.read(path)


def test_moments_of_a_parquet_table_are_days(tmp_path: Path) -> None:
    frame = written(tmp_path, ROW).prices.drop(columns=["file", "row"])
    path = tmp_path / "own.parquet"
    frame.assign(as_of=frame["as_of"] + pd.Timedelta(hours=9)).to_parquet(path)
    assert catalogue.load(path).price("small", "here").as_of == date(2024, 1, 1)
    frame.assign(as_of="2024-01-01").to_parquet(path)
    with pytest.raises(TraceError, match=r"own\.parquet: column as_of holds '.*', expected dates"):
        table.read(path)


def test_of_two_tables_the_second_one_counts(tmp_path: Path) -> None:
    first = written(tmp_path, ROW, ROW.replace("here", "there")).prices
    both = table.joined(first, written(tmp_path, ROW.replace(",0.1,", ",0.3,")).prices)
    assert [row.price_usd_h for row in table.listings(both)] == [0.3, 0.1]


def test_a_price_holds_from_its_date(tmp_path: Path):
    later = ROW.replace("0.1,", "0.2,").replace("2024-01-01", "2025-01-01")
    catalog = written(tmp_path, ROW, later)
    assert catalog.price("small", "here").price_usd_h == 0.2
    assert catalog.price("small", "here", on_date=date(2024, 6, 1)).price_usd_h == 0.1
    with pytest.raises(TraceError, match="on 2023-01-01; the first is of 2024-01-01"):
        catalog.price("small", "here", on_date=date(2023, 1, 1))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            ("huge", "here"),
            "no instance type 'huge'; there are small; twinbed prices list --format csv lists all",
        ),
        (
            ("small", "mars"),
            "no region 'mars' of small; there are here; twinbed prices list --type small --format csv",
        ),
        (("small", "here", "spot"), "no market 'spot' of small; there are on-demand"),
    ],
)
def test_what_there_is_no_price_of_is_named(tmp_path: Path, asked: tuple[str, ...], message: str):
    with pytest.raises(TraceError, match=message):
        written(tmp_path, ROW).price(*asked)


def test_a_type_of_two_providers_in_one_region_bears_its_providers_name(tmp_path: Path):
    """Names of regions and types are the provider's; a table of one's own may have the same ones twice."""
    other = ROW.replace("any,here", "other,here").replace("0.1,", "0.01,")
    both = written(tmp_path, ROW, other, ROW.replace("here", "there"), other.replace("small", "large"))
    said = "small in here is a type of any and other; name any/small or other/small"
    with pytest.raises(TraceError, match=said):
        both.price("small", "here")
    assert set(both.types("here")) == {"any/small", "other/small", "large"}
    for name, listing in both.types("here").items():
        assert both.price(name, "here") == listing
        assert listing.name == name
    assert both.price("other/small", "here").price_usd_h == 0.01
    with pytest.raises(TraceError, match="no instance type 'tiny'"):
        both.price("any/tiny", "here")
    assert both.price("small", "there").provider == "any"
    assert set(both.types("there")) == {"small"}


def test_regions_and_providers_that_are_unknown_are_named():
    with pytest.raises(
        TraceError,
        match=r"no spot price in region 'mars'; there are africa-south1, .* more; twinbed prices list",
    ):
        catalogue.load().types("mars", "spot")
    with pytest.raises(
        TraceError, match=r"region 'us-centrl1'; there are us-central1, .*; twinbed prices list"
    ):
        catalogue.load().types("us-centrl1")
    with pytest.raises(TraceError, match="no market 'bid'; there are on-demand, spot"):
        catalogue.load().types("us-central1", "bid")
    with pytest.raises(TraceError, match="provider 'moon'; there are aws, azure, gcp"):
        catalogue.load().billing("moon")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("USD", "EUR", "row 2: currency 'EUR': input should be 'USD'"),
        ("on-demand", "bid", "row 2: market 'bid': input should be 'on-demand' or 'spot'"),
        (",0.1,", ",0,", "row 2: price_per_h '0': input should be greater than 0"),
        (",0.1,", ",nan,", "row 2: price_per_h 'nan': input should be a finite number"),
        (",0.1,", ",,", "row 2: price_per_h '': input should be a valid number"),
        ("2024-01-01", "yesterday", "row 2: as_of 'yesterday': input should be a valid date"),
        (",2,8,", ",two,8,", "row 2: vcpus 'two': input should be a valid number"),
        (",2,8,", ",-2,8,", "row 2: vcpus '-2': input should be greater than or equal to 0"),
        ("small,", ",", "row 2: name '': string should have at least 1 character"),
        (",any,here", ",,here", "row 2: provider '': string should have at least 1 character"),
        (",here,", ",,", "row 2: region '': string should have at least 1 character"),
        ("assumption", "", "row 2: source '': string should have at least 1 character"),
    ],
)
def test_a_row_that_cannot_be_is_refused(tmp_path: Path, old: str, new: str, message: str):
    with pytest.raises(TraceError, match=message):
        written(tmp_path, ROW.replace(old, new))


def test_two_prices_of_one_day_and_no_rows_and_no_column_are_refused(tmp_path: Path):
    with pytest.raises(TraceError, match="two prices of 2024-01-01"):
        written(tmp_path, ROW, ROW)
    with pytest.raises(TraceError, match="no rows"):
        written(tmp_path)
    (tmp_path / "other.csv").write_text("name,price\nsmall,1\n")
    with pytest.raises(TraceError, match="no column 'provider'"):
        catalogue.load(tmp_path / "other.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[x]\nservice = 1\n", "x: service: input should be a valid string"),
        (BILLING.replace("USD", "EUR"), "x: currency 'EUR': input should be 'USD'"),
        (BILLING.replace('as_of = "2024-01-01"', ""), "x: as_of: field required"),
        (BILLING.replace("minimum_s", "minimum"), "x: minimum_s: field required"),
        (BILLING.replace("service", "fee = 1\nservice"), "x: fee: unexpected keyword argument"),
    ],
)
def test_billing_rules_that_are_not_whole_are_refused(tmp_path: Path, text: str, message: str):
    path = tmp_path / "billing.toml"
    path.write_text(text)
    with pytest.raises(TraceError, match=message):
        catalogue.load(billing=path)


@pytest.mark.slow
def test_prices_agree_with_the_public_lists(public_data: Callable[[str], Path]):
    history = prices.read(public_data("prices_gcp_history") / "gcp_price_changes.csv.gz")
    for market in ("on-demand", "spot"):
        types = catalogue.load().types("us-central1", market)
        for name in sorted(types)[::25]:
            last = history.of(name, "us-central1")
            column = last.on_demand_usd_h if market == "on-demand" else last.spot_usd_h
            assert column[np.isfinite(column)][-1] == types[name].price_usd_h
