import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.simpy_rdma import Connection
from control.fabric import VXLAN_OVERHEAD_BYTES
from twin.fabric import rdma
from twin.fabric.model import QueuePair, Scheme
from twin.fabric.retransmission import PLAIN, Adaptive, FloorOff, Manual
from twinbed import ScenarioError

RATE_BPS, RTT_S = 10e9, 5e-6
QP = QueuePair(timeout=8, retry_count=7, mtu_bytes=1024, window=32)  # an ACK timeout of 1.05 ms
WIRE_S = (QP.mtu_bytes + rdma.ROCE_V2_BYTES) * 8 / RATE_BPS
LINK = rdma.Link(RATE_BPS, RTT_S)
PROFILES = (
    PLAIN,
    Manual(),
    FloorOff(0.8),
    # ConnectX-6's rule with its milliseconds as microseconds, so that few packets meet many rungs.
    Adaptive((20.9e-6, 37.7e-6, 71.4e-6, 138.4e-6, 239e-6, 440.4e-6, 977.2e-6), 20.9e-6, 5, 0.5e-6),
)
"""Adapters whose retransmissions lie within the messages of these tests."""


def outage(begin_s, end_s):
    return np.array([[begin_s, end_s]])


def test_without_an_outage_a_send_takes_its_packets_and_a_round_trip():
    series = rdma.send_series(QP, LINK, messages=3, message_bytes=100 * 1024 + 24)
    last_s = (24 + rdma.ROCE_V2_BYTES) * 8 / RATE_BPS
    assert series.latency_s == pytest.approx([100 * WIRE_S + last_s + RTT_S] * 3)
    assert (series.retransmitted, series.timeouts, series.naks) == (0, 0, 0)
    assert np.isnan(series.error_at_s)


def test_a_window_smaller_than_the_path_is_what_limits_a_send():
    series = rdma.send_series(QueuePair(window=1, mtu_bytes=1024), LINK, messages=1, message_bytes=10 * 1024)
    assert series.latency_s == pytest.approx([10 * (WIRE_S + RTT_S)])


def test_posts_keep_their_interval():
    series = rdma.send_series(
        QP, LINK, messages=3, message_bytes=1024, interval_s=1e-3, outages=outage(1.5e-3, 1.9e-3)
    )
    assert series.timeouts == 0  # nothing was sent meanwhile


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_packet_goes_as_in_the_plain_model(seed):
    rng = np.random.default_rng(seed)
    timeout, retries, window = rng.integers((1, 1, 1), (7, 8, 40)).tolist()
    profile = PROFILES[rng.integers(len(PROFILES))]
    qp = QueuePair(timeout, retries, mtu_bytes=1024, window=window, retry_profile=profile)
    packets, messages = int(rng.integers(1, 60)), 12

    def outages():
        # Away from the grid of packets' times, on which rounding would decide.
        times = np.sort(rng.uniform(0, messages * packets * WIRE_S * 1.5, 2 * rng.integers(0, 4)))
        return times.reshape(-1, 2)

    down, answers_down = outages(), outages()
    message = {"messages": messages, "message_bytes": packets * 1024}
    series = rdma.send_series(qp, LINK, **message, outages=down, ack_outages=answers_down)
    plain = Connection(qp, packets, WIRE_S, RTT_S / 2, down.tolist(), answers_down.tolist())
    plain.run(messages)
    done = len(plain.latency_s)
    assert series.latency_s[:done] == pytest.approx(plain.latency_s)
    assert np.isnan(series.latency_s[done:]).all()
    assert series.error_at_s == pytest.approx(plain.error_at_s, nan_ok=True)
    counts = (series.retransmitted, series.timeouts, series.naks)
    assert counts == (plain.retransmitted, plain.timeouts, plain.naks)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(5, 9), st.integers(1, 7), st.integers(8, 64), st.floats(0.0, 1.3), st.sampled_from(PROFILES)
)
def test_the_closed_form_is_what_the_packets_do(timeout, retries, window, share, profile):
    qp = QueuePair(timeout, retries, mtu_bytes=1024, window=window, retry_profile=profile)
    gap_s = share * qp.ladder.error_s
    blurred_s = RTT_S + 2 * WIRE_S
    stalls_s = rdma.stall_s(qp, [gap_s - blurred_s, gap_s, gap_s + blurred_s], LINK)
    # No retry falls on the very moment of the repair.
    assume(np.all(np.isinf(stalls_s)) or np.ptp(stalls_s) <= 2.01 * blurred_s)
    message = {"messages": 1, "message_bytes": 2000 * 1024}
    clean = rdma.send_series(qp, LINK, **message)
    begin_s = 500 * WIRE_S
    series = rdma.send_series(qp, LINK, **message, outages=outage(begin_s, begin_s + gap_s))
    if rdma.survives(qp, gap_s, LINK):
        added_s = series.latency_s[0] - clean.latency_s[0]
        assert added_s == pytest.approx(stalls_s[1], abs=2 * blurred_s)
    else:
        assert np.isnan(series.latency_s[0])
        # The last timer's end, or a hole in the last burst that there is no retry left for.
        ends_s = begin_s + np.array([qp.ladder.error_s, gap_s])
        assert np.abs(ends_s - series.error_at_s).min() <= 2 * blurred_s


