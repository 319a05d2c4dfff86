"""Retransmission timers: the measured ladders, their properties, and the plain timer as it always was."""

from math import inf, nextafter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lab.fabric.calibrate.retries import RetryProfile, retry_profile
from lab.fabric.calibrate.values import load_calibration
from twin.fabric import rdma
from twin.fabric.model import QueuePair
from twin.fabric.retransmission import Generator, Plain, Range, ladder
from twinbed import ScenarioError

PROFILES = {name: retry_profile(name, load_calibration().values) for name in RetryProfile}
MEASURED = PROFILES["cx6-20.43"]
TIMEOUTS, RETRIES = st.integers(1, 31), st.integers(1, 7)
RATE_BPS = 100e9


def n_s(timeout):
    return 4.096e-6 * 2**timeout


def queue_pair(name, timeout, retries, window=1):
    return QueuePair(timeout, retries, window=window, retry_profile=PROFILES[name])


@st.composite
def queue_pairs(draw, names=tuple(RetryProfile)):
    name = draw(st.sampled_from(names))
    timeout, retries = draw(TIMEOUTS), draw(RETRIES)
    if name == "cx6-20.40":
        timeout, retries = min(timeout, 16), 7
    if name == "adp":  # thousands of retransmissions otherwise
        timeout = min(timeout, 24)
    return queue_pair(name, timeout, retries)


@settings(deadline=None)
@given(queue_pairs())
def test_rungs_increase_and_end_before_the_error(pair):
    instants_s = (0.0, *pair.ladder.rungs_s, pair.ladder.error_s)
    assert np.all(np.diff(instants_s) > 0)


@settings(deadline=None)
@given(queue_pairs(), st.floats(0.0, 1.5), st.floats(0.0, 1e-3))
def test_a_stall_is_no_shorter_than_its_gap_and_ends_with_a_rung(pair, share, rtt_s):
    gap_s = share * pair.ladder.error_s
    stall_s = float(rdma.stall_s(pair, gap_s, rdma.Link(rtt_s=rtt_s)))
    assert stall_s >= gap_s
    assert stall_s in (0.0, inf) or stall_s in np.array(pair.ladder.rungs_s) + rtt_s


@settings(deadline=None)
@given(queue_pairs(), st.floats(0.0, 1.2), st.floats(0.0, 1e-3), st.integers(1, 512))
def test_a_stall_with_a_burst_ends_with_a_rung_or_a_round_trip_after_the_gap(pair, share, rtt_s, window):
    link = rdma.Link(RATE_BPS, rtt_s)
    bursty = QueuePair(pair.timeout, pair.retry_count, window=window, retry_profile=pair.retry_profile)
    gap_s = share * pair.ladder.error_s
    stall_s = float(rdma.stall_s(bursty, gap_s, link))
    assert stall_s >= gap_s
    assert stall_s in (0.0, inf, gap_s + rtt_s) or stall_s in np.array(pair.ladder.rungs_s) + rtt_s


@settings(deadline=None)
@given(
    queue_pairs(),
    st.lists(st.floats(0.0, 1.2), min_size=2, max_size=20),
    st.integers(1, 512),
    st.sampled_from([0.0, 1e-5]),
)
def test_a_longer_gap_stalls_no_less(pair, shares, window, rtt_s):
    bursty = QueuePair(pair.timeout, pair.retry_count, window=window, retry_profile=pair.retry_profile)
    gaps_s = np.sort(shares) * pair.ladder.error_s
    stalls_s = rdma.stall_s(bursty, gaps_s, rdma.Link(RATE_BPS, rtt_s))
    # A hole is answered a round trip after the gap, and the next retransmission may come within that time.
    assert np.all(stalls_s[1:] >= stalls_s[:-1] - rtt_s * (1 + 1e-9))


