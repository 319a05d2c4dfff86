from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from traces.catalogue import catalogue
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
ROW = "small,any,here,on-demand,0.1,USD,2024-01-01,2,8,0,,1e9,any,,,assumption"

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


def test_the_types_of_both_clouds_have_prices():
    shipped = catalogue.load()
    assert set(shipped.types("us-central1")) == VERTEX == set(shipped.types("us-central1", "spot"))
    ec2 = shipped.types("ap-southeast-1")
    assert {name: row.price_usd_h for name, row in ec2.items()} == {
        "m4.large": 0.125,
        "m4.2xlarge": 0.5,
        "m4.10xlarge": 2.5,
        "m4.xlarge": 0.25,
        "t2.xlarge": 0.2336,
        "c4.xlarge": 0.231,
        "c4.8xlarge": 1.848,
        "p2.xlarge": 1.718,
        "g3.4xlarge": 1.67,
    }
    assert (ec2["p2.xlarge"].gpus, ec2["c4.8xlarge"].memory_gib) == (1, 60)
    assert np.isnan(ec2["t2.xlarge"].cpu_speed)


def test_every_price_and_rule_says_where_it_is_from():
    shipped = catalogue.load()
    assert all(row.source for row in shipped.listings)
    for rules in shipped.billings.values():
        assert set(rules.source) >= {"increment_s", "management_fee", "disk_gib", "startup_s"}


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
        (("huge", "here"), "no instance type 'huge' here; there are small"),
        (("small", "mars"), "no region 'mars' here; there are here"),
        (("small", "here", "spot"), "no market 'spot' here; there are on-demand"),
    ],
)
def test_what_there_is_no_price_of_is_named(tmp_path: Path, asked: tuple[str, ...], message: str):
    with pytest.raises(TraceError, match=message):
        written(tmp_path, ROW).price(*asked)


def test_regions_and_providers_that_are_unknown_are_named():
    with pytest.raises(TraceError, match="no spot price in 'mars'; regions: us-central1"):
        catalogue.load().types("mars", "spot")
    with pytest.raises(TraceError, match="provider 'moon'; there are aws, gcp"):
        catalogue.load().billing("moon")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("USD", "EUR", "row 2: currency 'EUR': input should be 'usd'"),
        ("on-demand", "bid", "row 2: market 'bid': input should be 'on-demand' or 'spot'"),
        (",0.1,", ",0,", "row 2: price_per_h '0': input should be greater than 0"),
        (",0.1,", ",nan,", "row 2: price_per_h 'nan': input should be a finite number"),
        (",0.1,", ",,", "row 2: price_per_h '': input should be a valid number"),
        ("2024-01-01", "yesterday", "row 2: as_of 'yesterday': input should be a valid date"),
        (",2,8,", ",two,8,", "row 2: vcpus 'two': input should be a valid number"),
        (",2,8,", ",-2,8,", "row 2: vcpus '-2': input should be greater than or equal to 0"),
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
        (BILLING.replace("USD", "EUR"), "x: currency 'EUR': input should be 'usd'"),
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
    listed = prices.read(public_data("prices_aws_2017") / "aws_ec2_linux_on_demand_2017-11-12.csv")
    for name, row in catalogue.load().types("ap-southeast-1").items():
        assert listed.of(name, "ap-southeast-1").on_demand_usd_h[-1] == row.price_usd_h
    history = prices.read(public_data("prices_gcp_history") / "gcp_price_changes.csv.gz")
    for market in ("on-demand", "spot"):
        for name, row in catalogue.load().types("us-central1", market).items():
            last = history.of(name, "us-central1")
            column = last.on_demand_usd_h if market == "on-demand" else last.spot_usd_h
            assert column[-1] == row.price_usd_h
