"""Rows of the record: which period a record belongs to, and what stands where there was none."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.containers.host.container import ContainerSpec
from testbed.containers.host.fleet import Fleet, Managed
from testbed.containers.host.life import Event
from testbed.containers.host.records import RunRecord
from testbed.containers.ports import Records
from twinbed import InvariantError, ScenarioError

P = 100_000_000
START = 5 * P + 123
FIRST = np.array([0])


def fleet_of(*managed: Managed) -> Fleet:
    return Fleet(managed, [None] * len(managed), 2.0)


@pytest.fixture
def fleet() -> Fleet:
    made = fleet_of(*(Managed(ContainerSpec(f"c{number}", ("true",))) for number in range(2)))
    made.add(made.containers, np.array([7, 8]))
    for container in made.containers:
        container.quota_cores, container.limit_bytes = 0.5, 1 << 20
        if container.index == 0:
            container.life.on(Event.START)
            container.life.on(Event.READY)
        made.show(container)
    return made


@pytest.fixture
def books(fleet: Fleet) -> RunRecord:
    made = RunRecord(fleet, 0.1)
    made.begin(START)
    return made


def record(end_ns: int, usage: float, quota: float = 0.5, number: int = 7) -> Records:
    one = np.array([usage])
    return Records(
        np.array([number]),
        np.array([end_ns]),
        np.array([quota]),
        quota - one,
        np.array([usage >= quota]),
        one,
        np.array([4096]),
        np.zeros(1),
        np.zeros(1, np.bool_),
    )


def test_a_record_fills_the_row_in_which_its_own_period_ended(books: RunRecord) -> None:
    books.take(record(START + P, 0.1), FIRST)
    books.take(record(START + P + 1, 0.2), FIRST)
    books.advance(START + 2 * P)

    assert books.series().usage_cores[:, 0] == pytest.approx([0.1, 0.2])
    assert books.series().reported.tolist() == [[True, False], [True, False]]


def test_rows_without_a_record_have_the_limits_in_force(books: RunRecord, fleet: Fleet) -> None:
    books.advance(START + P)
    fleet.quota_cores[0] = 0.25
    books.advance(START + 3 * P)
    series = books.series()

    assert series.quota_cores[:, 0].tolist() == [0.5, 0.25, 0.25]
    assert series.up.tolist() == [[True, False]] * 3
    assert (series.limit_bytes == 1 << 20).all()


def test_what_was_taken_of_a_life_that_is_over_is_not_the_next_ones(books: RunRecord) -> None:
    books.take(record(START + P, 0.1), FIRST)
    books.joined(0)
    books.advance(START + 2 * P)

    assert books.series().memory_bytes[:, 0].tolist() == [4096, 0]


def test_a_late_record_is_the_mean_of_the_rows_it_covers(books: RunRecord) -> None:
    books.take(record(START + P, 0.1), FIRST)
    books.take(record(START + 4 * P, 0.3), FIRST)
    books.advance(START + 4 * P)
    series = books.series()

    assert series.usage_cores[:, 0] == pytest.approx([0.1, 0.3, 0.3, 0.3])
    assert series.reported[:, 0].tolist() == [True, False, False, True]


def test_more_rows_than_one_block_holds(books: RunRecord) -> None:
    books.advance(START + 3000 * P)
    books.take(record(START + 2999 * P, 0.4), FIRST)

    assert books.series().usage_cores[2998, 0] == pytest.approx(0.4)
    assert books.rows == 3000


def test_before_the_time_line_nothing_is_kept_but_events(fleet: Fleet) -> None:
    books = RunRecord(fleet, 0.1)
    books.note("join", 0, 99)
    books.take(record(START, 0.1), FIRST)
    books.write_ns.append(5)
    books.begin(START)

    assert books.events.at_s == [0.0]
    assert not books.write_ns
    assert books.reports == 0
    assert not books.advance(START + P - 1)


def test_a_reason_stands_in_the_row_in_which_the_change_took_force(books: RunRecord) -> None:
    books.advance(START + 2 * P)
    books.give_reason(1, 5)
    books.advance(START + 4 * P)

    assert books.series().cpu_reason[:, 1].tolist() == [0, 0, 5, 0]


def test_an_id_is_given_once() -> None:
    fleet = fleet_of(Managed(ContainerSpec("c", ("true",))))
    fleet.add(fleet.containers, np.array([7]))
    with pytest.raises(InvariantError, match="other ids"):
        fleet.add(fleet.containers, np.array([7]))


def test_records_of_who_left_and_of_before_are_dropped(fleet: Fleet) -> None:
    records, columns = fleet.members_only(record(START + P, 0.1, number=8), START)
    assert records.ids.tolist() == [8]
    assert columns.tolist() == [1]
    assert fleet.members_only(record(START, 0.1), START)[0].ids.size == 0
    assert fleet.members_only(record(START + P, 0.1, number=9), START)[0].ids.size == 0


def test_the_columns_of_an_array_that_nobody_writes_to_are_found_anew_when_somebody_left(
    fleet: Fleet,
) -> None:
    records = record(START + P, 0.1, number=8)
    records.ids.setflags(write=False)
    assert fleet.members_only(records, START)[1].tolist() == [1]
    fleet.remove(8)

    assert fleet.members_only(records, START)[0].ids.size == 0


def test_peaks_are_told_when_everybody_has_one() -> None:
    known = Managed(ContainerSpec("a", ("true",)), peak_cores=1.0)
    fleet = fleet_of(known, Managed(ContainerSpec("b", ("true",))))

    assert fleet.joining(fleet.containers).peak_cores is None
    told = fleet.joining(fleet.containers[:1]).peak_cores
    assert told is not None
    assert told.tolist() == [1.0]


@pytest.mark.parametrize(("begins_s", "ends_s"), [(-1.0, None), (2.0, 2.0), (float("nan"), None)])
def test_presence_that_makes_no_sense_is_refused(begins_s: float, ends_s: float | None) -> None:
    with pytest.raises(ScenarioError, match="container a: present from"):
        Managed(ContainerSpec("a", ("true",)), begins_s=begins_s, ends_s=ends_s)
