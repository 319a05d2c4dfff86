"""Reports between hosts: only those of the fabric's hosts are accepted, each once, and none that is old."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.fast_path.message import MOST_TORS, Opener, Refusal, Report, Sealer
from twinbed import ScenarioError

KEY, OTHER_KEY = b"k" * 32, b"x" * 32
NOW_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000
HERE, THERE = 1, 2
REPORT = Report(THERE, frozenset({0, 3}), 3.0)


def opener(key=KEY, senders=(THERE,)) -> Opener:
    return Opener(key, senders, window_s=5.0)


def refused(receiver: Opener) -> dict[Refusal, int]:
    return dict(receiver.refused)


@given(st.frozensets(st.integers(0, 2**32 - 1), max_size=MOST_TORS), st.integers(0, 3_600_000))
def test_what_is_sealed_is_opened(tors, lifetime_ms) -> None:
    report = Report(THERE, tors, lifetime_ms / 1e3)
    assert opener().open(Sealer(KEY).seal(report, NOW_NS), NOW_NS) == report


@given(st.data())
def test_no_bit_of_it_may_be_another(data) -> None:
    sealed = bytearray(Sealer(KEY).seal(REPORT, NOW_NS))
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    receiver = opener()
    assert receiver.open(bytes(sealed), NOW_NS) is None
    assert refused(receiver) == {Refusal.FORGED: 1}


@given(st.binary(max_size=200))
def test_anything_may_arrive(datagram) -> None:
    assert opener().open(datagram, NOW_NS) is None


def test_a_replay_is_refused_and_so_is_an_older_one() -> None:
    sealer, receiver = Sealer(KEY), opener()
    old, new = sealer.seal(REPORT, NOW_NS), sealer.seal(REPORT, NOW_NS + 1)
    assert receiver.open(new, NOW_NS) == REPORT
    assert receiver.open(new, NOW_NS) is None
    assert receiver.open(old, NOW_NS) is None
    assert refused(receiver) == {Refusal.REPLAYED: 2}


def test_a_clock_that_goes_back_does_not_make_a_sender_repeat_itself() -> None:
    sealer, receiver = Sealer(KEY), opener()
    assert receiver.open(sealer.seal(REPORT, NOW_NS), NOW_NS) is not None
    assert receiver.open(sealer.seal(REPORT, NOW_NS - SECOND_NS), NOW_NS) is not None


@pytest.mark.parametrize("apart_ns", [6 * SECOND_NS, -6 * SECOND_NS])
def test_a_receiver_that_has_just_started_refuses_what_was_recorded_before(apart_ns) -> None:
    receiver = opener()
    assert receiver.open(Sealer(KEY).seal(REPORT, NOW_NS), NOW_NS + apart_ns) is None
    assert refused(receiver) == {Refusal.STALE: 1}


def test_another_fabric_and_a_stranger_are_refused() -> None:
    receiver = opener(senders=(HERE,))
    receiver.open(Sealer(OTHER_KEY).seal(REPORT, NOW_NS), NOW_NS)
    receiver.open(Sealer(KEY).seal(REPORT, NOW_NS), NOW_NS)
    assert refused(receiver) == {Refusal.FORGED: 1, Refusal.STRANGER: 1}


def test_a_key_that_is_short_and_a_report_that_is_long_are_named() -> None:
    with pytest.raises(ScenarioError, match="key of 3 bytes"):
        Sealer(b"abc")
    with pytest.raises(ScenarioError, match="65 ToRs in a report"):
        Sealer(KEY).seal(Report(HERE, frozenset(range(65)), 1.0), NOW_NS)
