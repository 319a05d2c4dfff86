"""Autothrottle as an allocator: first limits, telemetry of any subset, Ω, the Tower's part."""

import numpy as np
import pytest

from control.allocator.autothrottle import Autothrottle, AutothrottleSettings
from control.allocator.model import Application, PeriodStats, Reason
from control.allocator.ports import ServiceAware
from lab.check.driven_fleet import DrivenFleet
from tests.control.allocator.fleets import MIB, application, join, oom, served, shrunk

SHOP = Application("shop", 16.0, 16 << 30)


def driven(containers=1, *, application=SHOP, peaks=None, **parameters):
    allocator = Autothrottle(AutothrottleSettings(**parameters))
    return DrivenFleet(allocator, [application], [0] * containers, peaks=peaks)


def usage(fleet, cores, memory=100 * MIB):
    return dict.fromkeys(fleet.ids, (cores, memory))


def test_profiled_containers_start_at_their_peak_and_share_all_memory_in_proportion():
    fleet = driven(2, peaks=([0.5, 1.0], [100 * MIB, 200 * MIB]))
    assert list(fleet.cores.values()) == [0.5, 1.0]
    first, second = fleet.bytes.values()
    assert second / first == pytest.approx(2.0, rel=1e-3)
    assert first + second == pytest.approx(16 << 30, rel=1e-3)


def test_containers_nobody_profiled_start_at_the_fair_share():
    fleet = driven(4)
    assert list(fleet.cores.values()) == [4.0] * 4
    assert list(fleet.bytes.values()) == [4 << 30] * 4


def test_the_quota_follows_the_captain_and_says_why():
    fleet = driven(peaks=([1.0], [MIB]))
    decisions = [fleet.period(usage(fleet, 0.2)) for _ in range(10)]
    assert [decision.empty for decision in decisions] == [True] * 9 + [False]
    # a steady 0.2 of 1: at most half away
    assert list(fleet.cores.values()) == [0.5]
    assert decisions[-1].cpu.reason.tolist() == [Reason.BELOW_TARGET]


def test_memory_limits_never_change_whatever_happens():
    fleet = driven(2, peaks=([1.0, 1.0], [MIB, MIB]))
    before = dict(fleet.bytes)
    fleet.run(5.0, lambda at_s: (0.2 + at_s % 1, 100 * MIB))
    assert fleet.oom(fleet.ids).empty
    assert fleet.allocator.on_reclaimed(shrunk([0])).empty
    assert fleet.bytes == before
    assert not fleet.allocator.traps_oom
    assert fleet.allocator.reclaim is None


def test_a_raise_beyond_the_applications_limit_shares_what_is_left():
    fleet = driven(2, application=Application("small", 3.0, 1 << 30), peaks=([1.0, 1.5], [MIB, MIB]))
    for _ in range(10):
        fleet.period(usage(fleet, 5.0))
    # Both ask for 1.82 times theirs, 0.82 and 1.23 more; 0.5 is left, shared 2 : 3.
    assert list(fleet.cores.values()) == pytest.approx([1.2, 1.8])


def test_a_quota_is_never_above_the_host():
    fleet = driven(peaks=([7.0], [MIB]))
    for _ in range(30):
        fleet.period(usage(fleet, 9.0))
    assert list(fleet.cores.values()) == [8.0]


def test_containers_that_report_in_groups_are_counted_each_for_itself():
    together, apart = driven(8, peaks=([1.0] * 8, [MIB] * 8)), driven(8, peaks=([1.0] * 8, [MIB] * 8))
    rng = np.random.default_rng(3)
    for _ in range(200):
        demand = dict(zip(together.ids, zip(rng.gamma(2.0, 0.2, 8), [MIB] * 8, strict=True), strict=True))
        together.period(demand)
        apart.staggered(demand, 4)
    assert list(apart.cores.values()) == pytest.approx(list(together.cores.values()), rel=1e-9)
    assert len({round(cores, 6) for cores in apart.cores.values()}) > 1


def test_lost_reports_put_a_containers_decision_off_and_nobody_elses():
    fleet = driven(2, peaks=([1.0, 1.0], [MIB, MIB]))
    first, second = fleet.ids
    for row in range(10):
        fleet.period({id_: (0.2, MIB) for id_ in fleet.ids if id_ == first or row % 2})
    assert fleet.cores == {first: 0.5, second: 1.0}
    for _ in range(5):
        fleet.period(usage(fleet, 0.2))
    assert fleet.cores[second] == 0.5


