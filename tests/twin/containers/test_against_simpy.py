"""The twin against the straightforward model that the benchmark compares it with: one process each."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.bench_twin import HOST_CORES, MACHINE, THREADS, bursty
from benchmarks.simpy_containers import Baseline
from control.allocator.escra import Escra, EscraSettings
from twin.containers.run import simulate


def test_a_process_per_container_comes_to_the_same_result():
    load = bursty(120, 60, 1)
    machine = replace(MACHINE, telemetry_jitter_s=0.0, reclaim_delay_s=0.0)
    policy = Escra(EscraSettings())
    twin = simulate(load, policy, machine, seed=np.random.SeedSequence(0))
    application = load.applications[0]
    plain = Baseline(
        load.demand_cores.T.tolist(),
        load.memory_bytes.T.tolist(),
        THREADS,
        HOST_CORES,
        application.cpu_limit_cores,
        application.memory_limit_bytes,
        load.period_s,
        machine.telemetry_delay_s,
        machine.quota_write_delay_s,
        machine.oom_grant_delay_s,
    )
    plain.run()
    # The plain rule does not round quotas to whole microcores: 0.1 µs per period, for 120 periods.
    assert [container.done_s for container in plain.containers] == pytest.approx(twin.done_s, abs=1.2e-5)
    assert [container.nr_periods for container in plain.containers] == twin.nr_periods.tolist()
    assert [container.nr_throttled for container in plain.containers] == twin.nr_throttled.tolist()
    assert [container.limit_bytes for container in plain.containers] == twin.series.limit_bytes[-1].tolist()
    throttled_s = twin.series.throttled_s.sum(axis=0, dtype=np.float64)
    assert [container.throttled_s for container in plain.containers] == pytest.approx(throttled_s, abs=1e-3)
    assert plain.traps == twin.events.kind.count("oom") > 0
