import numpy as np
import pytest

from control.allocator.model import (
    NO_CPU,
    NOTHING,
    CpuLimits,
    Decision,
    Join,
    MemoryLimits,
    PeriodStats,
    Reason,
    ServiceStats,
    slot,
)
from tests.control.allocator.fleets import join, oom, period, shrunk
from twinbed import InvariantError


def test_a_slot_is_the_low_half_of_an_id():
    assert slot(np.array([5, (3 << 32) | 7])).tolist() == [5, 7]


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_words_and_fits_a_byte(reason):
    assert reason.describe()
    assert np.uint8(reason) == reason


def test_a_decision_is_empty_until_any_part_is_not():
    first = np.array([0], np.int64)
    why = np.array([Reason.UNUSED], np.uint8)
    assert NOTHING.empty
    assert not Decision(cpu=CpuLimits(first, np.array([1.0]), why)).empty
    assert not Decision(memory=MemoryLimits(first, first, why)).empty
    assert not Decision(restart=first).empty
    assert not Decision(kill=first).empty
    assert not Decision(reclaim=first).empty


def test_the_shared_empty_parts_cannot_be_written_to():
    assert not NO_CPU.ids.flags.writeable
    assert not NO_CPU.quota_cores.flags.writeable


@pytest.mark.parametrize(
    "build",
    [
        lambda: Join(np.array([0]), np.array([1.0, 2.0])),
        lambda: join([0], peak_cores=[1.0, 2.0]),
        lambda: period([0], [1.0, 2.0], [0.0, 0.0]),
        lambda: oom([0], [1, 2]),
        lambda: shrunk([0], [0], [1, 2]),
        lambda: CpuLimits(np.array([0]), np.array([1.0, 2.0]), np.array([0], np.uint8)),
        lambda: MemoryLimits(np.array([0]), np.array([1]), np.array([0, 0], np.uint8)),
    ],
)
def test_arrays_of_different_lengths_side_by_side_are_refused(build):
    with pytest.raises(InvariantError, match="side by side"):
        build()


def test_period_statistics_are_frozen():
    stats = period([0], [1.0], [0.0])
    assert isinstance(stats, PeriodStats)
    with pytest.raises(AttributeError):
        stats.period_s = 1.0  # type: ignore[misc]


def test_service_statistics_say_the_same_number_of_applications():
    ServiceStats(np.array([1.0, 2.0]), np.array([0.1, np.nan]), 60.0)
    with pytest.raises(InvariantError, match="ServiceStats"):
        ServiceStats(np.array([1.0, 2.0]), np.array([0.1]), 60.0)
