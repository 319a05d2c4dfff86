"""The books of a cluster, by hand: jobs that share their GPUs, and jobs whose number of GPUs changes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from control.cluster import Workload
from control.scheduler import books as module
from control.scheduler.books import Books
from control.scheduler.model import Assignment, Elastic, Sharing
from tests.control.scheduler.worlds import cluster


def books(gpus: list[int], *servers: tuple[int, int], **given: Any) -> Books:
    """Books of jobs that were submitted at 0 s. Each does 2 steps/s as a gang on one server."""
    n = len(gpus)
    jobs = Workload(
        np.zeros(n), np.array(gpus), np.full(n, 1000.0), np.full((n, 1, 2), 2.0), np.zeros(n, np.int64),
        np.ones(n), np.full(n, np.inf), np.zeros(n, np.bool_), **given,
    )  # fmt: skip
    made = Books(cluster(*servers), jobs, n, elastic="elastic" in given)
    assert made.arrive(0.0)
    return made


def test_a_pair_counts_its_gpus_once_and_each_of_its_jobs_half_of_them() -> None:
    kept = np.array([[[0.0], [0.6]], [[0.7], [0.0]]])
    shared = books([2, 2], (0, 2), sharing=Sharing(np.array([0, 1]), kept))
    both = Assignment(np.array([0, 1]), np.array([0, 0]), np.array([2, 2]), np.array([[0, 1]]))
    shared.give(shared.state(0.0), both)
    assert shared.rate == pytest.approx([2 * 0.6, 2 * 0.7])
    assert shared.state(0.0).held.shared.tolist() == [[0, 1]]
    # Job 0 restarts until 30 s and leaves at 100 s, and job 1 until 10 and at 80 s: neither works for 10 s.
    shared.spend(100.0, np.array([100.0, 80.0]), np.array([30.0, 10.0]))
    shared.undo(0, 1000.0 + 5 * 2 * 0.6)
    done = shared.outcome(100.0, ())
    assert (done.held_s.tolist(), done.restart_s.tolist()) == ([100, 80], [30, 10])
    assert done.held_gpu_s.tolist() == [2 * (20 + 80 / 2), 2 * 80 / 2]
    assert (done.busy_gpu_s.tolist(), done.restart_gpu_s.tolist()) == ([2 * 100], [2 * 10])
    assert done.capacity_gpu_s.tolist() == [200]
    assert done.undone_s == pytest.approx([5, 0])
    assert done.undone_gpu_s == pytest.approx([5, 0])
    assert done.left_steps.tolist() == [1006, 1000]
    assert shared.state(100.0).attained_gpu_s.tolist() == [2 * 70, 2 * 70]


@pytest.mark.parametrize(
    ("servers", "gpus", "rate"),
    [
        ([0], [2], 2.0),
        ([0], [1], 2.0 * 1.0 / 1.8),
        ([0, 1], [2, 1], 2.0 * 2.1 / 1.8),  # on several servers
    ],
)
def test_a_job_that_may_grow_runs_at_the_speed_of_its_gpus(
    servers: list[int], gpus: list[int], rate: float
) -> None:
    speed = np.array([[[0.0, 1.0, 1.8, 2.4], [0.0, 1.0, 1.5, 2.1]]])
    growing = books([2, 1], (0, 2), (0, 2), elastic=Elastic(np.array([0, -1]), speed))
    row = np.array([0] * len(gpus) + [1])
    given = Assignment(row, np.array([*servers, 1]), np.array([*gpus, 1]))
    growing.give(growing.state(0.0), given)
    assert growing.rate == pytest.approx([rate, 2.0])
    assert growing.width.tolist() == [sum(gpus), 1]


def test_samples_of_the_queue_take_four_numbers_each() -> None:
    held = books([2], (0, 2))
    state, nothing = held.state(0.5), Assignment(*np.zeros((3, 0), np.int64))
    held.give(state, nothing)
    tracemalloc.start()
    for _ in range(2000):
        held.give(state, nothing)
    kept = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, module.__file__)])
    tracemalloc.stop()
    assert sum(trace.size for trace in kept.traces) < 2000 * 40
    assert held.outcome(1.0, ()).series.waiting.tolist() == [1] * 2001
