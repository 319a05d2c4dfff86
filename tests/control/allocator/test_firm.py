"""Firm as an allocator: windows, culprits, room, Ω, and what happens without traffic or spans."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator import make
from control.allocator.firm import Firm, FirmSettings
from control.allocator.firm_culprits import Separator
from control.allocator.model import Application, Reason, ServiceStats
from control.allocator.ports import SpanAware
from control.paths import Spans
from lab.check.driven_fleet import DrivenFleet
from tests.control.allocator.fleets import MIB
from tests.control.allocator.test_firm_culprits import calls
from tests.control.test_paths import spans

SHOP = Application("shop", 4.0, 1 << 30)
LINE = Separator(importance=1.0, congestion=1.0, bias=-1.3)
NOBODY = Spans(*(np.empty(0, np.int64) for _ in range(3)), *(np.empty(0) for _ in range(3)))


def driven(peaks=(1.0, 1.0), applications=(SHOP,), apps=None, rule=None, **parameters):
    parameters = {"slo_p99_s": 0.2, "room_s": 5.0} | parameters
    return DrivenFleet(
        Firm(FirmSettings(**parameters), rule, LINE),
        list(applications),
        list(apps or [0] * len(peaks)),
        peaks=(peaks, [MIB] * len(peaks)),
    )


def windows(fleet, latency_s=0.1, *, cores=0.2, rate=100.0, trace=NOBODY, failed=0.0, count=1):
    """Let windows pass in which every container wants `cores`; return the last decision's limits."""
    apps = len(fleet.applications)
    for _ in range(count):
        for _ in range(50):
            fleet.period(dict.fromkeys(fleet.ids, (cores, MIB)))
        owner = np.array(fleet.ids, np.int64)[trace.owner]
        told = Spans(trace.request, trace.parent, owner, trace.start_s, trace.end_s, trace.work_s)
        level = [np.full(apps, value) for value in (rate, latency_s, failed)]
        stats = ServiceStats(level[0], level[1], fleet.at_s, told, failed=level[2])
        decision = fleet.allocator.on_service(stats)
        fleet.carry_out(decision)
    return decision.cpu


def slow():
    """Spans of 100 requests in which container 1 alone is now and then late."""
    return spans(*calls([1.0 if request % 20 == 0 else 0.001 * request for request in range(100)]))


def test_it_reads_spans_every_window():
    allocator = make("firm", {})
    assert isinstance(allocator, SpanAware)
    assert (allocator.service_interval_s, allocator.spans_wanted) == (5.0, 1000)
    assert allocator.given.more == "SLO 0.2 s"


def test_a_missed_slo_doubles_the_culprit_and_nobody_else():
    fleet = driven()
    told = windows(fleet, 1.2, trace=slow())
    assert told.ids.tolist() == fleet.ids[1:]
    assert told.quota_cores.tolist() == [2.0]
    assert told.reason.tolist() == [Reason.CULPRIT]


def test_a_kept_slo_takes_a_step_back_from_all_but_no_more_than_leaves_room_for_the_use():
    fleet = driven((1.0, 0.25))
    told = windows(fleet, cores=0.2)
    assert told.quota_cores.tolist() == pytest.approx([0.9, 0.2])
    assert told.reason.tolist() == [Reason.TAKEN_BACK] * 2
    assert windows(fleet, cores=0.05, count=20).quota_cores.size == 0
    assert list(fleet.cores.values()) == pytest.approx([0.05, 0.05])


def test_nothing_is_taken_back_before_the_time_that_it_must_leave_room_for():
    fleet = driven(room_s=15.0)
    assert windows(fleet, count=2).ids.size == 0
    assert windows(fleet).quota_cores.tolist() == pytest.approx([0.9, 0.9])


def test_where_more_than_one_in_a_hundred_fails_who_was_throttled_is_a_culprit():
    fleet = driven((1.0, 0.1))
    assert windows(fleet, np.nan, cores=0.5, failed=1.0).quota_cores.tolist() == [0.2]
    # A p99 of the few that were answered says nothing then.
    assert windows(fleet, 0.01, cores=0.5, failed=0.5).quota_cores.tolist() == [0.4]
    assert windows(fleet, 0.01, cores=0.3, failed=0.005).quota_cores.tolist() == pytest.approx([0.9, 0.3])


def test_without_traffic_and_without_spans_nothing_changes():
    fleet = driven()
    before = dict(fleet.cores)
    for _ in range(3):
        assert windows(fleet, np.nan, rate=0.0).ids.size == 0
    stats = ServiceStats(np.array([50.0]), np.array([9.0]), fleet.at_s)
    assert fleet.allocator.on_service(stats).empty
    assert fleet.cores == before


def test_a_culprit_gets_no_more_than_is_left_of_the_applications_limit():
    fleet = driven((1.0, 3.0))
    assert windows(fleet, 1.2, trace=slow()).ids.size == 0
    fleet = driven((1.5, 1.5))
    assert windows(fleet, 1.2, trace=slow()).quota_cores.tolist() == pytest.approx([2.5])


def test_the_rule_sees_load_and_mix_of_its_own_application():
    seen = []

    def rule(window):
        seen.append(window)
        return window.limit_cores

    fleet = driven((1.0, 1.0), (SHOP, SHOP), (0, 1), rule)
    for rate in (10.0, 20.0):
        fleet.period(dict.fromkeys(fleet.ids, (0.25, MIB)))
        rates, mix = np.array([rate, 30.0]), np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
        stats = ServiceStats(rates, np.array([0.1, 0.4]), fleet.at_s, NOBODY, mix)
        assert fleet.allocator.on_service(stats).empty
    first, second = seen
    assert (first.load.tolist(), second.load.tolist()) == ([1.0, 1.0], [2.0, 1.0])
    assert second.kept.tolist() == [1.0, 0.5]
    assert second.violated.tolist() == [False, True]
    assert second.used.tolist() == [0.25, 0.25]
    assert second.mix.tolist() == [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), period_s=st.sampled_from([0.05, 0.1]))
def test_limits_stay_within_bounds_after_every_window_and_repeat(seed, period_s):
    limits = []
    for _ in range(2):
        random = np.random.default_rng(seed)
        fleet = DrivenFleet(
            Firm(FirmSettings(room_s=10.0, slo_p99_s=0.2)),
            [SHOP, Application("small", 0.2, 100 * MIB)],
            random.integers(0, 2, 5).tolist(),
            period_s=period_s,
        )
        for _ in range(6):
            for _ in range(3):
                fleet.period({id_: (random.gamma(0.5, 1.0), MIB) for id_ in fleet.ids})
            late_s = random.gamma(0.3, 1.0, random.integers(0, 40)).tolist()
            trace = spans(*calls(late_s)) if late_s else NOBODY
            owner = random.permutation(fleet.ids)[:2][trace.owner]
            told = Spans(trace.request, trace.parent, owner, trace.start_s, trace.end_s, trace.work_s)
            rate, latency, failed = (
                random.integers(0, 2, 2) * 9.0,
                random.gamma(1, 0.2, 2),
                random.random(2) ** 9,
            )
            stats = ServiceStats(rate, latency, fleet.at_s, told, random.random((2, 3)), failed)
            before = dict(fleet.cores)
            fleet.carry_out(fleet.allocator.on_service(stats))
            assert all(fleet.cores[id_] == before[id_] for id_ in fleet.ids if rate[fleet.app[id_]] == 0)
        limits.append(list(fleet.cores.values()))
    assert limits[0] == limits[1]
