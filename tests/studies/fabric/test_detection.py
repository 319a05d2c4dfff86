"""The study of detection: whose stall a false down is blamed on, and what few of them bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from control.fabric import BfdState
from lab.fabric.real.settings import Setting
from studies.fabric.causes import CAUSES, bound_per_h, cause
from studies.fabric.detection import (
    ROADS,
    Seen,
    kept_sections,
    make,
    section,
    told_whole,
    went_down,
    with_section,
)
from studies.fabric.still import once
from studies.harness import Asked
from studies.pictures import table_below
from testbed.fabric.bfd_plane.processes import Down
from testbed.fabric.sentinel import Stall
from testbed.fabric.witness import BfdSeen
from twinbed import ScenarioError

MS = 1_000_000


@pytest.mark.parametrize(
    ("stalls", "expected"),
    [
        ([(0, 80, 95), (1, 85, 99)], CAUSES[0]),
        ([(0, 80, 95)], CAUSES[1]),
        # The processes ran one after the other, so only one CPU was busy at any time.
        ([(0, 70, 80), (1, 81, 99)], CAUSES[1]),
        # Over before the detection time of 30 ms and its 5 ms of slack began.
        ([(0, 10, 60), (1, 10, 60)], CAUSES[2]),
    ],
)
def test_a_false_down_is_blamed_on_who_stood_still_meanwhile(
    stalls: list[tuple[int, int, int]], expected: str
) -> None:
    seen = [Stall(cpu, begin * MS, end * MS) for cpu, begin, end in stalls]
    assert cause(seen, 100 * MS, 0.03) == expected


def test_a_session_that_goes_down_counts_once_for_both_its_ends() -> None:
    states = [(1, True, 3), (2, False, 1), (3, True, 1), (4, True, 2), (5, True, 3), (6, False, 1)]
    events = [BfdSeen(at, 0, 0, at_host, BfdState(state)) for at, at_host, state in states]
    assert went_down(events) == [2, 6]


def test_no_false_down_bounds_the_rate_by_three_over_the_hours() -> None:
    assert bound_per_h(0, 10.0) == pytest.approx(0.2996, abs=1e-4)
    # The exact Poisson limit (tables of chi-square) for 2 events: 6.296.
    assert bound_per_h(2, 1.0) == pytest.approx(6.296, abs=1e-3)


@pytest.mark.parametrize(
    ("gap_s", "said"), [(0.03, "45 and 120 ms, reached"), (0.2, "45 and 120 ms, missed")]
)
def test_the_page_says_whether_the_aims_are_reached(gap_s: float, said: str) -> None:
    roads = [Seen(Setting(road, 3, 10), [gap_s] * 3, [0.0] * 3, session_s=36_000) for road in ROADS]
    text = told_whole({"3x10": roads}, ["## A part"], "0.1")
    assert said in text
    assert "In 10.00 session-hours 0 of our sessions went down without a fault" in text
    assert "so the rate is at most 0.3 an hour" in text


@pytest.mark.parametrize(("count", "said"), [(43, "–"), (101, "95")])
def test_a_p95_is_printed_where_there_are_faults_enough_for_it(count: int, said: str) -> None:
    gaps_s = [k / 1000 for k in range(count)]
    roads = [Seen(Setting(road, 3, 10), gaps_s, [0.0] * count, session_s=1.0) for road in ROADS]
    heading, table = section("3x10", roads)
    frame = table_below(f"\n{heading}\n\n{table}", heading)
    assert frame["p95"].tolist()[: len(ROADS)] == [said] * len(ROADS)


def test_a_part_of_the_page_needs_the_page(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="make the page first"):
        make(Asked(only=("still-3x10",), out=tmp_path))


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ScenarioError, match="3x10"):
        make(Asked(only=("3x11",)))


def test_a_down_that_both_ends_write_counts_once() -> None:
    downs = [Down(at * MS, "peer", 1, 0, 0) for at in (0, 3, 1_500, 40)]
    assert once(zip([(0, 0), (0, 0), (0, 0), (0, 1)], downs, strict=True)) == [0, 40 * MS, 1_500 * MS]


def test_a_section_that_was_measured_apart_takes_its_place_and_stays() -> None:
    page = "# Detection\n\n## One\n\nfirst\n\n## Conditions\n\nlast\n"
    with_two = with_section(page, ["## Two", "old"])
    assert with_two.index("first") < with_two.index("old") < with_two.index("last")
    again = with_section(with_two, ["## Two", "new"])
    assert again == with_two.replace("old", "new")
    assert kept_sections(again, ["## Two", "## Three"]) == ["## Two\n\nnew"]