@settings(deadline=None)
@given(queue_pairs(), st.floats(0.0, 1e-3))
def test_what_the_last_rung_reaches_is_survived_and_nothing_beyond(pair, rtt_s):
    assume(pair.ladder.rungs_s)
    last_s = rtt_s + pair.ladder.rungs_s[-1]
    gaps_s = [last_s, nextafter(last_s, inf)]
    assert np.isfinite(rdma.stall_s(pair, gaps_s, rdma.Link(rtt_s=rtt_s))).tolist() == [True, False]


@given(st.integers(1, 16), RETRIES)
def test_below_the_floor_the_exponent_changes_nothing(timeout, retries):
    assert ladder(MEASURED, timeout, retries) == ladder(MEASURED, 16, retries)


@given(TIMEOUTS, st.integers(2, 7), st.floats(0.0, 0.4404))
def test_short_gaps_cost_the_same_with_every_exponent(timeout, retries, gap_s):
    pairs = [queue_pair("cx6-20.43", exponent, retries) for exponent in (14, timeout)]
    assert len({float(rdma.stall_s(pair, gap_s)) for pair in pairs}) == 1


@given(st.sampled_from(["plain", "manual", "cx6-20.43", "floor-off"]), TIMEOUTS, RETRIES)
def test_a_longer_timeout_and_more_retries_die_no_sooner(name, timeout, retries):
    profile = PROFILES[name]
    error_s = ladder(profile, timeout, retries).error_s
    assert error_s <= ladder(profile, min(timeout + 1, 31), retries).error_s
    assert error_s <= ladder(profile, timeout, min(retries + 1, 7)).error_s


def plain_stall_s(gap_s, timeout_s, retries, burst_s, rtt_s):
    """The rule as it was before there were profiles."""
    if gap_s <= 0.0:
        return 0.0
    for retry in range(retries + 1):
        sent_s = rtt_s + retry * timeout_s if retry > 0 else 0.0
        if sent_s >= gap_s:
            return sent_s
        if sent_s + burst_s > gap_s and retry < retries:
            return gap_s + rtt_s
    return inf


@given(st.integers(1, 31), st.integers(0, 7), st.floats(0.0, 1.2), st.floats(0.0, 1e-2), st.integers(1, 4096))
def test_the_plain_timer_is_the_one_of_before_to_the_bit(timeout, retries, share, rtt_s, window):
    pair = QueuePair(timeout, retries, window=window)
    gap_s = share * (retries + 1) * n_s(timeout)
    burst_s = window * (4096 + rdma.ROCE_V2_BYTES) * 8 / RATE_BPS
    stall_s = rdma.stall_s(pair, gap_s, rdma.Link(RATE_BPS, rtt_s))
    assert stall_s == plain_stall_s(gap_s, n_s(timeout), retries, burst_s, rtt_s)
    assert pair.ladder.error_s == (retries + 1) * n_s(timeout)
    assert pair.ladder.rungs_s == tuple(retry * n_s(timeout) for retry in range(1, retries + 1))
    assert pair.ladder.waits_s == (n_s(timeout),) * (retries + 1)


ADAPTIVE_MS = (20.9, 37.7, 71.4, 138.4, 239.0, 440.4, 977.2, 1782.5, 3930.3, 8225.1)


@pytest.mark.parametrize(
    ("timeout", "adaptive", "regular_s", "error_s"),
    [
        (14, 6, [0.977, 1.514, 2.051, 2.588, 3.125], 3.662),
        (16, 6, [0.977, 1.514, 2.051, 2.588, 3.125], 3.662),
        (17, 7, [1.782, 2.856, 3.930, 5.004, 6.077], 7.151),
        (18, 8, [3.930, 6.077, 8.225, 10.372, 12.520], 14.667),
        (19, 9, [8.225, 12.520, 16.815, 21.110, 25.405], 29.700),
        (20, 10, [16.815, 25.405, 33.995, 42.585, 51.175], 59.765),
    ],
)
def test_connectx_6_with_firmware_20_43_as_it_was_measured(timeout, adaptive, regular_s, error_s):
    times = ladder(MEASURED, timeout, 7)
    assert times.rungs_s[:adaptive] == pytest.approx(np.array(ADAPTIVE_MS[:adaptive]) / 1e3)
    assert times.rungs_s[adaptive:] == pytest.approx(regular_s, abs=1.5e-3)
    assert times.error_s == pytest.approx(error_s, abs=1.5e-3)