def test_a_newcomer_to_a_full_application_gets_room_without_a_restart():
    fleet = driven(3, application=Application("small", 3.0, 3 << 30))
    fleet.period(usage(fleet, 0.1, 100 * MIB))
    fleet.join([0])
    assert list(fleet.cores.values()) == pytest.approx([0.75] * 4)
    assert list(fleet.bytes.values()) == [768 * MIB] * 4
    assert fleet.restarts == []


def test_busy_and_idle_containers_of_an_application_hold_targets_of_their_own_once_they_are_told_apart():
    # The second application's containers need a tenth of the first one's.
    allocator = Autothrottle(AutothrottleSettings(target_busy=0.3, target_idle=0.0, tower_interval_s=5.0))
    peaks = [2.0, 0.4, 0.4, 0.2, 0.04, 0.04]
    fleet = DrivenFleet(allocator, [SHOP, SHOP], [0, 0, 0, 1, 1, 1], peaks=(peaks, [MIB] * 6))
    steady = {id_: (0.95 * peak, MIB) for id_, peak in zip(fleet.ids, peaks, strict=True)}
    for _ in range(60):
        fleet.period(steady)
    before = dict(fleet.cores)
    # One period in ten throttled: 0.1 ≤ 3 · 0.3 for the busy ones, above 3 · 0 for the idle ones.
    for row in range(10):
        fleet.period({id_: (9.0, MIB) if row == 0 else now for id_, now in steady.items()})
    grown = [fleet.cores[id_] / before[id_] for id_ in fleet.ids]
    assert grown == pytest.approx([1.0, 1.1, 1.1] * 2)


def test_without_an_slo_the_targets_stay():
    fleet = driven(target_busy=0.05, target_idle=0.01, slo_p99_s=0.0)
    for _ in range(5):
        assert fleet.allocator.on_service(served([100.0], [9.0])).empty
    assert fleet.allocator.targets.tolist() == [[0.05, 0.01]]


def test_the_tower_lowers_the_targets_of_the_application_that_misses_its_slo():
    allocator = Autothrottle(AutothrottleSettings(slo_p99_s=0.2))
    fleet = DrivenFleet(allocator, [SHOP, SHOP], [0, 1])
    assert isinstance(allocator, ServiceAware)
    assert allocator.service_interval_s == 60.0
    for minute in range(20):
        fleet.run(1.0, lambda _: (0.5, MIB))
        missed = 0.1 + 4.0 * allocator.targets[1].sum()
        allocator.on_service(served([100.0, 100.0], [0.1, missed], 60.0 * (minute + 1)))
    # 0.1 + 4 · Σ targets ≤ 0.2 up to a sum of 0.025; the first pair's is 0.12
    assert allocator.targets[1].sum() <= 0.04


def test_the_tower_is_told_the_mean_allocation_of_each_application():
    allocator = Autothrottle(AutothrottleSettings(slo_p99_s=0.2))
    fleet = DrivenFleet(allocator, [SHOP, SHOP], [0, 1, 1])
    told = [[], []]
    for tower, cores in zip(allocator.towers, told, strict=True):
        tower.learn = lambda rate, latency, mean, cores=cores: cores.append(mean)
    first, second, third = fleet.ids

    def report(row, quota):
        ones = np.ones(len(quota))
        allocator.on_period(
            PeriodStats(
                np.array(list(quota)), np.array(list(quota.values())), ones * 0.0, ones > 1, ones,
                ones.astype(np.int64), 0.1, 0.1 * (row + 1),
            )
        )  # fmt: skip

    for row in range(4):
        # The third is heard of in every other period only, and its quota doubles half way.
        report(row, {first: 2.0, second: 1.0} | ({third: 8.0 if row > 1 else 4.0} if row % 2 else {}))
    allocator.on_service(served([1.0, 1.0], [0.1, 0.1]))
    # The next interval of the third container is unknown.
    report(4, {first: 3.0, second: 1.0})
    allocator.on_service(served([1.0, 1.0], [0.1, 0.1]))
    assert told == [pytest.approx([2.0, 3.0]), pytest.approx([1.0 + (4.0 + 8.0) / 2, 1.0])]


def test_a_shorter_period_lifts_quotas_below_the_kernels_new_minimum():
    allocator = Autothrottle(AutothrottleSettings())
    ids = allocator.start([application()], join([0, 0], peak_cores=[0.0, 1.0], peak_bytes=[MIB, MIB])).cpu.ids
    ones = np.ones(2)
    decision = allocator.on_period(
        PeriodStats(ids, ones, ones, ones > 2, ones * 0.0, np.ones(2, np.int64), 0.01, 0.01)
    )
    # 1 ms of 10 ms
    assert dict(zip(decision.cpu.ids.tolist(), decision.cpu.quota_cores.tolist(), strict=True)) == {0: 0.1}
    assert allocator.on_oom(oom(ids, [1, 1])).empty
