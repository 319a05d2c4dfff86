from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.cloud import performance
from twin.cloud.performance import Work
from twinbed import ScenarioError

sizes = st.floats(1e3, 1e10)
rates = st.floats(1e6, 1e12)
workers = st.integers(1, 512)


def test_work_is_the_line_through_the_local_run():
    work = performance.work_of([0.3, 0.5, 0.9], [10, 20, 40], parameters=1000)
    assert (work.fixed_s, work.per_sample_s) == (pytest.approx(0.1), pytest.approx(0.02))
    assert work.bytes == 4000


def test_one_batch_size_leaves_nothing_fixed_and_no_part_is_negative():
    assert performance.work_of(0.4, 8, 1).fixed_s == 0
    steep = performance.work_of([0.1, 0.4], [10, 20], 1)
    assert steep.fixed_s == 0
    falling = performance.work_of([0.4, 0.1], [10, 20], 1)
    assert falling.per_sample_s == 0


@pytest.mark.parametrize("step_s", [[np.nan, 1.0], [0.0, 1.0]])
def test_a_step_without_a_time_is_refused(step_s: list[float]):
    with pytest.raises(ScenarioError, match="above zero"):
        performance.work_of(step_s, [1, 2], 1)


def test_a_faster_machine_computes_in_less_time():
    work = Work(fixed_s=0.5, per_sample_s=0.01, bytes=0)
    assert performance.compute_s(work, 100, speed=[1.0, 10.0]).tolist() == [1.5, 0.15]


@given(sizes, workers, rates)
def test_a_ring_moves_less_than_twice_the_bytes_and_nothing_alone(size: float, n: int, bps: float):
    once = size * 8 / bps
    took = float(performance.ring_s(size, n, bps))
    assert took <= 2 * once * (1 + 1e-12)
    assert (took == 0) == (n == 1)


@given(sizes, workers, rates, rates)
def test_more_workers_or_less_bandwidth_never_make_a_server_faster(
    size: float, n: int, mine: float, theirs: float
):
    took = performance.server_s(size, n, mine, theirs)
    assert took <= performance.server_s(size, n + 1, mine, theirs)
    assert took <= performance.server_s(size, n, mine, theirs / 2)
    assert took >= performance.server_s(size, n, mine, theirs, servers=2)


def test_asynchronous_workers_are_as_fast_as_their_server_lets_them():
    rates = performance.asynchronous_steps_per_s(0.1, 1e6, [1, 10, 100], 1e9)
    assert rates.tolist() == pytest.approx([10.0, 100.0, 125.0])


def test_what_a_worker_takes_of_its_server_is_bytes_over_its_step():
    assert performance.server_traffic_bps(0.5, 1e6) == pytest.approx(16e6)


def test_a_job_starts_up_and_then_steps():
    assert performance.job_s(1000, 0.1, 60) == pytest.approx(160.0)


def test_work_that_is_no_number_is_refused():
    with pytest.raises(ScenarioError, match="per_sample_s is nan"):
        Work(0.0, float("nan"), 1)


def test_a_pipeline_works_while_it_is_full():
    assert performance.pipelined(4, 12) == pytest.approx(12 / 15)
    assert performance.pipelined(4, 12, 2) == pytest.approx(24 / 27)
    assert performance.pipelined(1, 5) == 1