def test_few_retries_end_with_the_adaptive_phase():
    assert ladder(MEASURED, 14, 1).error_s == pytest.approx(0.4404)
    assert ladder(MEASURED, 14, 1).rungs_s == ladder(MEASURED, 14, 2).rungs_s[:-1]
    assert ladder(MEASURED, 14, 2).error_s == pytest.approx(0.9772)


@pytest.mark.parametrize("first_ms", [12.5, 20.9, 37.7, 71.4])
def test_the_first_instant_is_a_draw_after_which_the_ladder_is_the_same(first_ms):
    profile = retry_profile(
        "cx6-20.43", load_calibration().values, {"retry_cx6_20_43": {"first_s": first_ms / 1e3}}
    )
    times = ladder(profile, 18, 7)
    assert times.rungs_s[0] == pytest.approx(first_ms / 1e3)
    assert times.rungs_s[-5:] == pytest.approx(ladder(MEASURED, 18, 7).rungs_s[-5:])
    assert times.error_s == pytest.approx(ladder(MEASURED, 18, 7).error_s)


def test_connectx_6_with_firmware_20_40_as_it_was_measured():
    times = ladder(PROFILES["cx6-20.40"], 14, 7)
    regular_ms = [1059 + 537 * count for count in range(5)]
    expected_ms = [3.8, 8.3, 14.3, 26.3, 51.8, 118.6, 253.2, 522.0, *regular_ms]
    assert times.rungs_s == pytest.approx(np.array(expected_ms) / 1e3)
    assert times.error_s == pytest.approx(3.742)


@pytest.mark.parametrize(("timeout", "error_s"), [(17, 3.8), (18, 7.5), (19, 15.0), (20, 30.0), (21, 60.0)])
def test_the_manual_s_totals(timeout, error_s):
    assert ladder(PROFILES["manual"], timeout, 7).error_s == pytest.approx(error_s, rel=0.015)


@pytest.mark.parametrize(
    ("timeout", "shortest_s", "longest_s"),
    [
        (8, 9.49e-3, 9.49e-3),
        (10, 37.9e-3, 37.9e-3),
        (12, 0.147, 0.147),
        (14, 0.5749, 0.5749),
        (16, 2.320, 2.320),
        (17, 4.736, 4.736),
        (18, 9.220, 9.220),
        (20, 37.6, 38.3),
    ],
)
def test_without_a_floor_the_first_timeout_varies_within_the_measured_bounds(timeout, shortest_s, longest_s):
    first = np.array([0.51, 1.16])
    assert 8.51 * n_s(timeout) <= shortest_s * 1.01
    assert longest_s <= 9.16 * n_s(timeout) * 1.01
    low_s, default_s, high_s = (
        ladder(replaced, timeout, 7).error_s
        for replaced in (
            retry_profile("floor-off", load_calibration().values, {"retry_floor_off": {"first": value}})
            for value in (first[0], 0.8, first[1])
        )
    )
    assert low_s < default_s == ladder(PROFILES["floor-off"], timeout, 7).error_s < high_s


@pytest.mark.parametrize(
    ("version", "timeout", "error_s"), [("2.13", 14, 3.66), ("2.22", 18, 14.67), ("2.30.7", 20, 59.8)]
)
def test_nccl_notices_an_error_after_longer_and_longer(version, timeout, error_s):
    assert ladder(MEASURED, timeout, 7).error_s == pytest.approx(error_s, rel=2e-3)


