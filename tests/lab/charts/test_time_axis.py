"""The time axis of charts: the time of day where a trace has one, else the time since its begin."""

import re

import altair as alt
import pandas as pd
import vl_convert

from lab.charts.drawing import Time

FIRST_OF_MAY_S = 1_714_557_600.0
"""2024-05-01 10:00 UTC, s since 1970."""


def drawn(time: Time) -> list[str]:
    """Return the texts on the axis as a browser shows them."""
    chart = alt.Chart(pd.DataFrame({"at_s": [0.0]}), width=700).mark_point().encode(x=time.of("at_s"))
    return re.findall(r">([^<>]+)</text>", vl_convert.vegalite_to_svg(chart.to_dict()))


def test_a_day_with_time_stamps_has_the_time_of_day_on_its_axis():
    assert drawn(Time((0.0, 86_400.0), start_s=FIRST_OF_MAY_S)) == [
        *("12:00", "15:00", "18:00", "21:00", "2 May", "03:00", "06:00", "09:00"),
        "Time of day (UTC) from 1 May 2024",
    ]


def test_a_part_of_a_run_keeps_its_own_times():
    assert drawn(Time((7_200.0, 9_000.0), start_s=FIRST_OF_MAY_S))[:3] == ["12:00", "12:05", "12:10"]


def test_a_trace_that_counts_from_any_moment_has_the_time_since_its_begin():
    assert drawn(Time((0.0, 86_400.0), start_s=600.0))[-1] == "Time (h)"


def test_a_short_run_counts_its_seconds():
    assert drawn(Time((0.0, 60.0), start_s=FIRST_OF_MAY_S))[-1] == "Time (s)"
