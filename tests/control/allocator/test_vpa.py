"""The VPA: its estimators' arithmetic, its restarts, and the promises that every allocator keeps."""

import numpy as np
import pytest

from control.allocator.histogram import exponential
from control.allocator.model import Application, Reason
from control.allocator.vpa import Vpa, refused, worth_updating
from control.allocator.vpa_recommender import (
    LOWER_CONFIDENCE,
    UPPER_CONFIDENCE,
    estimate,
    with_confidence,
    with_margin,
)
from control.allocator.vpa_settings import VpaSettings
from lab.check.driven_fleet import DrivenFleet
from tests.control.allocator.fleets import MIB, bucket_end

CPU = exponential(0.01, 1.05, 1000.0)
MEMORY = exponential(1e7, 1.05, 1e12)
SHOP = Application("shop", 16.0, 16 << 30)


def vpa_fleet(containers=1, *, application=SHOP, peaks=None, period_s=1.0, limit_ratio=1.0, **parameters):
    """A fleet of the class Guaranteed, in which what is said of requests is true of limits."""
    allocator = Vpa(VpaSettings(limit_ratio=limit_ratio, **parameters))
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
    percentiles = np.array([[[1.0, 0.01]], [[0.5, 0.01]], [[2.0, 0.01]]])
    result = estimate(percentiles, np.array([1.0, 1.0]), 0.15, np.array([0.025]))
    # target 1 · 1.15; lower 0.5 · 1.15 · 1.001^-2; upper 2 · 1.15 · 2. 0.01 · 1.15 · 2 is below the floor.
    assert result.target[0] == pytest.approx([1.15, 0.025])
    assert result.lower[0] == pytest.approx([0.575 / 1.001**2, 0.025])
    assert result.upper[0] == pytest.approx([4.6, 0.025])


@pytest.mark.slow
def test_a_load_held_back_by_its_limit_gets_the_target_percentile_plus_margin_in_steps():
    fleet = vpa_fleet(peaks=([0.5], [300 * MIB]), period_s=60.0)
    (container,) = fleet.ids
    # Usage is cut to the limit, so each restart learns of little more than the margin.
    fleet.run(4 * 86_400, lambda _: (2.0, 200 * MIB))
    assert fleet.cores[container] == pytest.approx(bucket_end(CPU, 2.0) * 1.15)
    assert len(fleet.restarts) > 5


def test_a_load_held_back_by_its_limit_climbs_as_fast_as_under_kubernetes():
    fleet = vpa_fleet(peaks=([0.5], [300 * MIB]), period_s=60.0)
    (container,) = fleet.ids
    # Kubernetes' recommender and updater take 39.3 h from 0.5 to 2.41 cores.
    while fleet.cores[container] < 2.4:
        fleet.run(60, lambda _: (10.0, 200 * MIB))
    assert fleet.cores[container] == pytest.approx(2.41, abs=0.005)
    assert fleet.at_s / 3600 == pytest.approx(39.3, abs=0.1)


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


def test_a_container_killed_for_memory_starts_again_under_its_old_limit():
    fleet = vpa_fleet(peaks=([1.0], [1000 * MIB]))
    fleet.run(120, lambda _: (0.9, 900 * MIB))
    assert fleet.oom(fleet.ids).empty
    assert fleet.bytes[fleet.ids[0]] == 1000 * MIB


def test_a_kill_soon_after_the_start_raises_the_limit_at_the_next_update():
    fleet = vpa_fleet(peaks=([1.0], [1000 * MIB]))
    (container,) = fleet.ids
    fleet.run(130, lambda _: (0.9, 900 * MIB))
    fleet.oom([container])
    fleet.run(49, lambda _: (0.9, 900 * MIB))
    assert fleet.restarts == []
    fleet.run(1, lambda _: (0.9, 900 * MIB))
    # max(1000 · 1.2, 1000 + 100) = 1200 MiB is recorded; the limit is its bucket's end + 15 %
    assert fleet.bytes[container] == pytest.approx(bucket_end(MEMORY, 1200 * MIB) * 1.15, abs=4096)
    _, decision = fleet.decisions[-1]
    assert decision.memory.reason.tolist() == [Reason.OOM_BUMP]
    assert fleet.restarts == [(pytest.approx(180.0), container)]


