"""Scala-Opt's choices in FC²'s experiments."""

from collections.abc import Callable
from pathlib import Path

import pytest

from studies.cloud import scala_opt
from traces.catalogue.catalogue import load
from traces.readers import prices


@pytest.fixture(scope="module")
def listings():
    return load(scala_opt.PRICES).types(scala_opt.REGION)


@pytest.mark.parametrize("row", scala_opt.CHOICES, ids=lambda row: f"{row.experiment}-{row.batch}")
def test_every_choice_stays_within_the_cap_and_counts_what_it_says(row, listings):
    figures = scala_opt.figures(row, listings)
    assert 1 <= figures["count"] <= scala_opt.CAP
    assert figures["choice"] <= figures["type"]
    # 1 % more for one is 1 / 1.01 of it for the other.
    assert (1 + figures["cost"] / 100) * (1 + figures["time_opt_cost"] / 100) == pytest.approx(1)
    assert (1 + figures["time"] / 100) * (1 + figures["time_opt_time"] / 100) == pytest.approx(1)


def test_cheap_types_are_chosen_as_the_source_chose_them(listings):
    """F1, exactly: two t2.xlarge at batch 64, three at batch 128."""
    assert [scala_opt.figures(row, listings)["choice"] for row in scala_opt.CHOICES[:2]] == [1, 1]


@pytest.mark.slow
def test_fc2s_prices_agree_with_the_public_list(public_data: Callable[[str], Path], listings):
    listed = prices.read(public_data("prices_aws_2017") / "aws_ec2_linux_on_demand_2017-11-12.csv")
    for name, row in listings.items():
        assert listed.of(name, scala_opt.REGION).on_demand_usd_h[-1] == row.price_usd_h