def test_the_budget_is_retries_times_the_timeout():
    qp = QueuePair(timeout=14, retry_count=7)
    budget_s = 7 * 4.096e-6 * 2**14
    gaps_s = budget_s * np.array([0.0, 0.9, 1.0, 1.01])
    assert rdma.survives(qp, gaps_s).tolist() == [True, True, True, False]
    stalls_s = [[0.0, qp.ack_timeout_s], [2 * qp.ack_timeout_s, np.inf]]
    assert rdma.stall_s(qp, [[0.0, 0.01], [0.07, np.inf]]).tolist() == stalls_s


def test_a_sender_tries_again_every_timeout_until_the_path_is_back():
    timeout_s = QP.ack_timeout_s
    assert rdma.retries_s(QP, 2.5 * timeout_s) == pytest.approx([timeout_s, 2 * timeout_s, 3 * timeout_s])
    assert rdma.retries_s(QP, np.inf) == pytest.approx(np.arange(1, 8) * timeout_s)
    assert rdma.retries_s(QP, 0.0).tolist() == []
    assert rdma.retries_s(QP, 1e-6, LINK) == pytest.approx([1e-6 + RTT_S])


def test_a_gap_within_a_window_costs_a_round_trip_and_no_timeout():
    begin_s = 100 * WIRE_S
    down = outage(begin_s, begin_s + 2.5 * WIRE_S)
    series = rdma.send_series(QP, LINK, messages=1, message_bytes=300 * 1024, outages=down)
    assert (series.timeouts, series.naks) == (0, 1)
    assert series.latency_s[0] < 301 * WIRE_S + 3 * RTT_S + 4 * WIRE_S


def test_an_outage_beyond_the_retries_breaks_the_queue_pair_for_good():
    series = rdma.send_series(
        QP, LINK, messages=10, message_bytes=1024 * 100, outages=outage(250 * WIRE_S, 1.0)
    )
    assert np.isnan(series.latency_s).tolist() == [False] * 2 + [True] * 8
    assert series.timeouts == 8
    assert series.error_at_s == pytest.approx(250 * WIRE_S + 8 * QP.ack_timeout_s, abs=2 * RTT_S)


def test_lost_acknowledgements_cost_a_retransmission_until_an_answer_says_that_all_is_there():
    down = {"ack_outages": outage(50 * WIRE_S, 1.5e-3)}
    series = rdma.send_series(QP, LINK, messages=2, message_bytes=100 * 1024, **down)
    assert series.timeouts == 2
    assert series.retransmitted == QP.window + np.ceil((WIRE_S + RTT_S) / WIRE_S)
    assert np.isnan(series.error_at_s)


def test_a_long_message_stands_still_without_acknowledgements_as_without_its_packets():
    down, message = outage(5e-4, 3.2e-3), {"messages": 1, "message_bytes": 3000 * 1024}
    lost = rdma.send_series(QP, LINK, **message, outages=down)
    unanswered = rdma.send_series(QP, LINK, **message, ack_outages=down)
    assert unanswered.latency_s == pytest.approx(lost.latency_s, abs=QP.window * WIRE_S + RTT_S)


