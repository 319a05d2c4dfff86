"""How long data stands still, by what carries it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.fabric import rdma
from twin.fabric.model import QueuePair
from twin.fabric.retransmission import Manual
from twin.fabric.transports import Rdma, Reconnecting, Tcp, Transport

EACH: tuple[Transport, ...] = (Rdma(), Tcp(), Reconnecting())


@given(gap_s=st.floats(0.0, 2000.0), more_s=st.floats(0.0, 100.0))
def test_a_stall_is_never_shorter_than_the_gap_and_longer_gaps_stall_no_less(
    gap_s: float, more_s: float
) -> None:
    for transport in EACH:
        short_s, long_s = transport.stall_s(np.array([gap_s, gap_s + more_s]))
        assert short_s >= gap_s
        assert long_s >= short_s
    assert all(transport.stall_s(np.zeros(2)).tolist() == [0.0, 0.0] for transport in EACH)


@pytest.mark.parametrize(
    ("queue_pair", "noticed_s"),
    [
        (QueuePair(timeout=14), 8 * 4.096e-6 * 2**14),
        (QueuePair(timeout=18, retry_profile=Manual()), 7 * 4.096e-6 * 2**18),
        (QueuePair(timeout=31), 600.0),
        (QueuePair(timeout=0), 600.0),
    ],
)
def test_a_dead_path_is_noticed_when_the_queue_pair_or_the_framework_gives_up(queue_pair, noticed_s) -> None:
    assert Rdma(queue_pair).noticed_s == noticed_s


def test_tcp_waits_for_its_doubling_timeouts() -> None:
    # Tries 0.2, 0.6, 1.4, 3.0 s after the loss.
    stall_s = Tcp(rto_min_s=0.2).stall_s(np.array([0.1, 0.2, 0.21, 0.7, 1.5]))
    assert np.allclose(stall_s, [0.2, 0.2, 0.6, 1.4, 3.0])


def test_tcp_tries_at_least_every_rto_max_and_the_framework_ends_it() -> None:
    patient = Tcp(rto_min_s=0.2, rto_max_s=1.0, timeout_s=100.0)
    assert patient.stall_s(np.array([50.0]))[0] <= 51.0
    assert patient.stall_s(np.array([101.0, np.inf])).tolist() == [np.inf, np.inf]


def test_a_queue_pair_that_gives_up_or_a_watchdog_kills_the_job() -> None:
    queue_pair = QueuePair(timeout=14, retry_count=7)
    gaps_s = np.array([0.0, 0.05, 0.3, 1.0, np.inf])
    assert np.array_equal(Rdma(queue_pair).stall_s(gaps_s), rdma.stall_s(queue_pair, gaps_s))
    assert Rdma(queue_pair, timeout_s=0.1).stall_s(gaps_s)[2] == np.inf
    assert Reconnecting(timeout_s=30.0).stall_s(np.array([29.0, 31.0])).tolist() == [29.0, np.inf]
