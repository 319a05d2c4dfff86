"""Memory of visits: what is kept for later ones, and who gives it back."""

import asyncio
from types import SimpleNamespace

import pytest

from control.services import Memory
from testbed.containers.services.footprint import TRIM_S, Footprint


class Clock:
    """An event loop's clock and timers, which the test moves."""

    def __init__(self):
        self.now_s, self.timers = 0.0, []

    def time(self):
        return self.now_s

    def call_at(self, due_s, call):
        timer = SimpleNamespace(due_s=due_s, call=call)
        timer.cancel = lambda: self.timers.remove(timer)
        self.timers.append(timer)
        return timer

    def to(self, now_s):
        """Move on. Return the number of timers that rang."""
        due = [timer for timer in self.timers if timer.due_s <= now_s]
        self.now_s = now_s
        for timer in due:
            self.timers.remove(timer)
            timer.call()
        return len(due)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    return clock


def test_visits_give_memory_back_and_a_timer_only_once_they_have_stopped(clock):
    footprint = Footprint(Memory(request_bytes=4096))
    memories = [footprint.hold(), footprint.hold()]
    for memory in memories:
        footprint.give_back(memory)
    rang = 0
    for visit in range(1, 11):
        held = footprint.hold()
        assert held in memories
        rang += clock.to(visit * 0.5 * TRIM_S)
        footprint.give_back(held)
    # One visit at a time needs one memory; the other one went back without a wake-up.
    assert [memory.closed for memory in memories].count(True) == 1
    assert rang == 0
    assert clock.to(clock.now_s + 2.0 * TRIM_S) == 1
    assert all(memory.closed for memory in memories)
    assert not clock.timers