def test_half_a_round_is_what_ib_send_lat_shows():
    clean = rdma.ping_pong(QP, LINK, rounds=5, message_bytes=10 * 1024)
    assert clean.latency_s == pytest.approx([10 * WIRE_S + RTT_S / 2] * 5)
    both = outage(3e-5, 3.1e-3)
    series = rdma.ping_pong(QP, LINK, rounds=100, message_bytes=10 * 1024, outages=both, return_outages=both)
    added_s = np.sort(series.latency_s)[-2:] - clean.latency_s[0]
    assert added_s[0] == pytest.approx(0.0, abs=1e-9)
    assert added_s[1] == pytest.approx(3 * QP.ack_timeout_s / 2, abs=RTT_S + 10 * WIRE_S)


def test_queue_pairs_share_a_link_evenly_and_a_stalled_one_leaves_its_share():
    none = rdma.NO_OUTAGES
    one_s = 200 * WIRE_S
    series = rdma.shared_series(
        QP,
        LINK,
        messages=50,
        message_bytes=200 * 1024,
        outages=[outage(20 * one_s, 40 * one_s), none, none],
        ack_outages=[none] * 3,
    )
    first = [pair.latency_s[2] for pair in series]
    assert first == pytest.approx([3 * one_s] * 3, rel=0.02)
    assert series[1].latency_s.min() == pytest.approx(2 * one_s, rel=0.02)
    assert [pair.timeouts for pair in series[1:]] == [0, 0]


def test_outages_may_overlap_and_come_in_any_order():
    apart = np.array([[1e-4, 3e-4], [5e-4, 2e-3]])
    messy = np.array([[6e-4, 2e-3], [2e-4, 3e-4], [5e-4, 9e-4], [1e-4, 2.5e-4]])
    message = {"messages": 20, "message_bytes": 1024 * 50}
    ordered, unordered = (rdma.send_series(QP, LINK, **message, outages=rows) for rows in (apart, messy))
    assert ordered.latency_s.tolist() == unordered.latency_s.tolist()


@pytest.mark.parametrize(
    ("qp", "change", "words"),
    [
        (QueuePair(timeout=32), {}, "timeout: 32"),
        (QueuePair(retry_count=8), {}, "retry_count: 8"),
        (QueuePair(window=0), {}, "window"),
        (QP, {"link": rdma.Link(rate_bps=0.0)}, "rate_bps"),
        (QP, {"link": rdma.Link(RATE_BPS, rtt_s=-1.0)}, "rtt_s"),
        (QP, {"interval_s": np.nan}, "interval_s"),
        (QP, {"messages": 0}, "messages"),
        (QP, {"outages": np.array([[2.0, 1.0]])}, "begin first"),
        (QP, {"outages": np.array([1.0, 2.0])}, "begin first"),
        (QP, {"outages": np.array([[np.nan, 2.0]])}, "begin first"),
    ],
)
def test_what_cannot_be_is_refused(qp, change, words):
    given = {"link": LINK, "messages": 1, "message_bytes": 1024, **change}
    with pytest.raises(ScenarioError, match=words):
        rdma.send_series(qp, **given)


def test_a_tunnel_costs_fifty_bytes_a_packet():
    assert VXLAN_OVERHEAD_BYTES == 50
    # 4096 + 58 of RoCEv2 + 24 of Ethernet on the wire.
    assert rdma.wire_bytes(4096, Scheme.BOND) == 4178
    assert rdma.wire_bytes(4096, Scheme.THORN) == rdma.wire_bytes(4096, Scheme.THORN_SOFTWARE) == 4228


def test_goodput_of_a_busy_link():
    assert rdma.goodput_bps(100e9, 4096, Scheme.NONE) == pytest.approx(100e9 * 4096 / 4178)
    lost = 1 - rdma.goodput_bps(100e9, 4096, Scheme.THORN) / rdma.goodput_bps(100e9, 4096, Scheme.NONE)
    assert lost == pytest.approx(50 / 4228)