def test_a_silence_of_20_s_kills_at_18_and_not_at_20():
    at_18, at_20 = ([queue_pair(name, timeout, 7) for name in ("plain", "cx6-20.43")] for timeout in (18, 20))
    assert not any(rdma.survives(pair, 20.0) for pair in at_18)
    assert [float(rdma.stall_s(pair, 20.0)) for pair in at_20] == pytest.approx([21.475, 25.405], abs=1e-3)


GENERATOR = Generator(4e-6, 8, 16, 1, 0.0, (Range(32, 97, 2), Range(256, 1, 3)))
UNIT_S = 4e-6 * 2**8


def test_the_generator_uses_each_timeout_doubles_it_and_goes_on_with_the_next_range():
    waits = np.array(ladder(GENERATOR, 20, 7).waits_s) / UNIT_S
    assert waits[:11] == pytest.approx([16, 32, 32, 64, 64, 128, 128, 256, 256, 256, 256])


@settings(deadline=None)
@given(st.integers(11, 26), RETRIES, st.floats(0, 1), st.floats(1, 4))
def test_the_generator_ends_at_its_total_and_no_wait_is_longer_than_the_timeout(
    timeout, retries, share, slack
):
    made = Generator(4e-6, 8, 16, 8, share, (Range(32, 97, 2), Range(2048, 1 << 17, 1)), 0, slack)
    times = ladder(made, timeout, retries)
    assert times.error_s == pytest.approx(retries * n_s(timeout))
    assert max(times.waits_s) <= n_s(timeout) * slack * (1 + 1e-9)
    fixed = Generator(4e-6, 8, 16, 8, share, (Range(32, 97, 2),), 19, slack)
    assert ladder(fixed, timeout, retries).error_s == pytest.approx(4e-6 * 2**19)


def test_a_timer_that_is_switched_off_never_ends():
    for profile in PROFILES.values():
        times = ladder(profile, 0, 7)
        assert (times.rungs_s, times.error_s) == ((), inf)
    series = rdma.send_series(
        QueuePair(timeout=0, window=32),
        rdma.Link(RATE_BPS, 1e-5),
        messages=2,
        message_bytes=1 << 20,
        outages=np.array([[1e-5, 1e-3]]),
    )
    assert series.timeouts == 0
    assert np.isnan(series.error_at_s)


@pytest.mark.parametrize(
    ("profile", "timeout", "retries", "said"),
    [
        (Plain(), 32, 7, "timeout: 32 is not one of 0 … 31"),
        (Plain(), 18, 8, "retry_count: 8 is not one of 0 … 7"),
        (Plain(slack=5.0), 18, 7, "timer_slack"),
        (PROFILES["manual"], 18, 0, "never measured with manual"),
        (MEASURED, 18, 0, "never measured with cx6-20.43"),
        (PROFILES["cx6-20.40"], 18, 7, "timeouts up to 16 alone; give these, or take"),
        (PROFILES["cx6-20.40"], 14, 6, "7 retries"),
        (PROFILES["adp"], 14, 0, "never measured with adp"),
        (Generator(4e-6, 0, 1, 1, 0.0, (), 0), 14, 7, "0 ranges"),
        (Generator(4e-6, 0, 0, 1, 0.0, (Range(1, 1, 1),), 0), 14, 7, "first_low"),
        (Generator(4e-6, 0, 1, 1, 2.0, (Range(1, 1, 1),), 0), 14, 7, "first_share"),
        (Generator(2e-6, 0, 1, 1, 0.0, (Range(1, 1, 1),), 0), 14, 7, "power of two"),
        (Generator(5e-6, 0, 1, 1, 0.0, (Range(1, 1, 1),), 0), 14, 7, "power of two"),
        (Generator(4e-6, 0, 1, 1, 0.0, (Range(1, 1, 1),), 20), 31, 7, "more than 20000"),
    ],
)
def test_what_no_adapter_does_is_refused(profile, timeout, retries, said):
    with pytest.raises(ScenarioError, match=said):
        ladder(profile, timeout, retries)


def test_a_range_without_timeouts_is_refused():
    with pytest.raises(ScenarioError, match="low and size"):
        Range(0, 1, 1)
