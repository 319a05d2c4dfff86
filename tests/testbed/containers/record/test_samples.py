"""Samples to intervals: nothing lost, nothing biased by when a sample was taken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.containers.record.samples import Samples
from testbed.containers.record.schedule import NS

INTERVAL_NS = NS // 10


def at(tick: int, late_ms: float = 0.0) -> int:
    return tick * INTERVAL_NS + round(late_ms * 1e6)


def take(samples: Samples, tick: int, cpu_ns: int, late_ms: float = 0.0, memory: int = 0) -> None:
    samples.put(0, at(tick, late_ms), cpu_ns, 0, memory, 0, 0)
    samples.keep(tick)


def test_a_late_sample_does_not_bias_the_rate() -> None:
    samples = Samples(1)
    # The container uses one core throughout. The second sample comes 50 ms late, and so shows 50 ms more.
    for tick, late_ms in [(0, 0), (1, 0), (2, 50), (3, 0)]:
        take(samples, tick, at(tick, late_ms), late_ms)
    np.testing.assert_allclose(samples.intervals(0, 0.1).cpu_cores[:, 0], [1, 1, 1])


def test_missed_ticks_leave_no_gap_and_share_what_was_used() -> None:
    samples = Samples(1)
    take(samples, 0, 0, memory=100)
    take(samples, 1, INTERVAL_NS, memory=100)
    take(samples, 4, 2 * INTERVAL_NS, memory=400)
    intervals = samples.intervals(0, 0.1)
    np.testing.assert_allclose(intervals.cpu_cores[:, 0], [1, 1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(intervals.memory_bytes[:, 0], [100, 200, 300, 400])
    assert intervals.present.all()


def test_a_container_is_absent_after_the_interval_in_which_it_ended() -> None:
    samples = Samples(2)
    for tick in range(4):
        samples.put(0, at(tick), tick * INTERVAL_NS // 2, 0, 10, 0, 0)
        if tick < 2:
            samples.put(1, at(tick, 5 * tick), at(tick, 5 * tick), 0, 70, tick, 2 * tick)
        elif tick == 2:
            samples.put_last(1, 2, at(1, 40), 0, 5, 8, 9)
        samples.keep(tick)
    intervals = samples.intervals(0, 0.1)
    assert intervals.present.T.tolist() == [[True] * 3, [True, True, False]]
    # The container ended after 140 ms of CPU in all. CPU time late in its last interval is not lost.
    assert intervals.cpu_cores[:, 1].sum() * 0.1 == pytest.approx(0.14)
    assert intervals.cpu_cores[2, 1] == 0
    # Its memory at the end is that of the sample before, not what was left afterwards.
    assert intervals.memory_bytes[:, 1].tolist() == [70, 70, 0]
    assert intervals.rx_bytes[:, 1].sum() == 8
    assert intervals.tx_bytes[:, 1].sum() == 9


@given(
    st.lists(st.tuples(st.integers(1, 4), st.floats(0, 99), st.integers(0, 10**9)), min_size=1, max_size=30),
    st.booleans(),
)
def test_all_that_was_counted_is_in_some_interval(steps: list[tuple[int, float, int]], ended: bool) -> None:
    samples = Samples(1)
    take(samples, 0, 0)
    tick = used = 0
    for skip, late_ms, more in steps:
        tick, used = tick + skip, used + more
        samples.put(0, at(tick, late_ms), used, used // 2, 1, 3 * used, 0)
        if not (ended and (skip, late_ms, more) is steps[-1]):
            samples.keep(tick)
    if ended:
        samples.put_last(0, tick, used, used // 2, 1, 3 * used, 0)
        samples.keep(tick)
    intervals = samples.intervals(0, 0.1)
    assert intervals.cpu_cores.shape == (tick, 1)
    assert intervals.cpu_cores.sum() * 0.1 == pytest.approx(used / 1e9)
    assert intervals.throttled_s.sum() == pytest.approx(used // 2 / 1e9)
    assert intervals.rx_bytes.sum() == pytest.approx(3 * used)
    for values in (intervals.cpu_cores, intervals.throttled_s, intervals.rx_bytes, intervals.memory_bytes):
        assert (values >= 0).all()
