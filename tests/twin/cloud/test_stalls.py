"""The twin's runs: DDP's buckets, and stalls that follow from bytes, links and files."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.profiler.stalls import Run, stalls
from tests.made_up_jobs import PROFILED
from twin.cloud import stalls as twin

MIB = 1 << 20


def test_buckets_close_at_one_mib_and_then_at_25_from_the_last_tensor_on():
    assert twin.buckets([30 * MIB, 20 * MIB, 5 * MIB, MIB // 2, MIB // 2]) == (MIB, 25 * MIB, 30 * MIB)
    assert twin.buckets([3, 2]) == (5,)
    assert twin.buckets([]) == ()


@given(st.lists(st.integers(1, 60 * MIB), max_size=30))
def test_buckets_hold_every_gradient_once_and_all_but_the_last_are_full(sizes):
    made = twin.buckets(sizes)
    assert sum(made) == sum(sizes)
    assert all(size >= MIB for size in made[:1][: len(made) - 1])
    assert all(size >= 25 * MIB for size in made[1:-1])


def test_stalls_follow_from_gradients_links_and_files():
    expected = {run: timing.time_s(100) for run, timing in twin.runs(PROFILED).items()}
    # Ten steps of 0.1 s, or of 1 s through 8 Mbit/s; a hundred samples of 10 ms on half a core, and 10 ms of
    # waiting for the disk.
    assert expected == pytest.approx(
        {Run.ALONE: 8, Run.TOGETHER: 9, Run.WARM: 10, Run.COLD: 11, Run.APART: 18}, rel=1e-6
    )


def test_one_worker_exchanges_nothing_and_a_wide_network_is_no_stall():
    alone = replace(PROFILED, workers=1, warm=None, cold=None, sizes_bytes=(), all_reduce_s=())
    assert all(found.seconds == 0 for found in stalls(twin.runs(alone)))
    runs = twin.runs(replace(PROFILED, network_bps=1e12))
    assert runs[Run.APART] == runs[Run.TOGETHER]


def test_runs_that_were_not_made_are_not_expected():
    timings = {run: PROFILED.timings[run] for run in (Run.ALONE, Run.TOGETHER)}
    assert set(twin.runs(replace(PROFILED, timings=timings))) == set(timings)
