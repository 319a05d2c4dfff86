"""Critical paths by hand: chains, parallel and sequential calls, and whose waiting makes them long."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.paths import Spans, blame, critical_paths


def spans(*rows):
    """Spans of (request, parent, owner, start, end, work)."""
    columns = list(zip(*rows, strict=True))
    whole = (np.array(column, np.int64) for column in columns[:3])
    return Spans(*whole, *(np.array(column, np.float64) for column in columns[3:]))


def on(trace):
    return np.flatnonzero(critical_paths(trace).on).tolist()


def test_a_chain_is_its_own_path():
    trace = spans((0, -1, 0, 0.0, 10.0, 1.0), (0, 0, 1, 2.0, 9.0, 1.0), (0, 1, 2, 3.0, 5.0, 2.0))
    assert on(trace) == [0, 1, 2]
    # 10 − 7, 7 − 2, 2.
    assert critical_paths(trace).own_s.tolist() == [3.0, 5.0, 2.0]


def test_of_parallel_calls_the_one_that_returns_last_is_on_the_path():
    trace = spans((0, -1, 0, 0.0, 10.0, 1.0), (0, 0, 1, 1.0, 9.0, 1.0), (0, 0, 2, 1.0, 4.0, 1.0))
    assert on(trace) == [0, 1]
    assert critical_paths(trace).own_s.tolist() == [2.0, 8.0, 0.0]


def test_calls_made_one_after_another_are_all_on_the_path():
    # The first stage: a [1, 3] and b [1, 4] in parallel; the second: c [4, 6]. b returned later.
    trace = spans(
        (0, -1, 9, 0.0, 7.0, 2.0),
        (0, 0, 1, 1.0, 3.0, 1.0),
        (0, 0, 2, 1.0, 4.0, 1.0),
        (0, 0, 3, 4.0, 6.0, 1.0),
    )
    assert on(trace) == [0, 2, 3]
    # 7 − 2 − 3 = 2 of the root's own.
    assert critical_paths(trace).own_s.tolist() == [2.0, 0.0, 3.0, 2.0]


def test_calls_below_a_call_that_nobody_waited_for_are_not_on_the_path():
    trace = spans(
        (0, -1, 0, 0.0, 9.0, 0.0),
        (0, 0, 1, 0.0, 8.0, 0.0),
        (0, 0, 2, 0.0, 7.0, 0.0),
        (0, 2, 3, 1.0, 6.0, 0.0),
    )
    assert on(trace) == [0, 1]


def test_blame_is_time_on_the_path_without_work_and_calls():
    # Request 0: owner 1 works 1 s of 5 s. Request 1: 1 s of 2 s. Owner 0 works all of its own time.
    trace = spans(
        (0, -1, 0, 0.0, 6.0, 1.0),
        (0, 0, 1, 1.0, 6.0, 1.0),
        (1, -1, 0, 0.0, 3.0, 1.0),
        (1, 2, 1, 1.0, 3.0, 1.0),
    )
    whole = blame(trace, critical_paths(trace), np.array([0, 1]))
    assert whole.owner.tolist() == [1, 0]
    assert whole.wait_s.tolist() == [2.5, 0.0]
    assert whole.work_s.tolist() == [1.0, 1.0]
    slow = blame(trace, critical_paths(trace), np.array([0]))
    assert (slow.requests, slow.wait_s.tolist()) == (1, [4.0, 0.0])


@st.composite
def trees(draw):
    """A span tree: each callee lies within its caller, siblings anywhere in it."""
    rows = [(0, -1, 0, 0.0, 100.0, 0.0)]
    for _ in range(draw(st.integers(0, 25))):
        parent = draw(st.integers(0, len(rows) - 1))
        begin, end = rows[parent][3:5]
        low, high = sorted(draw(st.tuples(st.floats(0, 1), st.floats(0, 1))))
        span = (begin + low * (end - begin), begin + high * (end - begin))
        rows.append((0, parent, draw(st.integers(0, 4)), *span, 0.0))
    return spans(*rows)


@given(trees())
def test_a_path_starts_at_the_root_its_siblings_do_not_overlap_and_own_times_add_up(trace):
    paths = critical_paths(trace)
    assert paths.on[0]
    rows = np.flatnonzero(paths.on)
    assert all(trace.parent[row] < 0 or paths.on[trace.parent[row]] for row in rows)
    for parent in rows:
        siblings = sorted(
            (trace.start_s[row], trace.end_s[row]) for row in rows if trace.parent[row] == parent
        )
        assert all(before[1] <= after[0] for before, after in pairwise(siblings))
    assert paths.own_s.sum() == pytest.approx(100.0)
