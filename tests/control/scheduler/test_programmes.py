from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from control.scheduler.model import Real
from control.scheduler.programmes import Demand, isolated, least_worth, max_min, water_filled


def demand(gpus: list[int], capacity: list[int], count: list[int] | None = None) -> Demand:
    n = len(gpus)
    able = np.ones((n, len(capacity)), np.bool_)
    return Demand(np.array(gpus), np.array(count or [1] * n), np.array(capacity), able)


def feasible(of: Demand, x: Real) -> None:
    assert (x >= -1e-9).all()
    assert (x.sum(axis=1) <= 1 + 1e-6).all()
    assert ((of.count * of.gpus) @ x <= of.capacity * (1 + 1e-6) + 1e-6).all()


@st.composite
def problems(draw: st.DrawFn) -> tuple[Demand, Real]:
    numbers = np.random.default_rng(draw(st.integers(0, 2**31)))
    n, r = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    of = demand(numbers.choice([1, 2, 4], n).tolist(), numbers.integers(0, 9, r).tolist())
    return of, numbers.uniform(0.05, 5, (n, r))


def test_two_jobs_share_one_gpu_equally() -> None:
    level = max_min(demand([1, 1], [1]), np.array([[1.0], [2.0]]))
    # z = x0 = 2·x1 with x0 + x1 = 1
    assert np.isclose(level.z, 2 / 3)
    assert level.tight.all()


def test_water_filling_raises_the_job_that_nobody_holds_back() -> None:
    # Job 0 can run on type 0 only, where job 1 competes; job 2 alone can use type 1 and gets all of it.
    rate = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    of = demand([1, 1, 1], [1, 1])
    reached = (rate * water_filled(of, rate)).sum(axis=1)
    assert np.allclose(reached, [0.5, 0.5, 1.0])


@given(problems())
@settings(max_examples=60, deadline=None)
def test_water_filling_is_feasible_and_at_least_max_min_and_an_equal_division(problem) -> None:
    of, rate = problem
    x = water_filled(of, rate)
    feasible(of, x)
    able = of.fits().any(axis=1)
    reached = (rate * x).sum(axis=1)
    equal = (rate * isolated(of) * of.fits()).sum(axis=1)
    if able.any():
        assert reached[able].min() >= max_min(of, rate).z * (1 - 1e-5)
        assert reached[able].min() >= equal[able].min() * (1 - 1e-5)


@given(problems(), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_levels_do_not_depend_on_the_order_of_the_jobs(problem, seed: int) -> None:
    of, rate = problem
    order = np.random.default_rng(seed).permutation(len(rate))
    other = Demand(of.gpus[order], of.count[order], of.capacity, of.able[order])
    levels = (rate * water_filled(of, rate)).sum(axis=1)
    assert np.allclose((rate[order] * water_filled(other, rate[order])).sum(axis=1), levels[order], atol=1e-6)


@given(problems())
@settings(max_examples=40, deadline=None)
def test_equal_jobs_may_be_one_row_with_a_count(problem) -> None:
    of, rate = problem
    twice = Demand(np.repeat(of.gpus, 2), np.repeat(of.count, 2), of.capacity, np.repeat(of.able, 2, axis=0))
    apart = (np.repeat(rate, 2, axis=0) * water_filled(twice, np.repeat(rate, 2, axis=0))).sum(axis=1)
    merged = Demand(of.gpus, of.count * 2, of.capacity, of.able)
    assert np.allclose(apart[::2], (rate * water_filled(merged, rate)).sum(axis=1), atol=1e-6)


def test_the_cheapest_work_is_chosen_under_a_deadline() -> None:
    # Type 0 is twice as fast and four times as dear. Without a deadline the job runs on type 1 alone; with
    # least speed 1.5 it needs half of its time on type 0.
    of = demand([1], [1, 1])
    rate, worth = np.array([[2.0, 1.0]]), np.array([[0.5, 1.0]])
    free, bound = (least_worth(of, worth, rate, np.array([least])) for least in (0.0, 1.5))
    assert free is not None
    assert bound is not None
    assert np.allclose(free, [[0.0, 1.0]])
    assert np.allclose(bound, [[0.5, 0.5]])
    assert least_worth(of, worth, rate, np.array([2.5])) is None
