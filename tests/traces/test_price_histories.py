from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from traces.readers import prices
from twinbed import TraceError

Data = Callable[[str], Path]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "history.csv"
    path.write_text(text)
    return path


def test_a_history_is_ordered_by_day_and_told_by_type_and_region(tmp_path: Path):
    text = "date,machine_type,region,usd_hour,usd_hour_spot\n"
    text += "2024-02-01,a,x,1.0,0.4\n2024-01-01,a,x,1.0,0.1\n2024-01-01,b,y,2,\n"
    history = prices.read(written(tmp_path, text))
    one = history.of("a", "x")
    assert one.spot_usd_h.tolist() == [0.1, 0.4]
    assert np.diff(one.day).tolist() == [timedelta(days=31)]
    with pytest.raises(TraceError, match="no type 'c'"):
        history.of("c", "x")
    with pytest.raises(TraceError, match="no region 'z'"):
        history.of("a", "z")
    with pytest.raises(TraceError, match="type a has no price in region y"):
        history.of("a", "y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "no known price table"),
        ("date,region,instance_type,usd_hour_spot\n2024-13-01,x,a,1\n", "line 2, column date"),
        (
            "date,region,instance_type,usd_hour_spot\n2024-01-01,x,a,1\n2024-01-02,x,a,-1\n",
            "line 3, .*expected a price of zero or above",
        ),
        ("date,region,instance_type,usd_hour_spot\n2024-01-01,x,a,much\n", "line 2, column usd_hour_spot"),
    ],
)
def test_a_table_that_cannot_be_read_names_the_line(tmp_path: Path, text: str, message: str):
    with pytest.raises(TraceError, match=message):
        prices.read(written(tmp_path, text))


def test_availability_must_ascend(tmp_path: Path):
    t_s, machines = prices.availability(written(tmp_path, "t_s,available\n0,4\n10,2\n"))
    assert (t_s.tolist(), machines.tolist()) == ([0.0, 10.0], [4.0, 2.0])
    with pytest.raises(TraceError, match=r"line 3, column t_s: '0.*expected a time after"):
        prices.availability(written(tmp_path, "t_s,available\n0,4\n0,2\n"))
    with pytest.raises(TraceError, match="line 3, column available: '-1', expected zero or more machines"):
        prices.availability(written(tmp_path, "t_s,available\n0,4\n10,-1\n"))


def test_a_column_that_availability_does_not_have_is_refused(tmp_path: Path):
    with pytest.raises(TraceError, match=r"unknown column 'price'; columns are t_s, available$"):
        prices.availability(written(tmp_path, "t_s,available,price\n0,4,1\n10,2,1\n"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "file", "rows"),
    [
        ("prices_gcp_history", "gcp_price_changes.csv.gz", 178_747),
        ("prices_aws_azure_2023_2024", "aws_on_demand_min.csv.gz", 10_809),
        ("prices_aws_azure_2023_2024", "aws_spot_changes_accelerators.csv.gz", 54_930),
        ("prices_aws_azure_2023_2024", "azure_prices_min_last.csv.gz", 8_976),
        ("prices_aws_2017", "aws_ec2_linux_on_demand_2017-11-12.csv", 964),
    ],
)
def test_every_public_table_of_prices_is_read(public_data: Data, folder: str, file: str, rows: int):
    history = prices.read(public_data(folder) / file)
    assert history.name.size == rows
    priced = np.isfinite(history.on_demand_usd_h) | np.isfinite(history.spot_usd_h)
    assert priced.mean() > 0.99


def test_every_public_trace_of_spot_machines_is_read(public_data: Data):
    traces = [path for path in public_data("spot_availability").glob("*.csv") if path.name != "index.csv"]
    assert traces
    for path in traces:
        t_s, available = prices.availability(path)
        assert t_s.size == available.size > 0
        assert (available >= 0).all()


def test_a_number_between_unusual_blanks_is_a_number(tmp_path: Path):
    t_s, machines = prices.availability(written(tmp_path, "t_s,available\n0,4\x1e\n10,2\n"))
    assert (t_s.tolist(), machines.tolist()) == ([0.0, 10.0], [4.0, 2.0])


def test_a_market_in_another_currency_is_refused_and_not_taken_for_dollars(tmp_path: Path):
    text = "t_s,zone,available,spot_usd_h\n0,a,1,0.5\n"
    assert prices.market(written(tmp_path, text))["a"][2].tolist() == [0.5]
    text = "t_s,zone,available,spot_usd_h,currency\n0,a,1,0.5,EUR\n"
    with pytest.raises(TraceError, match=r"history\.csv: column 'currency' is unknown; .*in USD per hour"):
        prices.market(written(tmp_path, text))