def test_a_kill_after_a_long_run_waits_for_the_bounds():
    fleet = vpa_fleet(peaks=([1.0], [1000 * MIB]))
    (container,) = fleet.ids
    usage = (0.9, 900 * MIB)
    fleet.run(660, lambda _: usage)
    fleet.oom([container])
    fleet.run(60, lambda _: usage)
    # After 12 minutes the lower bound is (1 + 1.44 / 11)^-2 = 0.78 of its 1200 MiB and 15 %, which is more.
    assert fleet.restarts == [(pytest.approx(720.0), container)]
    _, decision = fleet.decisions[-1]
    assert decision.memory.reason.tolist() == [Reason.RECOMMENDED]


def test_a_quick_kill_that_would_change_nothing_restarts_nothing():
    one = np.ones(1)
    chosen = [
        worth_updating(one < 0, one * 0.0, one * age_s, one * 60.0, VpaSettings()).tolist()
        for age_s in (0.0, 1e6)
    ]
    assert chosen == [[False], [False]]


def test_a_small_container_is_bumped_by_100_mib():
    fleet = vpa_fleet(peaks=([1.0], [200 * MIB]))
    fleet.run(30, lambda _: (0.9, 150 * MIB))
    fleet.oom(fleet.ids)
    fleet.run(30, lambda _: (0.9, 150 * MIB))
    assert fleet.bytes[fleet.ids[0]] == pytest.approx(bucket_end(MEMORY, 300 * MIB) * 1.15, abs=4096)


def test_a_bump_starts_from_a_peak_above_the_request():
    fleet = vpa_fleet(peaks=([1.0], [500 * MIB]), limit_ratio=2.0)
    fleet.run(61, lambda _: (0.9, 900 * MIB))
    fleet.oom(fleet.ids)
    fleet.run(60, lambda _: (0.9, 900 * MIB))
    # max(900 · 1.2, 900 + 100) MiB, and twice as much as that is the limit
    request = bucket_end(MEMORY, 1080 * MIB) * 1.15
    assert fleet.bytes[fleet.ids[0]] == pytest.approx(2 * request, abs=4096)


def test_profiled_containers_request_their_peak_under_twice_the_limit():
    fleet = DrivenFleet(Vpa(VpaSettings()), [SHOP], [0, 0], peaks=([1.0, 0.5], [300 * MIB, 400 * MIB]))
    assert list(fleet.cores.values()) == [2.0, 1.0]
    assert list(fleet.bytes.values()) == [600 * MIB, 800 * MIB]


def test_limits_keep_their_ratio_to_the_requests():
    fleets = [vpa_fleet(peaks=([4.0], [400 * MIB]), limit_ratio=ratio) for ratio in (1.0, 1.5)]
    for fleet in fleets:
        fleet.run(1800, lambda _: (3.9, 299 * MIB))
    guaranteed, burstable = (
        (fleet.cores[fleet.ids[0]], fleet.bytes[fleet.ids[0]], fleet.restarts) for fleet in fleets
    )
    assert len(guaranteed[2]) == len(burstable[2]) == 1
    assert burstable[0] == pytest.approx(1.5 * guaranteed[0])
    assert burstable[1] == pytest.approx(1.5 * guaranteed[1], abs=8192)


def test_a_request_learns_from_usage_above_it():
    # The limit of 1 core lets usage be 0.9, so one update is enough where limits equal to requests take many.
    fleet = vpa_fleet(peaks=([0.5], [300 * MIB]), limit_ratio=2.0)
    fleet.run(1200, lambda _: (0.9, 200 * MIB))
    assert fleet.cores[fleet.ids[0]] == pytest.approx(2 * bucket_end(CPU, 0.9) * 1.15)
    assert len(fleet.restarts) == 1


