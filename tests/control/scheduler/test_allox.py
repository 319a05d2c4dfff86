from __future__ import annotations

from itertools import permutations, product

import numpy as np
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from control.scheduler import make
from control.scheduler.allox import first_in_line, matched
from control.scheduler.model import Real
from tests.control.scheduler.worlds import cluster, state, table


def least_sum(time_s: Real, gpus: list[int]) -> float:
    """The least sum of the jobs' ends over all ways to queue them on GPUs of these types."""
    best = np.inf
    for of in product(range(len(gpus)), repeat=len(time_s)):
        total = 0.0
        for gpu, kind in enumerate(gpus):
            took = np.sort([time_s[job, kind] for job in range(len(time_s)) if of[job] == gpu])
            total += float(np.cumsum(took).sum())
        best = min(best, total)
    return best


@given(st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_starting_the_first_in_line_again_and_again_has_the_least_sum_of_ends(seed: int) -> None:
    random = np.random.default_rng(seed)
    time_s = random.uniform(1, 10, (4, 2))
    gpus = [0, 0, 1] if seed % 2 else [0, 1]
    free = np.bincount(gpus, minlength=2)
    rows, kinds = first_in_line(time_s, free)
    best = least_sum(time_s, gpus)
    # Some best plan starts these jobs on GPUs of these types: no order of the rest does better.
    assert (np.bincount(kinds, minlength=2) <= free).all()
    assert np.unique(rows).size == rows.size
    rest = [job for job in range(4) if job not in rows.tolist()]
    lines: list[list[int]] = [[] for _ in gpus]
    slots = list(range(len(gpus)))
    for row, kind in zip(rows.tolist(), kinds.tolist(), strict=True):
        slot = next(slot for slot in slots if gpus[slot] == kind)
        slots.remove(slot)
        lines[slot].append(row)
    ends = []
    for order in permutations(rest):
        for of in product(range(len(gpus)), repeat=len(rest)):
            queues = [list(line) for line in lines]
            for job, gpu in zip(order, of, strict=True):
                queues[gpu].append(job)
            ends.append(
                sum(
                    float(np.cumsum([time_s[job, gpus[gpu]] for job in queue]).sum())
                    for gpu, queue in enumerate(queues)
                )
            )
    assert min(ends) <= best * (1 + 1e-9)


def test_the_matching_has_no_more_places_of_a_type_than_there_are_jobs(monkeypatch) -> None:
    sizes, solve = [], scipy.optimize.linear_sum_assignment
    monkeypatch.setattr(
        scipy.optimize, "linear_sum_assignment", lambda cost: sizes.append(cost.shape) or solve(cost)
    )
    time_s = np.random.default_rng(0).uniform(1, 10, (5, 3))
    for free in ([4, 1000, 0], [1, 2, 3]):
        assert first_in_line(time_s, np.array(free))[0].size > 0
    # 1.25 times the share of the second one's types is 1.04, 2.08 and 3.13 places; GPUs + 1 come on top.
    assert sizes == [(5, 5 + 5), (5, 3 + 5 + 5)]


def test_a_job_waits_for_the_type_on_which_it_is_much_faster() -> None:
    # Job 0 takes 100 s on type 0 and 10,000 on type 1; job 1 takes 50 and 10,000. Both queue for type 0.
    where = cluster((0, 1), (1, 1))
    before = state(where, [1, 1], throughput=table((10, 0.1), (20, 0.1)))
    given = make("allox", where, 0).on_round(before)
    assert (given.row.tolist(), given.server.tolist()) == ([1], [0])


def test_a_gang_that_no_type_can_hold_now_keeps_no_gpu_from_others() -> None:
    where = cluster((0, 2), (0, 2))
    before = state(where, [4, 1], up=np.array([True, False]))
    assert make("allox", where, 0).on_round(before).row.tolist() == [1]


def test_a_job_that_can_run_on_no_free_gpu_keeps_no_place_from_others() -> None:
    # Job 0 can only have type 2, of which no GPU is free. Job 1 on type 0 and job 2 on type 1 end soonest.
    time_s = np.array([[np.inf, np.inf, 5.0], [10.0, 100.0, np.inf], [9.0, 15.0, np.inf]])
    rows, kinds = first_in_line(time_s, np.array([1, 1, 0]))
    assert sorted(zip(rows.tolist(), kinds.tolist(), strict=True)) == [(1, 0), (2, 1)]


def test_where_one_type_is_free_the_shortest_jobs_are_first_without_a_matching(monkeypatch) -> None:
    random = np.random.default_rng(0)
    time_s = random.uniform(1, 10, (7, 2))
    one, kinds = first_in_line(time_s[:, :1], np.array([3]))
    # A second type on which no job can run asks for the whole matching.
    both = np.column_stack((time_s[:, 0], np.full(7, np.inf)))
    assert first_in_line(both, np.array([3, 1]))[0].tolist() == one.tolist()
    assert one.tolist() == np.argsort(time_s[:, 0])[:3].tolist()
    monkeypatch.setattr(scipy.optimize, "linear_sum_assignment", None)
    rows, kinds = first_in_line(np.ones((20_000, 2)), np.array([0, 2]))
    assert (rows.tolist(), kinds.tolist()) == ([0, 1], [1, 1])


@given(st.integers(0, 2**31))
@settings(max_examples=100, deadline=None)
def test_the_matching_is_that_over_all_places_of_all_types(seed: int) -> None:
    random = np.random.default_rng(seed)
    jobs, kinds = int(random.integers(1, 50)), int(random.integers(2, 5))
    # Types suit jobs so differently that one may get most of them, and some jobs run on few types.
    time_s = np.exp(random.normal(7, 1.5, (jobs, 1))) * random.uniform(1, 50, (jobs, kinds))
    time_s[random.random((jobs, kinds)) < 0.4] = np.inf
    time_s[:, 0] = np.where(np.isinf(time_s).all(axis=1), 1.0, time_s[:, 0])
    gpus = random.integers(1, 6, kinds)
    costs = np.hstack([time_s[:, [kind]] * (1 + np.arange(jobs) // gpus[kind]) for kind in range(kinds)])
    all_places = costs[scipy.optimize.linear_sum_assignment(costs)].sum()
    row, kind, position = matched(time_s, gpus)
    assert sorted(row.tolist()) == list(range(jobs))
    assert np.unique(np.column_stack((kind, position)), axis=0, return_counts=True)[1].max() <= gpus.max()
    assert np.isclose((time_s[row, kind] * position).sum(), all_places, rtol=1e-12)
