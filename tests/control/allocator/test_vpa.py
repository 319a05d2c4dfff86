"""The VPA: its estimators' arithmetic, its restarts, and the promises that every allocator keeps."""

import numpy as np
import pytest

from control.allocator import make
from control.allocator.histogram import exponential
from control.allocator.model import Application, Reason
from control.allocator.vpa import (
    LOWER_CONFIDENCE,
    UPPER_CONFIDENCE,
    Vpa,
    VpaSettings,
    estimate,
    with_confidence,
    with_margin,
)
from tests.control.allocator.driven_fleet import DrivenFleet
from tests.control.allocator.fleets import MIB, bucket_end
from twinbed import ScenarioError

CPU = exponential(0.01, 1.05, 1000.0)
MEMORY = exponential(1e7, 1.05, 1e12)
SHOP = Application("shop", 16.0, 16 << 30)


def vpa_fleet(containers=1, *, application=SHOP, peaks=None, period_s=1.0, **parameters):
    allocator = Vpa(VpaSettings(**parameters))
    return DrivenFleet(allocator, [application], [0] * containers, peaks=peaks, period_s=period_s)


def test_the_margin_is_a_fraction_of_the_estimate():
    assert with_margin(np.array([2.0]), 0.15) == pytest.approx([2.3])


@pytest.mark.parametrize(
    ("scaling", "days", "factor"),
    [
        (UPPER_CONFIDENCE, 0.0, np.inf),
        (UPPER_CONFIDENCE, 0.5, 3.0),  # 1 + 1 / 0.5
        (UPPER_CONFIDENCE, 1.0, 2.0),
        (LOWER_CONFIDENCE, 0.0, 0.0),
        (LOWER_CONFIDENCE, 5 / 1440, 0.6027),  # (1 + 0.001 · 288)^-2 = 1.288^-2
        (LOWER_CONFIDENCE, 1.0, 0.998),  # 1.001^-2
    ],
)
def test_confidence_scales_the_bounds(scaling, days, factor):
    assert with_confidence(np.array([1.0]), np.array([days]), scaling) == pytest.approx([factor], rel=1e-3)


def test_an_estimate_is_percentile_then_margin_then_confidence_then_floor():
    percentiles = np.array([[1.0, 0.01], [0.5, 0.01], [2.0, 0.01]])
    result = estimate(percentiles, np.array([1.0, 1.0]), 0.15, 0.025)
    # target 1 · 1.15; lower 0.5 · 1.15 · 1.001^-2; upper 2 · 1.15 · 2. 0.01 · 1.15 · 2 is below the floor.
    assert result.target == pytest.approx([1.15, 0.025])
    assert result.lower == pytest.approx([0.575 / 1.001**2, 0.025])
    assert result.upper == pytest.approx([4.6, 0.025])


@pytest.mark.slow
def test_a_load_held_back_by_its_limit_gets_the_target_percentile_plus_margin_in_steps():
    fleet = vpa_fleet(peaks=([0.5], [300 * MIB]), period_s=60.0)
    (container,) = fleet.ids
    # Usage is cut to the limit, so each restart learns of little more than the margin.
    fleet.run(4 * 86_400, lambda _: (2.0, 200 * MIB))
    assert fleet.cores[container] == pytest.approx(bucket_end(CPU, 2.0) * 1.15)
    assert len(fleet.restarts) > 5


def test_the_first_restart_follows_from_the_arithmetic():
    fleet = vpa_fleet(peaks=([4.0], [400 * MIB]))
    (container,) = fleet.ids
    # All percentiles are the end of 3.9's bucket. After m + 1 samples the history is m minutes long and
    # the confidence m / 1440, so the lower bound is end · 1.15 · (1 + 1.44 / m)^-2, which passes the limit
    # of 4 cores at
    target = bucket_end(CPU, 3.9) * 1.15
    minutes = next(m for m in range(2, 999) if target * (1 + 1.44 / m) ** -2 > 4.0)
    fleet.run((minutes + 1) * 60 - 1, lambda _: (3.9, 299 * MIB))
    assert fleet.restarts == []
    fleet.run(1, lambda _: (3.9, 299 * MIB))
    assert fleet.restarts == [(pytest.approx((minutes + 1) * 60), container)]
    assert fleet.cores[container] == pytest.approx(target)
    assert fleet.bytes[container] == pytest.approx(bucket_end(MEMORY, 299 * MIB) * 1.15, abs=4096)


