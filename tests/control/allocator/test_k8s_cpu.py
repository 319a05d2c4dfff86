"""The Kubernetes-like CPU scalers: quotas from recent usage, memory left alone."""

import pytest

from control.allocator import make
from control.allocator.model import Application
from lab.check.driven_fleet import DrivenFleet
from tests.control.allocator.fleets import MIB
from twinbed import ScenarioError

SHOP = Application("shop", 16.0, 16 << 30)


def driven(name="k8s-cpu", peaks=([2.0], [100 * MIB]), **parameters):
    return DrivenFleet(make(name, parameters), [SHOP], [0], peaks=peaks, period_s=1.0)


def test_the_quota_is_the_usage_over_the_target():
    fleet = driven(target_utilisation=0.5)
    fleet.run(14, lambda _: (0.4, MIB))
    assert list(fleet.cores.values()) == [2.0]
    fleet.run(1, lambda _: (0.4, MIB))
    assert list(fleet.cores.values()) == pytest.approx([0.8])


def test_a_container_that_has_not_reported_keeps_its_first_quota():
    fleet = driven()
    fleet.run(14, lambda _: (0.4, MIB))
    (new,) = fleet.join([0], ([1.5], [MIB]))
    old = fleet.ids[0]
    fleet.period({old: (0.4, MIB)})
    assert (fleet.cores[old], fleet.cores[new]) == pytest.approx((0.8, 1.5))
    fleet.run(15, lambda _: (0.3, MIB))
    assert (fleet.cores[old], fleet.cores[new]) == pytest.approx((0.8, 0.6))


def test_a_window_of_one_interval_is_the_shortest():
    assert make("k8s-cpu", {"window_s": 15.0, "interval_s": 15.0})
    with pytest.raises(ScenarioError, match="shorter than interval_s"):
        make("k8s-cpu", {"window_s": 14.0, "interval_s": 15.0})


@pytest.mark.parametrize(("name", "window_s"), [("k8s-cpu", 300), ("k8s-cpu-fast", 20)])
def test_the_largest_of_a_window_holds_until_the_window_has_passed(name, window_s):
    fleet = driven(name, target_utilisation=0.5)
    interval_s = window_s // 20
    fleet.run(interval_s, lambda _: (1.0, MIB))
    fleet.run(window_s - interval_s, lambda _: (0.1, MIB))
    assert list(fleet.cores.values()) == pytest.approx([2.0])
    fleet.run(interval_s, lambda _: (0.1, MIB))
    assert list(fleet.cores.values()) == pytest.approx([0.2])


def test_a_window_has_all_of_its_intervals_where_a_float_misses_one():
    # 20 // 0.1 is 199.0.
    allocator = driven("k8s-cpu-fast", interval_s=0.1).allocator
    assert allocator._remembered.values.shape[1] == 200


def test_all_of_the_applications_memory_is_given_out_and_stays_whatever_happens():
    fleet = driven("k8s-cpu-fast")
    given = list(fleet.bytes.values())
    fleet.run(5, lambda _: (0.4, 140 * MIB))
    assert fleet.oom(fleet.ids).empty
    assert list(fleet.bytes.values()) == given == [SHOP.memory_limit_bytes]
    assert fleet.restarts == []
