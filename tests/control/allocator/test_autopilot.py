"""Autopilot: both recommenders' arithmetic, what they follow, and the promises that every allocator keeps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator import make
from control.allocator.autopilot import Autopilot, AutopilotSettings
from control.allocator.autopilot_ml import Ensemble, EnsembleRecommender
from control.allocator.autopilot_window import Average, Peak, Percentile, SlidingMax, WindowRecommender
from control.allocator.histogram import Buckets, exponential
from control.allocator.model import Application, History, Join, Reason
from control.allocator.roster import Roster
from lab.check.driven_fleet import DrivenFleet
from tests.control.allocator.fleets import MIB, bucket_end

CPU = exponential(0.01, 1.05, 1000.0)
MEMORY = exponential(1e6, 1.05, 1e12)
SHOP = Application("shop", 16.0, 16 << 30)
FIRST = np.array([0])
BOTH = pytest.mark.parametrize("recommender", ["ml", "moving_window"])


def one_slot():
    roster = Roster((SHOP,))
    roster.join(Join(np.zeros(1, np.int64), np.array([8.0])))
    return roster


def autopilot_fleet(containers=1, *, application=SHOP, peaks=None, period_s=0.1, **parameters):
    allocator = Autopilot(AutopilotSettings(**parameters))
    return DrivenFleet(allocator, [application], [0] * containers, peaks=peaks, period_s=period_s)


# --- the ML recommender, on three buckets of ends 1, 2 and 4

ENDS = Buckets(np.array([1.0, 2.0, 4.0]))


def ensemble(**changed):
    weights = {
        "decays": (0.5,),
        "margins": (0.0,),
        "overrun": 4.0,
        "underrun": 1.0,
        "limit_change": 0.0,
        "model_change": 0.0,
        "cost_decay": 0.5,
    }
    return EnsembleRecommender(one_slot(), ENDS, Ensemble(**(weights | changed)))


def update(recommender, *usage):
    for value in usage:
        recommender.observe(FIRST, np.array([float(value)]), 0.0)
    return recommender.recommend(FIRST, 0.0)[0]


def test_a_models_limit_minimises_overrun_and_underrun():
    # s = (0.5, 0.4, 0.1), d = 0.5. With w_o = 4 and w_u = 1, halved by d:
    #   L = 1: o = 0.5, u = 0    → 2.0 / 2     L = 2: o = 0.1, u = 0.5 → 0.9 / 2     L = 4: u = 0.9 → 0.9 / 2
    # A tie goes to the lower limit; with w_o = 5, L = 2 costs 1.0 / 2 and 4 wins.
    usage = [0.5] * 5 + [1.5] * 4 + [3.0]
    assert update(ensemble(overrun=3.9), *usage) == 2.0
    assert update(ensemble(overrun=5.0), *usage) == 4.0
    assert update(ensemble(overrun=1.0), *usage) == 1.0  # 0.5, 0.6, 0.9, halved


def test_the_decay_weighs_this_interval_against_the_past():
    # First interval all in bucket 1, second all in bucket 0. After both, with d = 0.5:
    #   h(0) = 0.5, h(1) = 0.5 · 0.5 = 0.25.  L = 1: 4 · 0.25 = 1.0;  L = 2: 1 · 0.5 = 0.5 → stays at 2
    slow = ensemble(decays=(0.5,))
    assert [update(slow, 1.5), update(slow, 0.5)] == [2.0, 2.0]
    # With d = 0.9: h(0) = 0.9, h(1) = 0.1 · 0.9 = 0.09.  L = 1: 0.36;  L = 2: 0.9 → falls to 1
    fast = ensemble(decays=(0.9,))
    assert [update(fast, 1.5), update(fast, 0.5)] == [2.0, 1.0]


def test_a_change_of_limit_must_pay_for_itself():
    # As above with d = 0.9, L = 1 saves 0.9 - 0.36 = 0.54.
    for price, limit in [(0.53, 1.0), (0.55, 2.0)]:
        recommender = ensemble(decays=(0.9,), limit_change=price)
        update(recommender, 1.5)
        assert update(recommender, 0.5) == limit


def test_the_margin_is_added_to_the_models_limit():
    assert update(ensemble(margins=(0.25,)), 1.5) == pytest.approx(2.5)


def test_the_cheapest_model_sets_the_limit():
    # Margins 0 and 1: L = 2 or L = 4. The second interval is all in bucket 2 (b = 4): against it the first
    # model's 2 overran wholly (cost 4), the second model's 4 did not, and nothing is below either's L' = 2.
    recommender = ensemble(margins=(0.0, 1.0))
    assert update(recommender, 1.5) == 2.0  # no cost yet: the first listed
    # d = 0.5: h = (0, 0.25, 0.5). L = 2: 4 · 0.5 = 2; L = 4: 0.25. So L' = 4, with the second's margin 8
    assert update(recommender, 3.0) == 8.0
    np.testing.assert_allclose(recommender.cost.values[0], [[0.5 * 4.0, 0.0]])


def test_a_change_of_model_must_pay_for_itself():
    # As above: after the second interval the first model has cost 2.0, the second 0.
    for price, limit in [(1.9, 8.0), (2.1, 4.0)]:
        recommender = ensemble(margins=(0.0, 1.0), model_change=price)
        update(recommender, 1.5)
        assert update(recommender, 3.0) == limit


def test_a_change_of_the_ensembles_limit_must_pay_for_itself():
    # Margins 0 and 1, L' = 2: one of four samples overran the first's 2 and not the second's 4, so that the
    # first has cost 0.5 · 4 / 4 = 0.5, the second 0.
    for price, limit in [(0.4, 4.0), (0.6, 2.0)]:
        recommender = ensemble(margins=(0.0, 1.0), limit_change=price)
        update(recommender, 1.5)
        assert update(recommender, 1.5, 1.5, 1.5, 3.0) == limit


def test_underrun_is_paid_for_the_limit_without_its_margin():
    # L' = 2 with margins 0 and 1; the second interval has 3 of 4 samples below 2: both pay 0.5 · 0.75
    recommender = ensemble(margins=(0.0, 1.0))
    update(recommender, 1.5)
    update(recommender, 0.5, 0.5, 0.5, 1.5)
    np.testing.assert_allclose(recommender.cost.values[0], [[0.375, 0.375]])


def test_models_pay_for_their_own_changes_of_limit():
    recommender = ensemble(limit_change=0.2)
    update(recommender, 1.5)
    update(recommender, 3.0)
    # 0.5 · (4 · 1 overrun of L = 2 by the usage in b = 4 + 0.2 for moving to 4)
    assert recommender.cost.values[0, 0, 0] == pytest.approx(0.5 * 4.2)


def test_without_a_sample_the_ensemble_has_no_opinion_and_keeps_its_state():
    recommender = ensemble()
    update(recommender, 1.5)
    before = recommender.history.values.copy()
    assert np.isnan(update(recommender))
    np.testing.assert_array_equal(recommender.history.values, before)


# --- the moving window


def observe(statistic, *values, step_s=1.0):
    for i, value in enumerate(values):
        statistic.observe(FIRST, np.array([float(value)]), i * step_s)
    return statistic.value(FIRST)[0]


def test_the_average_weighs_by_age():
    # samples 1 and 4, a half-life apart: (0.5 · 1 + 4) / 1.5 = 3.0
    average = Average(one_slot(), Buckets(np.arange(0.5, 10.0, 0.5)), half_life_s=10.0)
    assert observe(average, 1.0, 3.99, step_s=10.0) == 3.0


def test_the_percentile_of_cpu_is_of_the_load():
    usage = [0.1] * 90 + [4.0] * 10
    of_load = Percentile(one_slot(), CPU, 1e9, 0.5, of_load=True)
    of_time = Percentile(one_slot(), CPU, 1e9, 0.5, of_load=False)
    # 90 · 0.1 = 9 core-seconds against 40
    assert observe(of_load, *usage) == pytest.approx(bucket_end(CPU, 4.0))
    assert observe(of_time, *usage) == pytest.approx(bucket_end(CPU, 0.1))


def test_the_peak_forgets_what_is_older_than_its_span():
    peak = Peak(one_slot(), CPU, span_s=12.0)
    assert observe(peak, 5.0, *[1.0] * 12) == pytest.approx(bucket_end(CPU, 5.0))
    peak.observe(FIRST, np.array([1.0]), 13.0)
    assert peak.value(FIRST)[0] == pytest.approx(bucket_end(CPU, 1.0))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 100)), min_size=1, max_size=40), st.floats(1.0, 60.0))
def test_a_sliding_maximum_covers_its_span_and_a_twelfth_more_at_most(steps, span_s):
    sliding, history, at_s = SlidingMax(one_slot(), span_s), [], 1000.0
    for gap_s, value in steps:
        at_s += gap_s
        history.append((at_s, value))
        sliding.push(FIRST, np.array([value]), at_s)
        answer = sliding.value(FIRST)[0]
        sure = max(v for t, v in history if t > at_s - span_s)
        possible = max(v for t, v in history if t >= at_s - span_s * 13 / 12 - 1e-6)
        assert sure <= answer <= possible


def test_a_recommendation_is_held_at_the_last_hours_highest():
    roster = one_slot()
    window = WindowRecommender(roster, Peak(roster, CPU, 60.0), margin=0.15, hold_s=3600.0)
    answers = {}
    for at_s in range(0, 7200, 60):
        window.observe(FIRST, np.array([4.0 if at_s == 0 else 1.0]), float(at_s))
        answers[at_s] = window.recommend(FIRST, float(at_s))[0]
    assert answers[0] == answers[3540] == pytest.approx(bucket_end(CPU, 4.0) * 1.15)
    assert answers[7140] == pytest.approx(bucket_end(CPU, 1.0) * 1.15)


# --- the allocator


@BOTH
def test_a_constant_load_converges_to_its_bucket_plus_the_smallest_margin(recommender):
    fleet = autopilot_fleet(
        peaks=([4.0], [1 << 30]), recommender=recommender, update_interval_s=10.0, margin=0.1, hold_s=0.0
    )
    fleet.run(31, lambda _: (1.3, 200 * MIB))
    (container,) = fleet.ids
    assert fleet.cores[container] == pytest.approx(bucket_end(CPU, 1.3) * 1.1)
    assert fleet.bytes[container] == pytest.approx(bucket_end(MEMORY, 200 * MIB) * 1.1, abs=4096)
    changes = [d for _, d in fleet.decisions if not d.empty]
    assert len(changes) == 2  # the initial limits, and one update: then nothing moves
    assert changes[1].cpu.reason.tolist() == [Reason.RECOMMENDED]
    assert fleet.restarts == []


@BOTH
def test_a_step_up_is_followed_though_the_limit_hides_it(recommender):
    fleet = autopilot_fleet(
        peaks=([1.0], [1 << 30]), recommender=recommender, update_interval_s=1.0, cpu_half_life_s=60.0
    )
    fleet.run(100, lambda at_s: (0.5 if at_s < 20 else 3.0, 100 * MIB))
    assert fleet.cores[fleet.ids[0]] > 3.0


def test_the_ensemble_falls_with_the_load_and_the_window_holds_for_an_hour():
    limits = {}
    for recommender in ("ml", "moving_window"):
        fleet = autopilot_fleet(peaks=([4.0], [1 << 30]), recommender=recommender, update_interval_s=1.0)
        fleet.run(60, lambda at_s: (3.0 if at_s < 30 else 0.5, 100 * MIB))
        limits[recommender] = fleet.cores[fleet.ids[0]]
    assert limits["ml"] < 1.0
    assert limits["moving_window"] > 3.0


def test_limits_move_only_at_the_update_interval():
    fleet = autopilot_fleet(peaks=([4.0], [1 << 30]))
    fleet.run(299.8, lambda _: (1.0, 100 * MIB))
    assert fleet.cores[fleet.ids[0]] == 4.0
    fleet.run(0.2, lambda _: (1.0, 100 * MIB))
    assert fleet.cores[fleet.ids[0]] < 1.5


def test_cpu_is_sampled_by_the_second():
    fleet = autopilot_fleet(peaks=([4.0], [1 << 30]), update_interval_s=10.0)
    # 0 and 2 cores in turn, period by period: every one-second mean is 1 core
    fleet.run(10, lambda at_s: (2.0 * (round(at_s * 10) % 2), 100 * MIB))
    assert fleet.cores[fleet.ids[0]] == pytest.approx(bucket_end(CPU, 1.0) * 1.1)


def test_an_oom_kill_raises_the_memory_limit_at_once_and_the_next_update_keeps_it_above_the_need():
    fleet = autopilot_fleet(peaks=([1.0], [100 * MIB]), update_interval_s=1.0)
    fleet.run(0.5, lambda _: (0.5, 90 * MIB))
    decision = fleet.oom(fleet.ids, needed_bytes=5 * MIB)
    assert decision.memory.limit_bytes.tolist() == [150 * MIB]
    assert decision.memory.reason.tolist() == [Reason.OOM_BUMP]
    fleet.run(0.5, lambda _: (0.5, 10 * MIB))
    assert fleet.bytes[fleet.ids[0]] == pytest.approx(bucket_end(MEMORY, 105 * MIB) * 1.1, abs=4096)


def test_a_memory_limit_is_not_lowered_below_the_usage():
    fleet = autopilot_fleet(
        peaks=([1.0], [1 << 30]),
        recommender="moving_window",
        memory_statistic="average",
        update_interval_s=1.0,
        hold_s=0.0,
    )
    for at_s in range(1, 60):
        fleet.run(1, lambda _: (0.5, (10 + (at_s % 4 == 0) * 600) * MIB))  # noqa: B023 - called at once
        assert fleet.bytes[fleet.ids[0]] >= (10 + (at_s % 4 == 0) * 600) * MIB


@pytest.mark.parametrize("statistic", ["percentile", "average", "max"])
def test_every_statistic_serves_both_resources(statistic):
    fleet = autopilot_fleet(
        2,
        recommender="moving_window",
        cpu_statistic=statistic,
        memory_statistic=statistic,
        update_interval_s=2.0,
    )
    fleet.run(4, lambda _: (1.3, 200 * MIB))
    assert list(fleet.cores.values()) == pytest.approx([bucket_end(CPU, 1.3) * 1.15] * 2)


def test_a_container_that_does_not_report_keeps_its_limits():
    fleet = autopilot_fleet(2, update_interval_s=1.0)
    for _ in range(20):
        fleet.period({fleet.ids[0]: (0.5, 100 * MIB)})
    assert fleet.cores[fleet.ids[1]] == 8.0
    assert fleet.cores[fleet.ids[0]] < 1.0


@BOTH
def test_a_reused_slot_starts_without_its_predecessors_history(recommender):
    fleet = autopilot_fleet(
        recommender=recommender, peaks=([4.0], [1 << 30]), update_interval_s=1.0, margin=0.1
    )
    fleet.run(10, lambda _: (3.9, 900 * MIB))
    fleet.leave(list(fleet.ids))
    (new,) = fleet.join([0], ([1.0], [1 << 30]))
    fleet.run(1, lambda _: (0.2, 50 * MIB))
    assert fleet.cores[new] == pytest.approx(bucket_end(CPU, 0.2) * 1.1)


# --- a warm history


@BOTH
def test_with_a_history_the_first_limits_are_what_it_recommends(recommender):
    policy = make("autopilot", {"recommender": recommender})
    usage = np.tile([0.5, 2.0], (600, 1))
    policy.learn(History(usage, np.tile([100 * MIB, 200 * MIB], (600, 1)), 0.1))
    peaks = Join(np.zeros(2, np.int64), np.full(2, 8.0), np.full(2, 0.1), np.full(2, MIB))
    first = policy.start([SHOP], peaks)
    assert (first.cpu.quota_cores >= usage[0]).all()
    assert (first.cpu.quota_cores <= 1.3 * usage[0]).all()
    assert (first.memory.limit_bytes >= np.array([100, 200]) * MIB).all()


def test_a_history_shorter_than_an_update_interval_counts():
    policy = make("autopilot", {})
    policy.learn(History(np.full((15, 1), 3.0), np.full((15, 1), 64 * MIB), 0.1))
    first = policy.start(
        [SHOP], Join(np.zeros(1, np.int64), np.array([8.0]), np.array([0.1]), np.array([MIB]))
    )
    assert first.cpu.quota_cores[0] >= 3.0