@pytest.mark.slow
def test_limits_inside_the_bounds_stay_for_twelve_hours():
    fleet = vpa_fleet(peaks=([2.0], [600 * MIB]), period_s=10.0)
    (container,) = fleet.ids
    fleet.run(12 * 3600 - 10, lambda _: (1.0, 400 * MIB))
    assert fleet.restarts == []
    fleet.run(300, lambda _: (1.0, 400 * MIB))
    assert [container_id for _, container_id in fleet.restarts] == [container]
    assert fleet.cores[container] == pytest.approx(bucket_end(CPU, 1.0) * 1.15)


@pytest.mark.slow
def test_a_change_below_the_threshold_is_not_worth_a_restart_even_later():
    target_cores, target_bytes = bucket_end(CPU, 1.0) * 1.15, bucket_end(MEMORY, 4e8) * 1.15
    fleet = vpa_fleet(peaks=([target_cores * 1.04], [int(target_bytes * 1.04)]), period_s=10.0)
    fleet.run(24 * 3600, lambda _: (1.0, 400_000_000))
    assert fleet.restarts == []


@pytest.mark.slow
def test_a_step_up_is_followed():
    fleet = vpa_fleet(peaks=([4.0], [1 << 30]), period_s=10.0, cpu_half_life_s=1800.0)
    fleet.run(14 * 3600, lambda at_s: (0.5 if at_s < 7200 else 3.0, 400 * MIB))
    assert fleet.cores[fleet.ids[0]] == pytest.approx(bucket_end(CPU, 3.0) * 1.15)


def test_a_container_restarts_at_most_once_a_minute():
    fleet = vpa_fleet(3, peaks=([0.05] * 3, [300 * MIB] * 3), sample_interval_s=1.0, update_interval_s=1.0)
    for _ in range(400):
        fleet.run(1, lambda at_s: (0.1 + at_s / 20, 280 * MIB))
        fleet.oom(fleet.ids[:1])
    assert len(fleet.restarts) > 6
    for container in fleet.ids:
        times = [at_s for at_s, container_id in fleet.restarts if container_id == container]
        assert (np.diff(times) >= 60.0 - 1e-6).all()


def test_an_oom_kill_raises_the_limit_by_the_bump_and_restarts():
    fleet = vpa_fleet(peaks=([1.0], [1000 * MIB]))
    (container,) = fleet.ids
    fleet.run(120, lambda _: (0.5, 900 * MIB))
    decision = fleet.oom([container])
    # max(1000 · 1.2, 1000 + 100) = 1200 MiB is recorded; the limit is its bucket's end + 15 %
    assert fleet.bytes[container] == pytest.approx(bucket_end(MEMORY, 1200 * MIB) * 1.15, abs=4096)
    assert decision.memory.reason.tolist() == [Reason.OOM_BUMP]
    assert decision.restart.tolist() == [container]


def test_a_small_container_is_bumped_by_100_mib():
    fleet = vpa_fleet(peaks=([1.0], [50 * MIB]))
    fleet.oom(fleet.ids)
    assert fleet.bytes[fleet.ids[0]] == pytest.approx(bucket_end(MEMORY, 150 * MIB) * 1.15, abs=4096)


def test_a_second_oom_kill_within_the_minute_waits_for_the_next_update():
    fleet = vpa_fleet(peaks=([1.0], [1000 * MIB]))
    (container,) = fleet.ids
    fleet.run(61, lambda _: (0.9, 900 * MIB))
    fleet.oom([container])
    first = fleet.bytes[container]
    assert fleet.oom([container]).empty
    fleet.run(58, lambda _: (0.9, 900 * MIB))
    assert fleet.bytes[container] == first
    fleet.run(120, lambda _: (0.9, 900 * MIB))
    assert fleet.bytes[container] > first
    assert [at_s for at_s, _ in fleet.restarts] == pytest.approx([61.0, 180.0])


def test_memory_peaks_are_one_a_day_and_a_growing_peak_replaces_itself():
    fleet = vpa_fleet(peaks=([4.0], [8 << 30]), period_s=60.0, memory_aggregation_interval_s=3600.0)
    vpa = fleet.allocator

    def total_weight():
        return vpa.memory._column.values[0].sum()

    fleet.run(1800, lambda at_s: (0.5, int(at_s) * MIB))
    assert total_weight() == pytest.approx(1.0)
    top = vpa.memory.percentiles(np.array([0]), (1.0,))[0, 0]
    assert top == pytest.approx(bucket_end(MEMORY, 1800 * MIB))
    fleet.run(3600, lambda _: (0.5, 100 * MIB))
    # the second window's peak weighs 2^(1 h / 24 h) of the first
    assert total_weight() == pytest.approx(1.0 + 2 ** (1 / 24))


