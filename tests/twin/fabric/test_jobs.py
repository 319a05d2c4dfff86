"""Iterations of training jobs: what they are made of, and what outages add to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.fabric.collectives import Collective, time_s
from twin.fabric.jobs import (
    Cluster,
    Iterations,
    Job,
    iteration,
    iteration_s,
    series,
    straggler,
    transformer_s,
)
from twin.fabric.model import QueuePair
from twin.fabric.transports import Rdma, Reconnecting, Tcp, Transport
from twinbed import ScenarioError

ONE_GPU = Cluster(1, 100e9, 5e-6, 600e9, 2e-6)
FOUR_GPUS = Cluster(4, 100e9, 5e-6, 600e9, 2e-6)
SEED = np.random.SeedSequence(1)
NO_OUTAGES = np.empty((0, 2))
TCP = Tcp()


def job(**given: Any) -> Job:
    return replace(Job(1e8, layers=12, micro_batches=4, micro_batch_s=0.1, activation_bytes=4e6), **given)


def through(
    what: Job, iterations: int, outages: Any = NO_OUTAGES, transport: Transport = TCP, **more: Any
) -> Iterations:
    given = {"outages": np.array(outages), "transport": transport, "seed": SEED} | more
    return series(what, ONE_GPU, iterations=iterations, **given)


def test_one_gpu_only_computes() -> None:
    alone = iteration(job(), ONE_GPU)
    assert alone.total_s == alone.compute_s == pytest.approx(0.4)
    assert len(alone.busy) == 0


def test_gradients_are_reduced_behind_the_backward_pass_but_for_the_last_bucket() -> None:
    quick = iteration(job(data=4), ONE_GPU)
    # 16 buckets of 25 MB; each reduced before the next is ready.
    bucket_s = float(time_s(Collective.ALL_REDUCE, 4e8 / 16, 4, 5e-6, 100e9))
    assert quick.data_s == pytest.approx(bucket_s)
    assert quick.busy.shape == (16, 2)
    slow = iteration(job(data=4), Cluster(1, 1e9, 5e-6, 600e9, 2e-6))
    whole_s = float(time_s(Collective.ALL_REDUCE, 4e8, 4, 16 * 5e-6, 1e9))
    # The first bucket is ready a sixteenth into the last micro-batch's backward pass.
    assert slow.total_s == pytest.approx(0.4 - 0.1 * 2 / 3 * 15 / 16 + whole_s)
    assert slow.busy.shape == (1, 2)


def test_a_pipeline_has_a_bubble_and_hands_activations_on() -> None:
    piped = iteration(job(pipeline=4), ONE_GPU)
    assert piped.compute_s == pytest.approx(0.1)  # a quarter of each of four micro-batches
    assert piped.bubble_s == pytest.approx(0.075)
    hop_s = 5e-6 + 4e6 * 8 / 100e9
    assert piped.pipeline_s == pytest.approx(7 * 2 * hop_s)
    assert piped.busy.shape == (7, 2)
    many = iteration(job(pipeline=4, micro_batches=400), ONE_GPU)
    assert many.bubble_s / many.compute_s < 0.01


def test_tensor_parallel_reduces_four_times_a_layer_where_its_ranks_are() -> None:
    apart, inside = (iteration(job(tensor=4), cluster) for cluster in (ONE_GPU, FOUR_GPUS))
    reduce_s = float(time_s(Collective.ALL_REDUCE, 4e6, 4, 5e-6, 100e9))
    assert apart.tensor_s == pytest.approx(4 * 4 * 12 * reduce_s)
    assert apart.busy.shape == (4 * 4 * 12, 2)
    assert inside.tensor_s < apart.tensor_s / 4
    assert len(inside.busy) == 0


def test_rings_of_one_host_share_its_network() -> None:
    several = iteration(job(data=4, tensor=4, parameters=1e10), FOUR_GPUS)
    alone = iteration(job(data=4, tensor=4, parameters=1e10), Cluster(4, 400e9, 5e-6, 600e9, 2e-6))
    assert several.total_s > 2 * alone.total_s


@given(
    data=st.integers(1, 16),
    pipeline=st.sampled_from([1, 2, 3, 4, 6]),
    tensor=st.sampled_from([1, 2, 4, 8]),
    micro_batches=st.integers(1, 16),
    rate_bps=st.floats(1e9, 4e11),
)
def test_busy_times_are_disjoint_and_a_faster_network_is_never_slower(
    data: int, pipeline: int, tensor: int, micro_batches: int, rate_bps: float
) -> None:
    what = job(data=data, pipeline=pipeline, tensor=tensor, micro_batches=micro_batches)
    usual, faster = (
        iteration(what, Cluster(4, rate, 5e-6, 600e9, 2e-6)) for rate in (rate_bps, 2 * rate_bps)
    )
    edges = usual.busy.ravel()
    assert np.all(np.diff(edges) >= -1e-12)
    assert np.all((edges >= -1e-12) & (edges <= 1 + 1e-12))
    assert faster.total_s <= usual.total_s * (1 + 1e-12)
    assert usual.total_s >= usual.compute_s


def test_without_outages_every_iteration_is_alike() -> None:
    plain = through(job(), 50)
    assert np.allclose(plain.duration_s, 0.4)
    assert np.all(plain.added_s == 0)
    assert np.isnan(plain.died_at_s)
    noisy = through(job(), 4000, jitter_cv=0.1)
    assert noisy.duration_s.mean() == pytest.approx(0.4, rel=0.01)
    assert noisy.duration_s.std() == pytest.approx(0.04, rel=0.05)


def test_an_outage_lengthens_the_iteration_it_meets() -> None:
    what, gap_s = job(pipeline=4), 0.142
    whole_s = iteration_s(what, ONE_GPU)
    outages = np.array([[10.3 * whole_s, 10.3 * whole_s + gap_s]])
    ran = through(what, 30, outages)
    assert np.flatnonzero(ran.added_s).tolist() == [10]
    # Noticed at the next exchange, and then until TCP's first try after the gap.
    assert ran.added_s[10] == pytest.approx(0.2)
    assert ran.duration_s.sum() == pytest.approx(30 * whole_s + 0.2)


def test_a_gap_that_ends_before_the_next_exchange_costs_nothing() -> None:
    what = job(data=4)
    spans = iteration(what, ONE_GPU).busy
    whole_s = iteration_s(what, ONE_GPU)
    idle = np.array([[0.0, spans[0, 0] * 0.9]]) * whole_s + 3 * whole_s
    ran = through(what, 10, idle, Rdma())
    assert np.all(ran.added_s == 0)


def test_outages_that_overlap_stall_once() -> None:
    what = job(tensor=4)
    outages = np.array([[1.0, 3.0], [1.5, 3.0]])
    ran = through(what, 30, outages, Reconnecting())
    assert ran.added_s.sum() == pytest.approx(2.0, abs=0.02)


def test_a_queue_pair_in_error_ends_the_job() -> None:
    what = job(tensor=4)
    outages = np.array([[1.0, 1.1], [5.0, 9.0], [12.0, 12.1]])
    transport = Rdma(QueuePair(timeout=14, retry_count=7))
    ran = through(what, 100, outages, transport)
    assert ran.died_at_s == 5.0
    alive = np.isfinite(ran.duration_s)
    assert ran.duration_s[alive].sum() <= 5.0
    assert alive.sum() > 10
    assert np.array_equal(alive, np.isfinite(ran.added_s))


def test_a_lost_uplink_is_slower_until_its_repair() -> None:
    what = job(data=4, parameters=1e9)
    half = Cluster(1, 50e9, 5e-6, 600e9, 2e-6)
    fast_s, slow_s = iteration_s(what, ONE_GPU), iteration_s(what, half)
    ran = through(what, 100, slow=np.array([[10.0, 20.0]]), slow_cluster=half)
    slow = np.isclose(ran.duration_s, slow_s)
    assert np.all(slow | np.isclose(ran.duration_s, fast_s))
    assert slow.sum() == pytest.approx(10.0 / slow_s, abs=2)


def test_the_slowest_of_many_is_what_drawing_them_says() -> None:
    drawn = np.random.default_rng(3).normal(1.0, 0.05, (20_000, 32)).max(axis=1).mean()
    assert straggler(0.05, 32) == pytest.approx(drawn, rel=0.002)
    assert straggler(0.05, 1) == 1.0


def test_a_transformer_s_work() -> None:
    assert transformer_s(1e9, 1000, 1e14) == pytest.approx(0.06)
    assert transformer_s(1e9, 1000, 1e14, recompute=True) == pytest.approx(0.08)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"pipeline": 5}, "job.pipeline: 5 stages"),
        ({"micro_batches": 0}, "job.micro_batches"),
        ({"micro_batch_s": 0.0}, "job.micro_batch_s"),
    ],
)
def test_a_job_that_cannot_be_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        job(**wrong)


def test_spans_out_of_order_are_refused() -> None:
    with pytest.raises(ScenarioError, match="order of their begin"):
        through(job(), 1, [[2.0, 3.0], [1.0, 3.0]])
    with pytest.raises(ScenarioError, match="overlap"):
        through(job(), 1, slow=np.array([[0.0, 3.0], [1.0, 4.0]]))
