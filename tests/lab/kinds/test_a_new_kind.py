"""A kind is a folder and a row: once it is in the table, every public verb knows it."""

import json

import pytest

from lab import kinds
from lab.ask import scenario
from tests.lab.kinds.dice import Dice

SCENARIO = "name: throws\nquestion: Are they fair?\ndice: {throws: 20}\nseeds: [1, 2]\n"


@pytest.fixture
def dice(monkeypatch, tmp_path):
    """A scenario file about dice, with their kind in the table."""
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, Dice()))
    scenario.any_kind.cache_clear()
    path = tmp_path / "throws.yaml"
    path.write_text(SCENARIO)
    yield path
    scenario.any_kind.cache_clear()


def test_it_is_run_stored_compared_and_reported(dice, twinbed, tmp_path):
    ran = twinbed("run", dice, "--set", "dice.throws=30", "--format", "json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["facts"] == {"throws": 30}
    rows = {row["label"]: row for row in document["rows"]}
    assert rows["loaded"]["mean_pips"] == 6.0
    assert 1 < rows["fair"]["mean_pips"] < 6
    assert rows["fair"]["seeds"] == 2

    listed = json.loads(twinbed("runs", "list", "--format", "json").out)["rows"]
    ids = [row["id"] for row in listed]
    assert len(ids) == 4
    assert not any(row["problem"] for row in listed)
    shown = twinbed("runs", "show", ids[0])
    assert "No dice were harmed." in shown.out
    compared = twinbed("compare", *ids)
    assert "Mean (pips)" in compared.out
    query = "SELECT count(*) AS n FROM summary WHERE metric = 'mean_pips'"
    assert json.loads(twinbed("runs", "query", query, "--format", "json").out)["rows"] == [{"n": 4}]

    page = tmp_path / "dice.html"
    assert twinbed("report", *ids, "--html", page).code == 0
    assert "Are they fair?" in page.read_text()


def test_what_it_cannot_do_is_said_in_one_line(dice, twinbed):
    assert twinbed("run", dice, "--backend", "testbed").refused.endswith("leave --backend out")
    assert "no testbed to validate" in twinbed("validate", dice).refused
    assert twinbed("calibrate", "--pillar", "dice").refused.endswith(
        "--pillar dice: dice has nothing to calibrate"
    )
    assert "period_s has no meaning with dice" in twinbed("run", dice, "--set", "period_s=0.1").refused
    refused = twinbed("run", dice, "--set", "policies=[thorn]").refused
    assert "policy thorn is for scenarios with a fabric; with dice give fair, loaded" in refused


def test_runs_of_two_kinds_are_not_compared(dice, twinbed, tmp_path):
    edge = tmp_path / "edge.yaml"
    edge.write_text("name: edge\nfabric: {sends: {messages: 10, message_bytes: 1000}}\npolicies: [none]\n")
    for path in (dice, edge):
        assert twinbed("run", path).code == 0
    ids = [row["id"] for row in json.loads(twinbed("runs", "list", "--format", "json").out)["rows"]]
    assert "they have no figure in common" in twinbed("compare", *ids).refused


def test_its_section_is_in_the_published_schema(dice):
    assert json.loads(scenario.schema_json())["properties"]["dice"]


def test_without_its_row_it_is_unknown(twinbed, tmp_path):
    path = tmp_path / "throws.yaml"
    path.write_text(SCENARIO)
    assert "dice: unknown key" in twinbed("run", path).refused
