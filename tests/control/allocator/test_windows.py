from collections import deque

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator.roster import Roster
from control.allocator.windows import Windows
from tests.control.allocator.fleets import application, join

SIZE = 6


def windows(length: int) -> Windows:
    members = Roster([application()])
    made = Windows(members, length)
    members.join(join([0] * SIZE))
    return made


def test_the_means_are_over_what_was_reported_until_the_window_is_full():
    made = windows(3)
    everyone = np.arange(SIZE)
    # unused 1, 2, 6, 1 → means 1, 1.5, 3, then (2 + 6 + 1) / 3 = 3
    for unused, mean in ((1.0, 1.0), (2.0, 1.5), (6.0, 3.0), (1.0, 3.0)):
        made.advance()
        made.write(slice(0, SIZE), np.full(SIZE, unused), np.full(SIZE, unused == 2.0))
        assert made.mean_unused(everyone).tolist() == [mean] * SIZE
    # throttled 0, 1, 0, 0 → 1 of the last 3
    np.testing.assert_allclose(made.throttled_share(everyone), 1 / 3)


@settings(max_examples=80, deadline=None)
@given(
    length=st.integers(1, 6),
    story=st.lists(st.one_of(st.none(), st.sets(st.integers(0, SIZE - 1), min_size=1)), max_size=25),
    seed=st.integers(0, 1000),
)
def test_windows_equal_one_queue_per_container(length, story, seed):
    """None: everyone reports (in two slices); a set: these containers report, in any order."""
    rng = np.random.default_rng(seed)
    made = windows(length)
    queues = [deque(maxlen=length) for _ in range(SIZE)]
    for event in story:
        unused, throttled = rng.random(SIZE), rng.random(SIZE) < 0.5
        if event is None:
            made.advance()
            for part in (slice(0, 2), slice(2, SIZE)):
                made.write(part, unused[part], throttled[part])
        elif len(event) == 1:
            (slot,) = event
            made.write_one(slot, unused[slot], bool(throttled[slot]))
        else:
            slots = rng.permutation(np.array(sorted(event)))
            made.write_some(slots, unused[slots], throttled[slots])
        for i in range(SIZE) if event is None else event:
            queues[i].append((unused[i], throttled[i]))
        heard = np.array([i for i in range(SIZE) if queues[i]])
        np.testing.assert_allclose(
            made.mean_unused(heard), [np.mean([u for u, _ in queues[i]]) for i in heard], rtol=1e-12
        )
        np.testing.assert_allclose(
            made.throttled_share(heard), [np.mean([t for _, t in queues[i]]) for i in heard]
        )
        for i in heard.tolist():
            assert made.mean_unused_of(i) == made.mean_unused(np.array([i]))[0]
            assert made.throttled_share_of(i) == made.throttled_share(np.array([i]))[0]
