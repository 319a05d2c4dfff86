"""Replicas in the twin: the demand that they share, and the autoscaler that adds and removes them."""

from dataclasses import replace

import numpy as np
import pytest

from control.allocator import make
from lab.ask.scenario import build
from lab.containers.input.sections import container_scenario
from lab.containers.input.workload import load_source
from twin.containers.model import Machine
from twin.containers.run import simulate
from twinbed import ScenarioError

MACHINE = Machine(0.001, 0.0, 0.001, 0.001, 0.001, restart_s=2.0)


def run(steps, policy="requests-only:cpu_percentile=100", absent=None, **hpa):
    """Return the outcome of one workload with these steps (seconds, cores), in periods of a second.

    absent: periods in which the trace does not have the workload, of all periods.
    """
    scenario = container_scenario(
        build(
            {
                "name": "r",
                "workload": {
                    "containers": [
                        {
                            "name": "web",
                            "memory_bytes": 1 << 20,
                            "threads": 4,
                            "steps": [{"duration_s": length, "cpu_cores": cores} for length, cores in steps],
                        }
                    ]
                },
                "period_s": 1.0,
                "host_cores": 4,
                "hosts": 4,
                "hpa": {"replicas": 2, "max_replicas": 8, **hpa},
            }
        )
    )
    replay = load_source(scenario).prepare(scenario, MACHINE, np.random.SeedSequence(0))
    name, _, value = policy.partition(":")
    allocator = make(name, dict([value.split("=")]) if value else {})
    profile = replay.profile if allocator.given.profile else None
    workload = replay.workload
    if absent is not None:
        there = ~np.isin(np.arange(len(workload.demand_cores)), absent)[:, None]
        demand = workload.replication.demand_cores * there
        workload = replace(
            workload,
            present=workload.present & there,
            demand_cores=workload.demand_cores * there,
            replication=replace(workload.replication, demand_cores=demand),
        )
    return simulate(workload, allocator, MACHINE, seed=np.random.SeedSequence(1), profile=profile)


def up(outcome):
    return outcome.series.up.sum(axis=1)


def test_replicas_share_their_workloads_demand_and_none_is_lost():
    outcome = run([(120, 1.0)])
    assert outcome.series.demand_cores.sum(axis=1) == pytest.approx(np.ones(120))
    assert outcome.done_s.sum() == pytest.approx(120.0, abs=0.5)


def test_replicas_come_after_their_start_and_leave_after_the_window():
    # Two replicas request a core each. Their utilisation is 100 %, and later 25 % with four replicas.
    outcome = run([(120, 2.0), (480, 0.5)], target_utilisation=0.5)
    counts = up(outcome)
    # The sync at 15 s wants four, which have started up by 17 s.
    assert (counts[:16] == 2).all()
    assert (counts[17:120] == 4).all()
    assert counts[-1] == 1
    assert (counts[120:420] >= 4).all()


@pytest.mark.parametrize("sync_interval_s", [15.0, 15.3])
def test_work_is_recorded_with_the_replica_to_which_it_came(sync_interval_s):
    # Replicas come and go within a period and at its end, and no CPU is short.
    outcome = run([(120, 2.0), (480, 0.5)], target_utilisation=0.5, sync_interval_s=sync_interval_s)
    series = outcome.series
    assert len(np.unique(up(outcome))) > 1
    assert series.demand_cores == pytest.approx(series.usage_cores, abs=1e-6)
    assert not series.backlog_s.any()
    assert outcome.arrived_s == pytest.approx(outcome.done_s)


@pytest.mark.parametrize(
    "absent", [range(100, 300), range(60), [*range(60), *range(97, 99), *range(200, 300)]]
)
def test_a_workload_begins_with_its_first_replicas_and_takes_them_all_with_it(absent):
    outcome = run([(300, 2.0)], target_utilisation=0.5, absent=absent)
    counts, there = up(outcome), ~np.isin(np.arange(300), absent)
    assert (counts[~there] == 0).all()
    for begins in np.flatnonzero(np.diff(there, prepend=False) & there):
        assert (counts[begins : begins + 10] == 2).all()
    assert counts.max() == 4
    assert outcome.series.demand_cores.sum(axis=1) == pytest.approx(2.0 * there)


def test_without_requests_or_limits_nothing_is_scaled():
    assert (up(run([(120, 2.0)], policy="unlimited", target_utilisation=0.1)) == 2).all()


def test_a_limit_is_the_request_where_none_is_decided():
    assert up(run([(120, 2.0)], policy="static:factor=1.0", target_utilisation=0.5)).max() == 4


def test_the_most_replicas_are_never_exceeded():
    assert up(run([(300, 3.0)], target_utilisation=0.05)).max() == 8


def test_the_same_seed_gives_the_same_run():
    first, second = run([(60, 2.0)], target_utilisation=0.5), run([(60, 2.0)], target_utilisation=0.5)
    assert np.array_equal(first.series.usage_cores, second.series.usage_cores)


def test_a_first_number_outside_the_bounds_is_named():
    with pytest.raises(ScenarioError, match=r"hpa.*replicas: expected a number from min_replicas"):
        run([(10, 1.0)], replicas=9)
