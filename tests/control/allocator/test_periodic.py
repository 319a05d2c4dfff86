"""The base class of a user's own policies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from control.allocator.periodic import PeriodicPolicy, Sample
from tests.control.allocator.fleets import application, join, period
from twinbed import ScenarioError


class Follow(PeriodicPolicy):
    """Sets twice the use, and keeps its samples."""

    def begin(self) -> None:
        self.samples: list[Sample] = []
        self.seen = self.column(7.0)

    def limits(self, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
        self.samples.append(sample)
        self.seen.values[sample.slots] += 1.0
        return 2 * sample.cores, sample.limit_bytes


def test_a_sample_has_the_shares_and_means_of_its_own_interval_and_columns_begin_anew() -> None:
    policy = Follow(interval_s=0.4)
    ids = policy.start([application()], join([0, 0], peak_cores=[1.0, 1.0], peak_bytes=[1, 1])).cpu.ids
    for number in range(8):
        throttled = [number < 3, number == 7]
        stats = period(ids, [1.0, 1.0], [0.5, 0.75], throttled)
        policy.on_period(replace(stats, at_s=0.1 * (number + 1)))
    first, second = policy.samples
    assert (first.throttled.tolist(), second.throttled.tolist()) == ([0.75, 0.0], [0.0, 0.25])
    assert (first.cores.tolist(), second.quota_cores.tolist()) == ([0.5, 0.25], [1.0, 0.5])
    assert [first.at_s, second.at_s] == pytest.approx([0.4, 0.8])
    assert policy.seen.values[second.slots].tolist() == [9.0, 9.0]
    policy.on_leave(ids[:1])
    policy.on_join(join([0], peak_cores=[1.0], peak_bytes=[1]))
    assert sorted(policy.seen.values[second.slots].tolist()) == [7.0, 9.0]


class Fixed(PeriodicPolicy):
    """Wants the same limits always."""

    def __init__(self, cores: float, size: float) -> None:
        super().__init__(interval_s=0.1)
        self.wanted = cores, size

    def limits(self, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
        cores, size = self.wanted
        return np.full(len(sample.slots), cores), np.full(len(sample.slots), size)


def test_a_policy_that_wants_no_limit_gets_what_the_application_has() -> None:
    policy, size = Fixed(np.inf, np.inf), 1 << 20
    ids = policy.start(
        [application(memory_bytes=100 * size)], join([0, 0], 8.0, [1.0, 1.0], [size] * 2)
    ).cpu.ids
    given = policy.on_period(replace(period(ids, [1.0, 1.0], [0.5, 0.5]), at_s=0.1))
    assert given.cpu.quota_cores.tolist() == [5.0, 5.0]
    assert given.memory.limit_bytes.tolist() == [50 * size] * 2


@pytest.mark.parametrize("wanted", [(np.nan, 1.0), (1.0, np.nan)])
def test_a_policy_that_answers_nan_is_named(wanted: tuple[float, float]) -> None:
    policy = Fixed(*wanted)
    ids = policy.start([application()], join([0], peak_cores=[1.0], peak_bytes=[1])).cpu.ids
    with pytest.raises(ScenarioError, match=r"Fixed\.limits: a limit is NaN at 0\.1 s"):
        policy.on_period(replace(period(ids, [1.0], [0.5]), at_s=0.1))
