from __future__ import annotations

import numpy as np

from control.scheduler.model import Assignment
from control.scheduler.placement import settle
from tests.control.scheduler.worlds import cluster, lines, state


def test_jobs_that_run_make_room_for_a_larger_gang_that_must_stay_together() -> None:
    where = cluster((0, 4), (0, 4))
    # Four jobs hold two GPUs of each server. A gang of four needs a whole one.
    held = Assignment(np.arange(4), np.array([0, 0, 1, 1]), np.ones(4, np.int64))
    before = state(where, [1, 1, 1, 1, 4], together=np.ones(5, np.bool_), held=held)
    given = lines(before, settle(where, before, np.zeros(5, np.int64)))
    assert given == {(4, 0, 4), (0, 1, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1)}


def test_jobs_that_run_stay_if_moving_them_makes_no_room() -> None:
    where = cluster((0, 4), (0, 4))
    held = Assignment(np.arange(2), np.array([0, 1]), np.array([3, 3]))
    before = state(where, [3, 3, 2], together=np.ones(3, np.bool_), held=held)
    assert lines(before, settle(where, before, np.zeros(3, np.int64))) == {(0, 0, 3), (1, 1, 3)}
