"""The twin's runs: DDP's buckets, and stalls that follow from bytes, links and files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.profiler.stalls import Run, Stall, Timing, stalls
from twin.cloud import stalls as twin
from twin.fabric.collectives import AlphaBeta
from twinbed import ScenarioError

MIB = 1 << 20
LINKS = AlphaBeta(1e-3, 80e6)


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
    alone = Timing((20.0,), 200)
    machine = twin.Machine(LINKS, 8e6, prepare_s=0.01, fetch_s=0.02)
    found = {one.stall: one.seconds for one in stalls(twin.runs(alone, 10, 2, [1_000_000], machine))}
    # 20 steps of one bucket: two latencies and 1 MB at 80 and at 8 Mbit/s; 200 samples from files.
    assert found[Stall.INTERCONNECT] == pytest.approx(20 * (0.002 + 0.1))
    assert found[Stall.NETWORK] == pytest.approx(20 * (1.0 - 0.1))
    assert (found[Stall.CPU], found[Stall.DISK]) == (pytest.approx(2.0), pytest.approx(4.0))


def test_one_worker_exchanges_nothing_and_a_wide_network_is_no_stall():
    machine = twin.Machine(LINKS, 1e12, 0.0, 0.0)
    assert all(one.seconds == 0 for one in stalls(twin.runs(Timing((5.0,), 10), 1, 1, [MIB], machine)))
    runs = twin.runs(Timing((5.0,), 10), 1, 4, [MIB], machine)
    assert runs[Run.APART] == runs[Run.TOGETHER]


def test_a_job_without_a_batch_is_refused():
    with pytest.raises(ScenarioError, match="a batch of 0 samples"):
        twin.runs(Timing((5.0,), 10), 0, 1, [], twin.Machine(LINKS, 1e9, 0.0, 0.0))
