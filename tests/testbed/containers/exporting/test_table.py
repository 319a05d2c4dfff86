"""Names, units and labels of what is exported keep to Prometheus' conventions."""

from __future__ import annotations

import re

import pytest

from testbed.containers.exporting.table import METRICS, TABLE, Exported


@pytest.mark.parametrize("metric", TABLE.values(), ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: Exported) -> None:
    assert re.fullmatch(r"twinbed(_[a-z]+)+", metric.name)
    assert metric.kind in ("gauge", "counter", "histogram")
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    unit = metric.name.removesuffix("_total").rpartition("_")[2]
    assert (metric.unit == unit) == (unit in ("bytes", "cores", "seconds")), "the unit ends the name"
    assert metric.meaning.endswith(".")
    assert "le" not in metric.labels


def test_no_name_is_exported_by_two_programs() -> None:
    assert len(TABLE) == len(METRICS)