def test_the_floor_is_kubernetes_pod_minimum():
    fleet = vpa_fleet(peaks=([4.0], [4 << 30]), period_s=10.0)
    fleet.run(13 * 3600, lambda _: (0.0, MIB))
    assert fleet.cores[fleet.ids[0]] == 0.025
    assert fleet.bytes[fleet.ids[0]] == 250 * MIB


def test_a_target_cut_by_the_global_limit_does_not_restart_for_nothing():
    small = Application("small", 1.0, 1 << 30)
    fleet = vpa_fleet(2, application=small, period_s=10.0)
    # 400 MiB ask for 471 of the 512 MiB they have: 8 % less, which alone is not worth it either
    fleet.run(6 * 3600, lambda _: (3.0, 400 * MIB))
    assert fleet.restarts == []
    assert list(fleet.cores.values()) == [0.5, 0.5]


def test_a_newcomer_to_a_full_application_gets_its_share_without_a_restart():
    fleet = vpa_fleet(3)
    fleet.join([0])
    assert fleet.restarts == []
    assert list(fleet.cores.values()) == pytest.approx([4.0] * 4)


@pytest.mark.slow
def test_a_reused_slot_starts_without_its_predecessors_history():
    fleet = vpa_fleet(peaks=([4.0], [1 << 30]), period_s=10.0)
    fleet.run(3600, lambda _: (3.9, 900 * MIB))
    fleet.leave(list(fleet.ids))
    (new,) = fleet.join([0], ([1.0], [1 << 30]))
    fleet.run(13 * 3600, lambda _: (0.2, 400 * MIB))
    assert fleet.cores[new] == pytest.approx(bucket_end(CPU, 0.2) * 1.15)


def test_in_place_the_limits_are_those_of_a_restart_without_one():
    usage = (3.9, 299 * MIB)
    fleets = [vpa_fleet(peaks=([4.0], [400 * MIB]), in_place=in_place) for in_place in (False, True)]
    for fleet in fleets:
        fleet.run(1800, lambda _: usage)
    restarted, resized = fleets
    assert list(resized.cores.values()) == list(restarted.cores.values()) != [4.0]
    assert list(resized.bytes.values()) == list(restarted.bytes.values())
    assert len(restarted.restarts) == 1
    assert resized.restarts == []


def test_in_place_an_oom_kill_raises_the_limit_and_asks_for_no_further_restart():
    fleet = vpa_fleet(peaks=([1.0], [1000 * MIB]), in_place=True)
    fleet.run(120, lambda _: (0.5, 900 * MIB))
    decision = fleet.oom(fleet.ids)
    assert fleet.bytes[fleet.ids[0]] == pytest.approx(bucket_end(MEMORY, 1200 * MIB) * 1.15, abs=4096)
    assert decision.memory.reason.tolist() == [Reason.OOM_BUMP]
    assert decision.restart.size == 0


def test_in_place_a_memory_limit_waits_until_the_usage_is_below_the_target():
    fleet = vpa_fleet(
        peaks=([4.0], [2 << 30]), in_place=True, min_age_s=1199.0, memory_aggregation_interval_s=60.0
    )
    (container,) = fleet.ids
    # At 1200 s all peaks but the last are of 300 MiB: the target is theirs, while the usage is 1 GiB.
    fleet.run(1170, lambda _: (1.0, 300 * MIB))
    assert fleet.bytes[container] == 2 << 30
    fleet.run(60, lambda _: (1.0, 1 << 30))
    assert fleet.cores[container] == pytest.approx(bucket_end(CPU, 1.0) * 1.15)
    assert fleet.bytes[container] == 2 << 30
    fleet.run(60, lambda _: (1.0, 300 * MIB))
    assert fleet.bytes[container] == pytest.approx(bucket_end(MEMORY, 300 * MIB) * 1.15, abs=4096)
    assert fleet.restarts == []


def test_a_setting_out_of_range_is_named():
    with pytest.raises(ScenarioError, match=r"vpa\.target_percentile"):
        make("vpa", {"target_percentile": 1.5})
