"""The data plane of BFD: sessions come up, fail in time, and do not fail by a freeze of their own end."""

from __future__ import annotations

import signal
import time
from ipaddress import IPv4Address

import pytest

from control.fabric import BfdState, BfdTimers
from control.fast_path.ports import Heard, Silent
from testbed.fabric.bfd_plane import messages, processes
from testbed.fabric.bfd_plane.pair import End
from testbed.fabric.fast_path.hearing import Ear
from testbed.fabric.fast_path.reports import Reports
from tests.testbed.fabric.test_fabric_up import until

pytestmark = [pytest.mark.root, pytest.mark.slow]

SHUT_DOWN = 64
SLOW = BfdTimers(0.01, 100)
"""What a stopped end promises: its peer waits for 1 s, however the machine stalls."""


TICK_S = 0.005
"""Longest sleep of the data plane, s."""


def longest_s(end: End) -> float:
    """Return the longest freeze that an end has told, s; 0 without any."""
    return max(((row.end_ns - row.begin_ns) / 1e9 for row in processes.freezes(end.journal)), default=0.0)


def both_up(near: End, far: End, near_timers: BfdTimers, far_timers: BfdTimers) -> None:
    near.add(far, near_timers)
    far.add(near, far_timers)
    until(lambda: near.in_state(BfdState.UP) and far.in_state(BfdState.UP), "the session comes up")


def test_a_session_comes_up_and_fails_not_before_its_detection_time(ends: tuple[End, End]) -> None:
    near, far = ends
    timers = BfdTimers(0.1, 3)
    both_up(near, far, timers, timers)
    far.carrier(up=False)
    until(lambda: near.in_state(BfdState.DOWN), "the silence is noticed")
    (down,) = processes.downs(near.journal)
    assert (down.diagnostic, down.peer) == (1, far.addresses[0])
    assert down.silent_ns >= timers.detection_s * 1e9
    # A dead peer is hidden for one detection time per freeze at most, and by nothing but a freeze.
    frozen = len(processes.freezes(near.journal))
    assert down.credit_ns <= frozen * timers.detection_s * 1e9
    assert near.listener.changes[-1].diagnostic == 1


def test_stops_of_its_own_end_bring_no_session_down(ends: tuple[End, End]) -> None:
    near, far = ends
    # The peer sends every 100 ms at most, so that no stall of the machine decides. The stops go beyond that.
    both_up(near, far, SLOW, BfdTimers(0.1, 3))
    for stop_s in (0.005, 0.06, 0.31, 0.5):
        near.signal(signal.SIGSTOP)
        time.sleep(stop_s)
        near.signal(signal.SIGCONT)
        # The shortest is as long as a tick, and may pass for one.
        known_s = stop_s if stop_s > TICK_S else 0.0
        until(lambda known_s=known_s: longest_s(near) >= known_s, "the freeze is known")
    time.sleep(0.35)
    assert near.in_state(BfdState.UP)
    assert processes.downs(near.journal) == []


def test_a_stop_of_both_ends_brings_no_session_down(ends: tuple[End, End]) -> None:
    near, far = ends
    both_up(near, far, BfdTimers(0.1, 3), BfdTimers(0.1, 3))
    for one in ends:
        one.signal(signal.SIGSTOP)
    # With the last packet before, this is longer than the detection time; the credit is as long as the stop.
    time.sleep(0.29)
    for one in ends:
        one.signal(signal.SIGCONT)
    time.sleep(0.5)
    assert (near.in_state(BfdState.UP), far.in_state(BfdState.UP)) == (1, 1)
    assert [processes.downs(one.journal) for one in ends] == [[], []]


def test_a_peer_that_dies_during_a_stop_is_not_hidden_for_ever(ends: tuple[End, End]) -> None:
    near, far = ends
    timers = BfdTimers(0.1, 3)
    both_up(near, far, SLOW, timers)
    near.signal(signal.SIGSTOP)
    far.signal(signal.SIGSTOP)
    time.sleep(0.4)
    near.signal(signal.SIGCONT)
    until(lambda: near.in_state(BfdState.DOWN), "the dead peer is noticed")
    far.signal(signal.SIGCONT)
    (down,) = processes.downs(near.journal)
    frozen = len(processes.freezes(near.journal))
    assert 0 < down.credit_ns <= frozen * timers.detection_s * 1e9


