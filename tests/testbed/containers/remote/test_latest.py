"""The last reports: which agent has a container, and records of one container that came together."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from control.allocator.model import SLOT_BITS
from testbed.containers.ports import Records
from testbed.containers.remote.latest import Latest, rounds

SAID = st.lists(st.tuples(st.integers(-2, 9), st.integers(0, 3)), max_size=20)


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


@given(said=SAID, far=st.integers(-(2**63), 2**63 - 1))
def test_only_members_of_the_speaker_are_its_own(said: list[tuple[int, int]], far: int) -> None:
    # The id in slot 2 is that of its second holder; the holder of slot 4 has left.
    owners = {0: 1, 1: 2, (1 << SLOT_BITS) | 2: 1, 3: 0, 5: 3}
    latest = Latest()
    latest.join(ids(2, 4), ids(1, 1), ids(0, 0))
    latest.leave(ids(2, 4))
    latest.join(ids(*owners), ids(*owners.values()), np.zeros(len(owners), np.int64))
    said = [*said, (far, 0), (far, 3), ((1 << SLOT_BITS) | 2, 1)]
    spoken, speakers = zip(*said, strict=True)
    own = latest.own(ids(*spoken), ids(*speakers))
    assert own.tolist() == [owners.get(id_) == speaker for id_, speaker in said]


@given(spoken=st.lists(st.integers(0, 6), max_size=20), data=st.data())
def test_a_round_has_no_container_twice_and_keeps_their_order(spoken: list[int], data: st.DataObject) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, max(len(spoken) - 1, 0))))) if spoken else []
    expected: list[list[int]] = []
    times = Counter[int]()
    for row in chosen:
        times[spoken[row]] += 1
        if times[spoken[row]] > len(expected):
            expected.append([])
        expected[times[spoken[row]] - 1].append(row)
    assert [part.tolist() for part in rounds(ids(*spoken), ids(*chosen), 7)] == expected


def records(of: list[int], end_ns: list[int], usage_cores: float = 0.5) -> Records:
    count = len(of)
    return Records(
        ids=ids(*of),
        end_ns=ids(*end_ns),
        quota_cores=np.ones(count),
        unused_cores=np.zeros(count),
        throttled=np.ones(count, np.bool_),
        usage_cores=np.full(count, usage_cores),
        memory_bytes=ids(*range(10, 10 + count)),
        throttled_s=np.full(count, 0.02),
        idle=np.zeros(count, np.bool_),
    )


def test_only_newer_records_are_taken_and_counts_grow_by_one_a_period() -> None:
    latest = Latest()
    latest.join(ids(0, 1), ids(1, 1), ids(0, 0))
    assert latest.take(records([0, 1], [0, 200]), ids(0, 1)).tolist() == [0, 1]
    assert latest.take(records([0, 1, 1], [0, 201, 300], usage_cores=0.7), ids(0, 1)).tolist() == [1]
    assert latest.end_ns(ids(0, 1)).tolist() == [0, 201]
    assert latest.usage_cores(ids(0, 1)).tolist() == [0.5, 0.7]
    assert latest.memory_bytes(ids(0, 1)).tolist() == [10, 11]
    assert latest.periods(ids(0, 1)).tolist() == [1, 2]
    assert latest.throttled_periods(ids(0, 1)).tolist() == [1, 2]
    assert latest.throttled_s(ids(0, 1)).tolist() == [0.02, 0.04]
    latest.forget_ends(ids(1))
    assert latest.take(records([1], [0]), ids(0)).tolist() == [0]


def test_what_is_known_stays_while_others_join_and_a_slots_next_holder_begins_anew() -> None:
    latest = Latest()
    latest.join(ids(0), ids(3), ids(0))
    assert latest.size == 1
    end_ns = 2**60 + 1  # no float64 is equal
    latest.take(records([0], [end_ns]), ids(0))
    for first, last in ((1, 65), (65, 300)):
        count = last - first
        latest.join(np.arange(first, last), np.full(count, 4), np.ones(count, np.int64))
        assert latest.size == last
        assert (latest.usage_cores(ids(0))[0], int(latest.end_ns(ids(0))[0])) == (0.5, end_ns)
        assert latest.end_ns(ids(last - 1)).tolist() == [-1]
        assert latest.own(ids(0, last - 1, last), ids(3, 4, 0)).tolist() == [True, True, False]
    latest.leave(ids(0, 300, -1))
    latest.join(ids(1 << SLOT_BITS), ids(3), ids(0))
    assert latest.size == 300
    assert (latest.usage_cores(ids(0))[0], latest.periods(ids(0))[0]) == (0.0, 0)
    assert latest.find(ids(0, 1 << SLOT_BITS, 299, 300, -1))[0].tolist() == [1, 2]


def test_agents_of_an_application_are_those_that_have_its_containers_now() -> None:
    latest = Latest()
    latest.join(ids(0, 1, 2, 3), ids(4, 5, 6, 7), ids(0, 1, 1, 1))
    latest.leave(ids(3))
    assert latest.owners_of_app(0) == {4}
    assert latest.owners_of_app(1) == {5, 6}
