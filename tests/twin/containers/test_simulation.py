from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator.escra import Escra, EscraSettings
from control.allocator.model import Application, Decision, Reason
from tests.twin.containers.scripted import Scripted, cpu, machine, ram, run, workload
from twin.containers.model import EVENT_KINDS
from twinbed import InvariantError

MIB = 1 << 20


def test_work_above_the_quota_is_carried_over_and_done_later():
    # Quota 1, one thread allowed 2: 150 ms arrive, 100 are done; 50 are left for the next period.
    outcome = run(workload([1.5, 0.0, 0.0], threads=2.0), Scripted(quota=1.0), machine())
    series = outcome.series
    assert series.usage_cores[:, 0] == pytest.approx([1.0, 0.5, 0.0])
    assert series.backlog_s[:, 0] == pytest.approx([0.05, 0.0, 0.0])
    assert series.throttled[:, 0].tolist() == [True, False, False]
    # 1.5 cores arrive: exhausted after 66.7 ms, 2 CPUs throttled for 33.3 ms.
    assert series.throttled_s[0, 0] == pytest.approx(2 * (0.1 - 0.1 / 1.5))
    assert outcome.done_s[0] == pytest.approx(0.15)
    # The third period is idle: no timer, not counted.
    assert outcome.nr_periods.tolist() == [2]
    assert outcome.nr_throttled.tolist() == [1]


def test_a_container_without_a_quota_is_limited_by_threads_and_host_and_counts_no_periods():
    load = workload([[3.0, 3.0, 3.0]] * 2, threads=[1.0, 8.0, 8.0], host=[4.0, 2.0, 4.0])
    outcome = run(load, Scripted(), machine())
    assert outcome.series.usage_cores[0] == pytest.approx([1.0, 2.0, 3.0])
    assert not outcome.series.throttled.any()
    assert np.isinf(outcome.series.quota_cores).all()
    assert outcome.nr_periods.tolist() == [0, 0, 0]


def test_burst_credit_is_spent_in_the_next_period():
    # Idle, then 2 cores at quota 1 with 40 ms of burst: 140 ms are done.
    outcome = run(workload([0.0, 2.0], threads=4.0), Scripted(quota=1.0), machine(burst_s=0.04))
    assert outcome.series.usage_cores[:, 0] == pytest.approx([0.0, 1.4])


def test_an_idle_container_is_reported_with_its_whole_quota_unused():
    policy = Scripted(quota=0.7)
    run(workload([0.0, 0.2]), policy, machine(telemetry_delay_s=0.01))
    first = policy.periods[0]
    assert first.unused_cores == pytest.approx([0.7])
    assert first.usage_cores.tolist() == [0.0]
    assert (first.at_s, first.period_s) == (0.1, 0.1)


def test_a_decision_takes_force_after_both_delays_inside_the_period():
    # Reported at 100 + 20 ms, written 10 ms later: a busy thread runs 20 ms on the old quota of 0.2, is
    # throttled for 10, then gets a full 0.5 · 100 ms.
    def decide(stats):
        return Decision(cpu(stats.ids, 0.5, Reason.THROTTLED)) if stats.at_s < 0.15 else None

    load = workload([1.0] * 4, threads=1.0)
    outcome = run(
        load, Scripted(quota=0.2, period=decide), machine(telemetry_delay_s=0.02, quota_write_delay_s=0.01)
    )
    series = outcome.series
    assert series.usage_cores[:, 0] == pytest.approx([0.2, 0.7, 0.5, 0.5])
    assert series.quota_cores[:, 0] == pytest.approx([0.2, 0.5, 0.5, 0.5])
    assert series.cpu_reason[:, 0].tolist() == [Reason.JOINED, Reason.THROTTLED, 0, 0]
    assert series.throttled_s[1, 0] == pytest.approx(0.01 + 0.02)
    assert outcome.limit_changes == 1