def test_a_peer_that_was_told_hears_down_at_once_and_both_come_back(ends: tuple[End, End]) -> None:
    near, far = ends
    timers = BfdTimers(0.3, 3)
    both_up(near, far, timers, timers)
    near.add(far, timers, flags=SHUT_DOWN)
    until(lambda: far.in_state(BfdState.DOWN), "the peer is told")
    (down,) = processes.downs(far.journal)
    assert down.diagnostic == 3
    near.add(far, timers)
    until(lambda: near.in_state(BfdState.UP) and far.in_state(BfdState.UP), "both come back")


def test_a_killed_worker_is_started_again_and_its_sessions_come_back(ends: tuple[End, End]) -> None:
    near, far = ends
    timers = BfdTimers(0.1, 3)
    both_up(near, far, timers, timers)
    first = processes.worker(near.journal)
    near.signal(signal.SIGKILL)
    near.listener.accept()
    assert processes.worker(near.journal) != first
    near.add(far, timers)
    until(lambda: len(processes.downs(far.journal)) == 1, "the peer notices")
    until(lambda: near.in_state(BfdState.UP) and far.in_state(BfdState.UP), "both come back")


def test_questions_are_answered_and_unknown_messages_skipped(ends: tuple[End, End]) -> None:
    near, far = ends
    both_up(near, far, BfdTimers(0.05, 5), BfdTimers(0.05, 5))
    near.listener.send(messages.message(77, b"what"))
    near.listener.send(messages.message(messages.COUNTERS_REQUEST, near.first.to_bytes(4, "big"), 3))
    near.listener.send(messages.message(messages.ECHO_REQUEST, (42).to_bytes(16, "little"), 4))
    until(lambda: near.listener.read() and near.listener.echoes, "the echo comes")
    in_bytes, in_packets, _, out_packets, *_ = near.listener.counters[near.first]
    assert in_bytes == 24 * in_packets > 0
    assert out_packets > 0


@pytest.mark.parametrize(
    "damaged",
    [
        *(bytes((1, 0, 0, 0, 0, 0, 0, size)) for size in (0, 7)),
        messages.message(messages.ADD, bytes(131)),
        b"\x02" + messages.message(messages.ECHO_REQUEST, bytes(16))[1:],
    ],
    ids=["length 0", "length 7", "a session cut short", "another version"],
)
def test_what_cannot_be_a_message_ends_the_connection_and_nothing_else(
    ends: tuple[End, End], damaged: bytes
) -> None:
    near, _ = ends
    worker = processes.worker(near.journal)
    near.listener.send(damaged)
    until(lambda: not near.listener.read(), "the data plane hangs up")
    near.listener.accept()
    assert processes.worker(near.journal) == worker


def test_the_fast_path_is_told_of_silence_and_of_a_data_plane_that_dies(
    ends: tuple[End, End],
) -> None:
    near, far = ends
    reports = Reports(near.tell, [Ear("cable", 0, int(IPv4Address(far.addresses[0])))])
    told: list[object] = []

    def seen(kind: type, state: BfdState | None = None) -> bool:
        told.extend(reports.events())
        return any(
            isinstance(event, kind) and (state is None or event.control.state == state)  # type: ignore[attr-defined]
            for event in told
        )

    both_up(near, far, BfdTimers(0.1, 3), BfdTimers(0.1, 3))
    until(lambda: seen(Heard, BfdState.UP), "up is told")
    told.clear()
    far.carrier(up=False)
    until(lambda: seen(Silent), "the silence is told")
    told.clear()
    near.signal(signal.SIGKILL)
    until(lambda: seen(Silent) and len(reports.sockets()) == 1, "its end is told")
    reports.close()
