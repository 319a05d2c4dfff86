"""What was reported last: whose a container is, and records of one container that came together."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from control.allocator.model import SLOT_BITS
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