def test_limits_stay_where_only_requests_are_controlled():
    fleet = vpa_fleet(peaks=([0.5], [300 * MIB]), limit_ratio=2.0, controlled_values="requests_only")
    fleet.run(3600, lambda _: (0.9, 200 * MIB))
    assert list(fleet.cores.values()) == [1.0]
    assert list(fleet.bytes.values()) == [600 * MIB]
    assert len(fleet.restarts) == 1  # as Kubernetes evicts for a new request


def test_limits_that_would_exceed_the_applications_share_what_there_is():
    small = Application("small", 3.0, 1 << 30)
    fleet = vpa_fleet(2, application=small, peaks=([1.0, 1.0], [256 * MIB] * 2), limit_ratio=2.0)
    assert list(fleet.cores.values()) == pytest.approx([1.5, 1.5])
    # The target is 0.95 core and 250 MiB. The requests are still 1 core and 256 MiB.
    fleet.run(3600, lambda _: (0.8, 200 * MIB))
    assert fleet.restarts == []


def test_memory_peaks_are_one_a_day_and_a_growing_peak_replaces_itself():
    fleet = vpa_fleet(peaks=([4.0], [8 << 30]), period_s=60.0, memory_aggregation_interval_s=3600.0)
    vpa = fleet.allocator.recommender

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
    fleets = [vpa_fleet(peaks=([4.0], [400 * MIB]), update_mode=mode) for mode in ("recreate", "in_place")]
    for fleet in fleets:
        fleet.run(1800, lambda _: usage)
    restarted, resized = fleets
    assert list(resized.cores.values()) == list(restarted.cores.values()) != [4.0]
    assert list(resized.bytes.values()) == list(restarted.bytes.values())
    assert len(restarted.restarts) == 1
    assert resized.restarts == []


def test_in_place_a_quick_oom_kill_resizes_without_a_further_restart():
    fleet = vpa_fleet(peaks=([1.0], [1000 * MIB]), update_mode="in_place")
    fleet.run(130, lambda _: (0.9, 900 * MIB))
    fleet.oom(fleet.ids)
    fleet.run(50, lambda _: (0.9, 900 * MIB))
    assert fleet.bytes[fleet.ids[0]] == pytest.approx(bucket_end(MEMORY, 1200 * MIB) * 1.15, abs=4096)
    assert fleet.restarts == []


@pytest.mark.parametrize(
    ("limit", "new", "usage", "waits"),
    [(1000, 800, 799, False), (1000, 800, 800, True), (1000, 800, 900, True), (800, 1000, 800, False)],
)
def test_in_place_a_memory_limit_is_not_lowered_to_the_usage(limit, new, usage, waits):
    assert refused(np.array([limit]), np.array([new]), np.array([usage])).tolist() == [waits]


def test_in_place_an_update_waits_until_the_usage_is_below_the_memory_target():
    fleet = vpa_fleet(
        peaks=([4.0], [2 << 30]), update_mode="in_place", min_age_s=1199.0, memory_aggregation_interval_s=60.0
    )
    (container,) = fleet.ids
    # At 1200 s all peaks but the last are of 300 MiB: the target is theirs, while the usage is 1 GiB.
    fleet.run(1170, lambda _: (1.0, 300 * MIB))
    assert fleet.bytes[container] == 2 << 30
    fleet.run(60, lambda _: (1.0, 1 << 30))
    assert fleet.cores[container] == 4.0
    assert fleet.bytes[container] == 2 << 30
    fleet.run(60, lambda _: (1.0, 300 * MIB))
    assert fleet.cores[container] == pytest.approx(bucket_end(CPU, 1.0) * 1.15)
    assert fleet.bytes[container] == pytest.approx(bucket_end(MEMORY, 300 * MIB) * 1.15, abs=4096)
    assert fleet.restarts == []
