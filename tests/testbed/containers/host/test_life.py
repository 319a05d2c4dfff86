"""The table of a container's life, and how long its restarts wait."""

from __future__ import annotations

import itertools

import pytest

from control.allocator.backoff import MOST_S, RESET_S
from testbed.containers.host.life import (
    ASLEEP,
    AWAKE,
    NEXT,
    NS,
    Event,
    Life,
    State,
)
from twinbed import InvariantError

IMPOSSIBLE = sorted(set(itertools.product(State, Event)) - NEXT.keys(), key=str)


@pytest.mark.parametrize(("state", "event"), IMPOSSIBLE)
def test_an_impossible_event_is_an_error_and_the_state_stays(state: State, event: Event) -> None:
    life = Life(state)
    with pytest.raises(InvariantError, match=f"{state.name} got the event {event.name}"):
        life.on(event)
    assert life.state is state


def test_every_state_can_be_reached_and_left() -> None:
    assert {state for state, _ in NEXT} == set(State)
    assert set(NEXT.values()) == set(State)
    assert all(NEXT[state, Event.LEAVE] is State.ABSENT for state in State)


@pytest.mark.parametrize("state", AWAKE)
def test_who_goes_on_after_a_hold_is_what_it_was(state: State) -> None:
    life = Life(state)
    life.on(Event.HOLD)
    assert life.state in ASLEEP
    life.on(Event.RELEASE)
    assert life.state is state


def test_restarts_wait_longer_and_longer_until_one_has_held() -> None:
    life, waits, now = Life(), [], 0
    for _ in range(8):
        waits.append((life.next_start_ns(now) - now) / NS)
        now += NS
        life.started_ns = now
    # At once, then 1 s × 2^(failures − 2), at most 30 s.
    assert waits == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, MOST_S, MOST_S]

    later = now + round(RESET_S * NS)
    assert life.next_start_ns(later) == later


def test_a_deliberate_restart_is_no_failure_and_forgets_earlier_ones() -> None:
    life = Life()
    for now in range(3):
        life.next_start_ns(now)
    for now in range(3):
        life.deliberate = True
        assert life.next_start_ns(now) == now
    assert life.next_start_ns(4) == 4, "the first failure after it restarts at once"
    assert life.next_start_ns(5) == 5 + NS
