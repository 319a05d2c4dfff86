"""The question of `twinbed whatif`: a scenario's name from its trace's file."""

import pytest

from lab.containers.input.whatif import whatif_scenario


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("logs/web.csv", "web"),
        ("web.CSV.gz", "web"),
        ("web.2024-05-01.csv", "web-2024-05-01"),
        ("web.v2.jsonl.gz", "web-v2"),
        ("web.v2.pq", "web-v2"),
        ("web.2024-05-02.csv.gz", "web-2024-05-02"),
        ("shop.in.force.parquet", "shop-in-force"),
        ("bursty_service", "bursty_service"),
        (".csv", "trace"),
        ("-", "trace"),
    ],
)
def test_a_scenario_has_the_name_of_its_trace_without_the_ending(source, name):
    assert whatif_scenario(source, ["escra"]).name == name
