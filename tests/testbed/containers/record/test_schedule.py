"""The sampling schedule on a clock that the test moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from testbed.containers.record.schedule import NS, Schedule


class FakeTime:
    """A clock in ns; sleeping takes as long as it was asked to, and `extra_ns` more."""

    def __init__(self) -> None:
        self.now_ns = 5 * NS
        self.extra_ns = 0

    def clock(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_ns += round(seconds * NS) + self.extra_ns


def test_ticks_are_absolute_so_lateness_does_not_add_up() -> None:
    time = FakeTime()
    schedule = Schedule(0.1, time.clock, time.sleep)
    time.extra_ns = 3_000_000
    for tick in range(1, 1_001):
        assert schedule.wait() == tick
        # Each wake-up is 3 ms late. A schedule that adds intervals up would be 3 s late by the end.
        assert time.now_ns == schedule.start_ns + tick * NS // 10 + 3_000_000
        time.now_ns += 20_000_000
    assert schedule.missed == 0


def test_a_stall_skips_to_the_latest_tick_and_counts_the_others() -> None:
    time = FakeTime()
    schedule = Schedule(0.1, time.clock, time.sleep)
    assert schedule.wait() == 1
    time.now_ns += 350_000_000
    # 0.45 s after the start: ticks 2, 3 and 4 are due, 4 is served at once, 2 and 3 are missed.
    assert schedule.wait() == 4
    assert schedule.missed == 2
    assert schedule.wait() == 5
    assert time.now_ns == schedule.start_ns + 5 * NS // 10


def test_a_sleep_that_returns_early_is_slept_again() -> None:
    time = FakeTime()
    schedule = Schedule(
        0.1, time.clock, lambda seconds: time.sleep(seconds / 2 if seconds > 0.01 else seconds)
    )
    assert schedule.wait() == 1
    assert time.now_ns >= schedule.due_ns(1)


@given(st.lists(st.integers(0, 500_000_000), max_size=40))
def test_every_tick_is_either_served_or_missed(busy_ns: list[int]) -> None:
    time = FakeTime()
    schedule = Schedule(0.1, time.clock, time.sleep)
    served = []
    for each in busy_ns:
        served.append(schedule.wait())
        assert schedule.due_ns(served[-1]) <= time.now_ns < schedule.due_ns(served[-1] + 1)
        time.now_ns += each
    assert served == sorted(set(served))
    assert len(served) + schedule.missed == schedule.tick
