from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.allocator.model import PAGE_BYTES, Decision
from control.allocator.ports import ReclaimRule
from tests.twin.containers.scripted import NO_LIMIT, Scripted, machine, ram, run, workload
from twin.containers import cfs, memory
from twinbed import InvariantError

MIB = 1 << 20


def kinds(outcome):
    """(ms, kind, limit in MiB) of all events but joins."""
    events = outcome.events
    rows = zip(events.at_s, events.kind, events.limit_bytes, strict=True)
    return [(round(at * 1000, 3), kind, limit // MIB) for at, kind, limit in rows if kind != "join"]


def fleet_of(limits, wanted, status):
    fleet = cfs.new_fleet(len(wanted), np.ones(len(wanted)), np.ones(len(wanted)))
    fleet.limit_bytes[:] = limits
    fleet.wanted_bytes[:] = wanted
    fleet.status[:] = status
    return fleet


def test_new_limits_sort_held_containers_into_fitting_and_short():
    fleet = fleet_of([10, 10, 10, 10], [15, 25, 5, 25], [cfs.HELD, cfs.HELD, cfs.UP, cfs.UP])
    columns = np.arange(4)
    written = memory.write_limits(fleet, columns, np.array([20, 20, 10, 12]), 1, answer=True)
    assert written.changed == 3
    assert written.held.tolist() == [0, 1]
    assert written.fitting.tolist() == [0]
    assert sorted(written.short.tolist()) == [1, 3]
    # The raise does not answer the trap, because the held container that does not fit keeps waiting.
    assert memory.write_limits(fleet, columns, np.array([20, 21, 10, 30]), 2, answer=False).short.size == 0


def test_a_limit_that_was_superseded_is_not_written():
    fleet = fleet_of([10], [0], [cfs.UP])
    memory.write_limits(fleet, np.array([0]), np.array([20]), 5, answer=False)
    memory.write_limits(fleet, np.array([0]), np.array([30]), 4, answer=False)
    assert fleet.limit_bytes.tolist() == [20]


def test_a_held_container_whose_grant_was_superseded_asks_again():
    fleet = fleet_of([10], [25], [cfs.HELD])
    memory.write_limits(fleet, np.array([0]), np.array([12]), 5, answer=False)
    assert memory.write_limits(fleet, np.array([0]), np.array([30]), 4, answer=True).short.tolist() == [0]


def test_a_grant_that_raises_nothing_would_never_end_and_is_refused():
    fleet = fleet_of([10], [15], [cfs.HELD])
    with pytest.raises(InvariantError, match="raises nothing"):
        memory.write_limits(fleet, np.array([0]), np.array([10]), 1, answer=True)
    with pytest.raises(InvariantError, match="negative"):
        memory.write_limits(fleet, np.array([0]), np.array([-1]), 2, answer=False)


def test_a_trapped_container_is_held_until_the_grant_and_then_catches_up():
    load = workload([0.4] * 4, memory=[10 * MIB, 20 * MIB, 20 * MIB, 20 * MIB])
    policy = Scripted(limit=12 * MIB, oom=lambda event: Decision(memory=ram(event.ids, 24 * MIB)))
    outcome = run(load, policy, machine(oom_grant_delay_s=0.03))
    # Held from 200 to 230 ms: 70 ms of the third period remain, enough for its 40 ms of work.
    assert policy.ooms[0].needed_bytes.tolist() == [8 * MIB]
    assert policy.ooms[0].at_s == pytest.approx(0.2)
    assert kinds(outcome) == [(200, "oom", 12), (230, "grant", 24)]
    assert outcome.series.memory_bytes[:, 0].tolist() == [10 * MIB, 12 * MIB, 20 * MIB, 20 * MIB]
    assert outcome.series.usage_cores[:, 0] == pytest.approx([0.4] * 4)
    assert outcome.series.up.all()
    assert outcome.limit_changes == 1


def test_a_held_container_makes_no_progress_and_work_waits():
    load = workload([0.5] * 5, memory=[20 * MIB] * 5)
    policy = Scripted(limit=12 * MIB, oom=lambda event: Decision(memory=ram(event.ids, 24 * MIB)))
    outcome = run(load, policy, machine(oom_grant_delay_s=0.15))
    # Held 100 … 250 ms: 75 ms of work wait at 250; the rest of the period does 50 of the 100 that came.
    assert outcome.series.usage_cores[:, 0] == pytest.approx([0.5, 0.0, 0.5, 1.0, 0.5])
    assert outcome.series.backlog_s[:, 0] == pytest.approx([0.0, 0.05, 0.05, 0.0, 0.0])


def test_grants_repeat_until_it_fits():
    steps = iter((14, 17, 20))
    load = workload([0.0] * 2, memory=[20 * MIB] * 2)
    policy = Scripted(limit=10 * MIB, oom=lambda event: Decision(memory=ram(event.ids, next(steps) * MIB)))
    outcome = run(load, policy, machine(oom_grant_delay_s=0.001))
    assert [event.needed_bytes[0] // MIB for event in policy.ooms] == [10, 6, 3]
    assert kinds(outcome) == [
        (100, "oom", 10),
        (101, "grant", 14),
        (101, "oom", 14),
        (102, "grant", 17),
        (102, "oom", 17),
        (103, "grant", 20),
    ]


def test_all_containers_at_their_limit_at_one_instant_are_one_event():
    load = workload([[0.0] * 3], memory=[[20 * MIB, 5 * MIB, 30 * MIB]])
    policy = Scripted(limit=10 * MIB)
    run(load, policy, machine())
    assert len(policy.ooms) == 1
    assert policy.ooms[0].needed_bytes.tolist() == [10 * MIB, 20 * MIB]


def test_an_empty_pool_is_answered_after_a_reclaim_of_the_application():
    # c0 and c2 belong to a0, c1 to a1. c0 overshoots; only a0 is shrunk: c2 to its 2 MiB + δ = 3.
    load = workload([[0.1] * 3] * 3, memory=[[12 * MIB, 2 * MIB, 2 * MIB]] * 3, applications=2)
    policy = Scripted(
        limit=10 * MIB,
        reclaim=ReclaimRule(5.0, MIB),
        oom=lambda event: Decision(reclaim=np.array([0])),
        reclaimed=lambda shrunk: Decision(memory=ram(policy.ooms[0].ids, 16 * MIB)),
    )
    outcome = run(load, policy, machine(reclaim_delay_s=0.01, oom_grant_delay_s=0.002))
    assert policy.shrunk[0].apps.tolist() == [0]
    assert policy.shrunk[0].limit_bytes.tolist() == [3 * MIB]
    assert kinds(outcome) == [(100, "oom", 10), (110, "reclaim", 3), (112, "grant", 16)]
    assert outcome.series.limit_bytes[-1].tolist() == [16 * MIB, 10 * MIB, 3 * MIB]


def test_a_container_left_to_the_killer_loses_its_memory_and_comes_back():
    load = workload([0.2] * 6, memory=[20 * MIB] * 3 + [5 * MIB] * 3)
    policy = Scripted(limit=10 * MIB, oom=lambda event: Decision(kill=event.ids))
    outcome = run(load, policy, machine(restart_s=0.25, oom_grant_delay_s=0.001))
    # Killed at 101 ms, up at 351 ms, fits from then on.
    assert kinds(outcome) == [(100, "oom", 10), (101, "kill", 10), (101, "restart", 10)]
    assert outcome.series.memory_bytes[:, 0].tolist() == [10 * MIB, 0, 0, 5 * MIB, 5 * MIB, 5 * MIB]
    assert outcome.series.up[:, 0].tolist() == [True, False, False, True, True, True]
    assert outcome.done_s[0] == pytest.approx(outcome.arrived_s[0])


def test_without_a_trap_it_is_killed_at_once_and_reported_afterwards():
    load = workload([0.2] * 8, memory=[20 * MIB] * 8)
    policy = Scripted(
        limit=10 * MIB, traps_oom=False, oom=lambda event: Decision(memory=ram(event.ids, 30 * MIB))
    )
    outcome = run(load, policy, machine(restart_s=0.25, quota_write_delay_s=0.01))
    assert kinds(outcome) == [(100, "oom", 10), (100, "kill", 10), (100, "restart", 10)]
    assert policy.ooms[0].needed_bytes.tolist() == [PAGE_BYTES]  # the kernel tells no more
    assert outcome.series.limit_bytes[-1, 0] == 30 * MIB
    assert outcome.series.memory_bytes[-1, 0] == 20 * MIB


def test_a_container_that_never_fits_is_killed_once_per_start():
    load = workload([0.2] * 40, memory=[20 * MIB] * 40)
    outcome = run(load, Scripted(limit=10 * MIB, traps_oom=False), machine(restart_s=0.0))
    # No start-up time at all: at the end of the period in which it starts, at once, after 1 s and after 2 s.
    assert [at for at, kind, _ in kinds(outcome) if kind == "kill"] == [100, 200, 1200, 3300]
    assert [at for at, kind, _ in kinds(outcome) if kind == "restart"] == [100, 1200, 3200]


def test_a_limit_lowered_below_what_is_held_is_an_overshoot():
    load = workload([0.1] * 4, memory=[8 * MIB] * 4)

    def lower(stats):
        return Decision(memory=ram(stats.ids, 5 * MIB)) if stats.at_s < 0.15 else None

    outcome = run(load, Scripted(limit=10 * MIB, traps_oom=False, period=lower), machine())
    assert kinds(outcome)[:2] == [(100, "oom", 5), (100, "kill", 5)]


def test_agents_sweep_every_interval_and_report_all_applications():
    load = workload([[0.0, 0.0]] * 12, memory=[[MIB, 6 * MIB]] * 12, applications=2)
    policy = Scripted(limit=8 * MIB, reclaim=ReclaimRule(0.5, 2 * MIB))
    outcome = run(load, policy, machine(reclaim_delay_s=0.02))
    # c0: 1 + 2 = 3 MiB; c1: 6 + 2 is not below its limit of 8. The second sweep finds nothing.
    assert [report.apps.tolist() for report in policy.shrunk] == [[0, 1], [0, 1]]
    assert [report.at_s for report in policy.shrunk] == pytest.approx([0.52, 1.02])
    assert policy.shrunk[0].limit_bytes.tolist() == [3 * MIB]
    assert policy.shrunk[1].ids.size == 0
    assert kinds(outcome) == [(520, "reclaim", 3)]
    assert outcome.limit_changes == 0


def test_a_reclaim_without_a_rule_is_the_allocators_fault():
    policy = Scripted(period=lambda stats: Decision(reclaim=np.array([0])))
    with pytest.raises(InvariantError, match="no rule"):
        run(workload([0.0] * 3), policy, machine())


def test_a_held_container_that_leaves_is_forgotten():
    load = workload([0.1] * 5, memory=[20 * MIB] * 5, present=[True, True, False, False, True])
    policy = Scripted(limit=10 * MIB, oom=lambda event: Decision(memory=ram(event.ids, 30 * MIB)))
    outcome = run(load, policy, machine(oom_grant_delay_s=0.15))
    # The grant comes at 250 ms, when it is gone; the new c0 is trapped again at 500.
    assert kinds(outcome) == [(100, "oom", 10), (200, "leave", 0), (500, "oom", 10)]


def holding(held):
    return fleet_of(NO_LIMIT, held, cfs.UP)


def test_a_full_host_loses_its_largest_until_the_rest_fits_and_other_hosts_nothing():
    # Host 0 holds 10 + 50 + 30 of 45; without 50 it is 40. Host 1 holds 45.
    fleet, host = holding([10, 50, 30, 45]), np.array([0, 0, 0, 1])
    assert memory.too_much(fleet, host, 45.0).tolist() == [1]
    assert memory.too_much(fleet, host, 30.0).tolist() == [1, 2, 3]
    fleet.status[1] = cfs.DOWN
    assert memory.too_much(fleet, host, 45.0).tolist() == []


@given(
    held=st.lists(st.integers(0, 1000), min_size=1, max_size=12),
    hosts=st.integers(1, 3),
    most=st.integers(0, 3000),
)
def test_what_is_left_on_every_host_fits_and_no_smaller_one_goes_before_a_larger(held, hosts, most):
    host = np.arange(len(held)) % hosts
    ended = set(memory.too_much(holding(held), host, float(most)).tolist())
    for each in range(hosts):
        left = [size for i, size in enumerate(held) if host[i] == each and i not in ended]
        gone = [size for i, size in enumerate(held) if host[i] == each and i in ended]
        assert sum(left) <= most
        assert not gone or (sum(left) + min(gone) > most and min(gone) >= max(left, default=0))


def test_a_kill_for_the_host_is_told_to_those_without_a_trap_only():
    load = replace(workload([[0.1, 0.1]] * 6, memory=[[MIB, 9 * MIB]] * 6), host_memory_bytes=5.0 * MIB)
    for traps, told in ((False, 1), (True, 0)):
        policy = Scripted(traps_oom=traps)
        outcome = run(load, policy, machine(restart_s=9.0))
        assert kinds(outcome) == [
            (100, "oom", NO_LIMIT >> 20),
            (100, "kill", NO_LIMIT >> 20),
            (100, "restart", NO_LIMIT >> 20),
        ]
        assert len(policy.ooms) == told