def test_a_telemetry_delay_longer_than_a_period_reports_old_periods_in_order():
    policy = Scripted(quota=1.0)
    run(workload([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), policy, machine(telemetry_delay_s=0.25))
    # Ends at 100, 200 and 300 ms arrive at 350, 450 and 550 ms; the run is over at 600.
    assert [stats.at_s for stats in policy.periods] == pytest.approx([0.1, 0.2, 0.3])
    assert [stats.usage_cores[0] for stats in policy.periods] == pytest.approx([0.1, 0.2, 0.3])


def test_jitter_never_lets_a_report_overtake_another():
    policy = Scripted(quota=1.0)
    run(workload([0.1] * 60), policy, machine(telemetry_delay_s=0.1, telemetry_jitter_s=0.3))
    ends = [stats.at_s for stats in policy.periods]
    assert ends == sorted(ends)
    assert len(ends) > 40


def test_decisions_take_force_in_order_even_later_than_a_period():
    def decide(stats):
        return Decision(cpu(stats.ids, round(stats.at_s * 10)))

    outcome = run(workload([0.0] * 8), Scripted(quota=9.0, period=decide), machine(quota_write_delay_s=0.25))
    # The decision of the period that ends at 100 ms (1 core) takes force at 350 ms: in the fourth period.
    assert outcome.series.quota_cores[:, 0].tolist() == [9, 9, 9, 1, 2, 3, 4, 5]


def test_a_restart_loses_the_container_for_its_start_up_and_keeps_its_backlog():
    def decide(stats):
        if stats.at_s > 0.15:
            return None
        return Decision(cpu(stats.ids, 2.0), ram(stats.ids, 7 * MIB), restart=stats.ids)

    load = workload([0.5] * 5, memory=MIB, threads=2.0)
    outcome = run(load, Scripted(quota=1.0, limit=5 * MIB, period=decide), machine(restart_s=0.25))
    # Down from 100 to 350 ms; 125 ms of work are waiting then, and 50 ms of period at up to 2 CPUs do 100.
    series = outcome.series
    assert series.usage_cores[:, 0] == pytest.approx([0.5, 0.0, 0.0, 1.0, 1.0])
    assert series.up[:, 0].tolist() == [True, False, False, True, True]
    assert series.memory_bytes[:, 0].tolist() == [MIB, 0, 0, MIB, MIB]
    assert series.limit_bytes[:, 0].tolist() == [5 * MIB] + [7 * MIB] * 4
    assert [kind for kind in outcome.events.kind if kind != "join"] == ["restart"]
    assert outcome.done_s[0] == pytest.approx(outcome.arrived_s[0])


def test_a_container_that_is_starting_is_not_restarted_again():
    policy = Scripted(quota=1.0, period=lambda stats: Decision(restart=stats.ids))
    outcome = run(workload([0.5] * 6), policy, machine(restart_s=0.25))
    # Restarted at 100 ms, up at 350, asked again at 400.
    assert [
        at for at, kind in zip(outcome.events.at_s, outcome.events.kind, strict=True) if kind == "restart"
    ] == (pytest.approx([0.1, 0.4]))


def test_containers_join_and_leave_with_their_presence_and_come_back_as_new_ones():
    present = np.array([[1, 0], [1, 1], [0, 1], [0, 1], [1, 1]], bool)
    policy = Scripted(quota=0.5)
    outcome = run(workload([[1.0, 0.2]] * 5, present=present), policy, machine())
    first, second, third = [stats.ids for stats in policy.periods][:3]
    assert len(first) == 1
    assert len(second) == 2
    # c0 left after two periods, so the third period's report has c1 alone.
    assert third.tolist() == [second[1]]
    assert policy.left == [first[0]]
    series = outcome.series
    assert series.up.tolist() == present.tolist()
    assert series.usage_cores[:, 0] == pytest.approx([0.5, 0.5, 0.0, 0.0, 0.5])
    # The backlog of 100 ms is dropped; the new c0 begins without one.
    assert series.backlog_s[:, 0] == pytest.approx([0.05, 0.1, 0.0, 0.0, 0.05])
    assert outcome.arrived_s[0] - outcome.done_s[0] == pytest.approx(0.1 + 0.05)
    assert series.demand_cores[:, 0].tolist() == [1.0, 1.0, 0.0, 0.0, 1.0]
    joins = zip(outcome.events.at_s, outcome.events.container, outcome.events.kind, strict=True)
    assert list(joins) == [
        (0.0, 0, "join"),
        (pytest.approx(0.1), 1, "join"),
        (pytest.approx(0.2), 0, "leave"),
        (pytest.approx(0.4), 0, "join"),
    ]


def test_reports_follow_their_container_when_slots_and_columns_differ():
    # c0 and c1 leave; c1 and then c0 come back: slots in another order than the columns.
    present = np.array([[1, 1, 1], [0, 0, 1], [0, 1, 1], [1, 1, 1], [1, 1, 1]], bool)
    policy = Scripted(quota=4.0)
    run(workload([[0.1, 0.2, 0.3]] * 5, present=present), policy, machine(telemetry_delay_s=0.001))
    last = policy.periods[-1]
    usage = dict(zip(last.ids.tolist(), last.usage_cores.tolist(), strict=True))
    ids = policy.roster.living().tolist()
    assert last.ids.tolist() == ids
    # Slot 0 is c1 (back first), slot 1 is c0.
    assert [usage[id_] for id_ in ids] == pytest.approx([0.2, 0.1, 0.3])


def test_a_late_decision_on_a_container_that_left_changes_nothing():
    present = np.array([1, 1, 0, 1, 1], bool)

    def decide(stats):
        return Decision(cpu(stats.ids, 3.0), ram(stats.ids, MIB), restart=stats.ids)

    policy = Scripted(quota=1.0, period=decide)
    load = workload([0.5] * 5, present=present)
    # Decided on the first c0 at 100 and 200 ms, in force at 350 and 450, when another c0 is there.
    outcome = run(load, policy, machine(quota_write_delay_s=0.25))
    assert outcome.series.quota_cores[:, 0].tolist() == [1.0, 1.0, 0.0, 1.0, 1.0]
    assert "restart" not in outcome.events.kind


def test_progress_is_told_at_most_twenty_times_a_second_and_can_cancel():
    class CancelError(Exception):
        def __init__(self, why, fraction):
            super().__init__(why, fraction)

    told = []
    run(workload([0.1] * 50), Scripted(), machine(), progress=told.append)
    assert told[-1] == 1.0
    assert len(told) < 50

    def cancel(fraction):
        raise CancelError("enough", fraction)

    with pytest.raises(CancelError):
        run(workload([0.1] * 3), Scripted(), machine(), progress=cancel)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_demand_that_is_no_amount_names_container_and_period(value):
    load = workload([[0.1, 0.1], [0.1, value]])
    with pytest.raises(InvariantError, match=r"'c1', period 1: demand"):
        run(load, Scripted(), machine())


def test_negative_memory_and_mismatched_arrays_are_refused():
    with pytest.raises(InvariantError, match="period 0"):
        run(workload([0.1], memory=[-1]), Scripted(), machine())
    with pytest.raises(InvariantError, match="different lengths"):
        run(replace(workload([0.1]), threads=np.ones(2)), Scripted(), machine())
    with pytest.raises(InvariantError, match="threads"):
        run(workload([0.1], threads=0.0), Scripted(), machine())


def test_an_allocator_that_decides_a_quota_of_zero_is_named():
    policy = Scripted(quota=1.0, period=lambda stats: Decision(cpu(stats.ids, 0.0)))
    with pytest.raises(InvariantError, match="scripted"):
        run(workload([0.1] * 3), policy, machine())


def test_without_recording_there_is_no_series_and_the_same_outcome():
    load = workload([[1.5, 0.2]] * 20, threads=2.0)
    kept = run(load, Scripted(quota=1.0), machine())
    bare = run(load, Scripted(quota=1.0), machine(), record=False)
    assert bare.series is None
    assert bare.done_s.tolist() == kept.done_s.tolist()
    assert bare.nr_throttled.tolist() == kept.nr_throttled.tolist()


def random_load(seed, periods=40, count=6):
    rng = np.random.default_rng(seed)
    demand = rng.exponential(0.6, (periods, count)) * (rng.random((periods, count)) < 0.7)
    memory = rng.integers(0, 200, (periods, count)) * MIB
    present = np.repeat(rng.random((periods // 4, count)) < 0.8, 4, axis=0)
    load = workload(demand, memory, present, threads=rng.integers(1, 4, count), applications=2)
    applications = tuple(Application(f"a{i}", 2.0, 500 * MIB) for i in range(2))
    return replace(load, applications=applications)


MACHINES = (
    {},
    {"telemetry_delay_s": 0.004, "quota_write_delay_s": 0.002, "oom_grant_delay_s": 0.001},
    {"telemetry_delay_s": 0.13, "telemetry_jitter_s": 0.05, "quota_write_delay_s": 0.07, "burst_s": 0.02},
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), changes=st.sampled_from(MACHINES))
def test_invariants_hold_under_escra_with_memory_churn_and_delays(seed, changes):
    load = random_load(seed)
    policy = Escra(EscraSettings(reclaim_interval_s=0.5, grant_bytes=MIB))
    outcome = run(load, policy, machine(reclaim_delay_s=0.001, **changes))
    series = outcome.series
    # Conservation: what arrived was done or waits; a leave drops what waits, in a row that is not present.
    backlog = np.vstack([np.zeros(6), series.backlog_s])
    steps = 0.1 * (series.demand_cores - series.usage_cores) - np.diff(backlog, axis=0)
    assert np.abs(steps[load.present]).max(initial=0.0) < 1e-6
    assert (outcome.done_s <= outcome.arrived_s + 1e-9).all()
    assert (series.usage_cores <= load.threads * (1 + 1e-6)).all()
    assert (series.memory_bytes <= series.limit_bytes).all()
    assert (series.memory_bytes[~series.up] == 0).all()
    assert set(outcome.events.kind) <= set(EVENT_KINDS)
    assert outcome.events.at_s == sorted(outcome.events.at_s)
    for app in range(2):
        members = load.app == app
        assert (series.limit_bytes[:, members].sum(axis=1) <= 500 * MIB).all()
        assert (series.quota_cores[:, members].sum(axis=1) <= 2.0 + 1e-5).all()


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), changes=st.sampled_from(MACHINES))
def test_the_same_seed_gives_the_same_outcome_to_the_bit(seed, changes):
    load = random_load(seed)
    first, again = (run(load, Escra(EscraSettings()), machine(**changes), seed=seed) for _ in range(2))
    assert first.events == again.events
    assert first.series.request_cores is again.series.request_cores is None
    for name in set(type(first.series).__slots__) - {"request_cores"}:
        assert getattr(first.series, name).tobytes() == getattr(again.series, name).tobytes()


def test_the_order_of_columns_does_not_matter():
    load = random_load(5)
    present = np.ones_like(load.present)
    order = np.array([3, 0, 5, 1, 4, 2])
    turned = replace(
        load,
        names=tuple(load.names[i] for i in order),
        app=load.app[order],
        demand_cores=load.demand_cores[:, order],
        memory_bytes=load.memory_bytes[:, order],
        present=present,
        threads=load.threads[order],
    )
    plain = run(replace(load, present=present), Escra(EscraSettings()), machine())
    other = run(turned, Escra(EscraSettings()), machine())
    assert np.array_equal(plain.series.usage_cores[:, order], other.series.usage_cores)


def test_e1_the_limit_follows_one_two_three_four_busy_cpus_within_a_few_periods():
    # Experiment E1 of Escra's paper (ICDCS 2022): the load saturates 1–4 CPUs in turn, 3 s each.
    demand = np.repeat([1.0, 2.0, 3.0, 4.0, 1.0], 30)
    load = workload(demand, threads=4.0, host=8.0)
    load = replace(load, applications=(Application("a", 6.0, 1 << 40),))
    quick = machine(telemetry_delay_s=0.0001, quota_write_delay_s=0.0002)
    series = run(load, Escra(EscraSettings()), quick).series
    for step, cores in enumerate((1.0, 2.0, 3.0, 4.0, 1.0)):
        settled = series.quota_cores[step * 30 + 12 : step * 30 + 30, 0]
        assert (settled >= cores * 0.99).all()
        assert np.median(settled) <= cores + 1.0


def test_the_network_delays_reports_and_the_limits_that_answer_them():
    # Period 0 ends at 100 ms; there 30 ms, back 30 ms: the quota is in force from 160 ms, 60 ms into
    # period 1, which refills the pool: 60 ms at 1 CPU of quota 0.5 (50 ms), then 40 ms of the new pool.
    policy = Scripted(quota=0.5)
    policy.period = lambda stats: Decision(cpu(stats.ids, 0.8)) if len(policy.periods) == 1 else None
    outcome = run(workload([1.0] * 3), policy, machine(network_delay_s=0.03))
    assert outcome.series.quota_cores[:, 0] == pytest.approx([0.5, 0.8, 0.8])
    assert outcome.series.usage_cores[1, 0] == pytest.approx(0.5 + 0.4)


def test_a_trap_crosses_the_network_twice_before_its_grant():
    policy = Scripted(limit=1 * MIB, oom=lambda event: Decision(memory=ram(event.ids, 4 * MIB)))
    load = workload([0.1] * 4, memory=[0, 2 * MIB, 2 * MIB, 2 * MIB])
    outcome = run(load, policy, machine(network_delay_s=0.02, oom_grant_delay_s=0.001))
    rows = zip(outcome.events.at_s, outcome.events.kind, strict=True)
    assert [(round(at, 6), kind) for at, kind in rows if kind != "join"] == [(0.2, "oom"), (0.241, "grant")]


def test_lost_reports_are_missing_from_the_telemetry_and_nothing_else_changes():
    load = workload(np.full((400, 10), 0.3))
    policy = Scripted(quota=1.0)
    outcome = run(load, policy, machine(telemetry_loss=0.2))
    # The last period's report is not waited for: 3990 records, each lost with 0.2: 3192 ± 4 · 25.3.
    assert abs(outcome.reports - 3192) < 101
    assert sum(len(stats.ids) for stats in policy.periods) == outcome.reports
    assert outcome.series.usage_cores == pytest.approx(np.float32(0.3))
    assert run(load, Scripted(quota=1.0), machine()).reports == 3990


def test_when_all_reports_are_lost_the_allocator_is_never_called():
    policy = Scripted(quota=1.0)
    outcome = run(workload([0.3] * 5), policy, machine(telemetry_loss=1.0))
    assert policy.periods == []
    assert outcome.reports == 0
