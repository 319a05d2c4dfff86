import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator.model import slot
from control.allocator.roster import Roster
from tests.control.allocator.fleets import application, join
from twinbed import InvariantError, ScenarioError


def roster(apps: int = 2) -> Roster:
    return Roster([application(name=f"app{i}") for i in range(apps)])


def test_ids_are_dense_slots_at_first():
    members = roster()
    assert members.join(join([0, 1, 0])).tolist() == [0, 1, 2]
    assert members.members.tolist() == [2, 1]
    assert members.app.tolist() == [0, 1, 0]


def test_the_smallest_free_slot_is_reused_under_a_new_id():
    members = roster()
    first = members.join(join([0, 0, 0]))
    members.leave(first[[2, 1]])
    new = members.join(join([1]))
    assert slot(new).tolist() == [1]
    assert new[0] != first[1]
    assert members.member(np.array([first[1], new[0], first[2]])).tolist() == [False, True, False]
    assert members.members.tolist() == [1, 1]


def test_columns_grow_and_start_afresh_for_a_new_occupant():
    members = roster()
    column = members.column(7.0, np.float64)
    ids = members.join(join([0] * 3))
    column.values[:3] = 1.0
    members.leave(ids[[1]])
    members.join(join([0] * 200))
    assert column.values[:4].tolist() == [1.0, 7.0, 1.0, 7.0]
    assert members.size == 202


def test_leaving_twice_and_leaving_as_a_stranger_change_nothing():
    members = roster()
    ids = members.join(join([0, 1]))
    assert members.leave(ids[[0, 0]]).tolist() == [0]
    assert members.leave(np.array([ids[0], 99, -1, (5 << 32) | 1])).tolist() == []
    assert members.members.tolist() == [0, 1]


def test_all_members_by_slot_are_found_without_copies():
    members = roster()
    members.join(join([0, 1, 0]))
    assert members.find(members.living()) == (slice(0, 3), slice(0, 3))
    assert members.find(members.living().copy()) == (slice(0, 3), slice(0, 3))
    assert not members.living().flags.writeable


def test_with_a_vacant_slot_all_rows_count_and_slots_are_listed():
    members = roster()
    ids = members.join(join([0, 1, 0]))
    members.leave(ids[[1]])
    rows, slots = members.find(ids[[0, 2]])
    assert rows == slice(0, 2)
    assert slots.tolist() == [0, 2]


def test_rows_of_strangers_are_left_out():
    members = roster()
    ids = members.join(join([0, 1, 0]))
    members.leave(ids[[0]])
    rows, slots = members.find(ids[[2, 0, 1]])
    assert rows.tolist() == [0, 2]
    assert slots.tolist() == [2, 1]


def test_an_id_that_occurs_twice_counts_once_with_its_last_row():
    members = roster()
    ids = members.join(join([0, 1]))
    rows, slots = members.find(ids[[1, 0, 1]])
    assert rows.tolist() == [1, 2]
    assert slots.tolist() == [0, 1]


def test_nobody_is_found_in_an_empty_roster():
    members = roster()
    rows, slots = members.find(np.array([0, 5]))
    assert rows.tolist() == []
    assert slots.tolist() == []


@pytest.mark.parametrize("app", [-1, 2])
def test_joining_an_application_that_does_not_exist_is_our_bug(app):
    members = roster()
    with pytest.raises(InvariantError, match="does not exist"):
        members.join(join([app]))
    assert members.size == 0


@pytest.mark.parametrize(
    "wrong", [application(cores=0.0), application(memory_bytes=0), application(cores=-1)]
)
def test_an_application_without_room_is_refused_by_name(wrong):
    with pytest.raises(ScenarioError, match="'shop'"):
        Roster([wrong])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.integers(1, 90), st.lists(st.integers(0, 200), max_size=40)), max_size=12))
def test_membership_equals_a_dictionary_of_ids(story):
    """A number joins that many; a list makes the members at these positions (of all ids ever) leave."""
    members, ever, alive = roster(), [], {}
    for event in story:
        if isinstance(event, int):
            apps = [i % 2 for i in range(event)]
            new = members.join(join(apps)).tolist()
            assert not set(new) & set(ever)
            ever += new
            alive |= dict(zip(new, apps, strict=True))
        else:
            leaving = [ever[i] for i in event if i < len(ever)]
            left = members.leave(np.array(leaving, np.int64))
            gone = set(leaving) & set(alive)
            assert left.tolist() == sorted(int(slot(np.array(i))) for i in gone)
            alive = {i: app for i, app in alive.items() if i not in gone}
        assert set(members.living().tolist()) == set(alive)
        assert members.member(np.array(ever, np.int64)).tolist() == [i in alive for i in ever]
        apps_alive = list(alive.values())
        assert members.members.tolist() == [apps_alive.count(0), apps_alive.count(1)]
        # Dense: never more slots than the largest fleet there was needs.
        assert members.size <= len(ever)
