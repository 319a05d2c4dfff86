"""Ending a period for all containers at once is ending it for one after the other, to the bit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from twin.containers import cfs, sharing
from twin.containers.cfs import ABSENT, HELD, NANOSECOND, UP
from twin.containers.ending import end_period

PERIOD_S = 0.1


def one_by_one(fleet, hosts, demand, want, row, period_s, burst_s, report, over):
    """`end_period`, container by container, in the order in which one thinks of it."""
    cfs.end_crowded(fleet, hosts, demand, row, period_s)
    found = 0
    for i in range(len(fleet.status)):
        status, rate = fleet.status[i], demand[row, i]
        cfs.advance_one(fleet, i, period_s, rate)
        fleet.since[i] = 0.0
        used, quota, pool = fleet.used[i], fleet.quota[i], fleet.pool[i]
        if not (0.0 <= rate < np.inf and used <= fleet.cap[i] * period_s + NANOSECOND and pool >= 0.0):
            return -1 - i
        report.quota_cores[i], report.usage_cores[i] = quota, used / period_s
        report.unused_cores[i] = min(pool / period_s, quota)
        fleet.done_s[i] += used
        if status != ABSENT:
            fleet.arrived_s[i] += rate * period_s
        throttled = fleet.throttled[i]
        report.throttled[i], report.throttled_s[i] = throttled, 0.0
        if quota < np.inf:
            fleet.nr_periods[i] += used > 0.0 or throttled
        if throttled:
            report.throttled_s[i] = fleet.throttled_s[i]
            fleet.nr_throttled[i] += 1
            fleet.throttled[i] = False
            fleet.throttled_s[i] = fleet.stalled[i] = 0.0
        if status <= HELD:
            if want[row, i] < 0:
                return -1 - i
            fleet.wanted_bytes[i] = want[row, i]
            if status == UP and want[row, i] > fleet.limit_bytes[i]:
                over[found] = i
                found += 1
        report.memory_bytes[i] = min(fleet.wanted_bytes[i], fleet.limit_bytes[i])
        full = quota * period_s
        fleet.pool[i] = min(pool + full, full + burst_s)
        fleet.used[i] = 0.0
    return found


def made(rng, count):
    """A fleet in the middle of a period: some wait for memory, some are throttled, some have a backlog."""
    cap = rng.choice([0.5, 1.0, 4.0], count)
    fleet = cfs.new_fleet(count, cap, np.full(count, 8.0))
    fleet.status[:] = rng.choice(4, count, p=[0.7, 0.1, 0.1, 0.1])
    fleet.quota[:] = rng.choice([0.3, 1.0, 2.5, np.inf], count)
    left = fleet.quota * rng.choice([1e-12, 0.3, 1.0], count) * PERIOD_S
    fleet.pool[:] = np.where(rng.random(count) < 0.2, 0.0, left)
    fleet.backlog[:] = rng.choice([0.0, 0.01, 1.0], count) * rng.random(count)
    fleet.since[:] = rng.choice([0.0, 0.04, PERIOD_S], count)
    fleet.used[:] = fleet.since * cap * 0.5
    fleet.throttled[:] = rng.random(count) < 0.3
    fleet.throttled_s[:] = np.where(fleet.throttled, rng.random(count), 0.0)
    fleet.stalled[:] = np.where(fleet.throttled & (rng.random(count) < 0.5), 1.0, 0.0)
    fleet.limit_bytes[:] = rng.integers(1, 100, count)
    fleet.wanted_bytes[:] = rng.integers(0, 100, count)
    return fleet


@given(
    seed=st.integers(0, 100_000), count=st.integers(1, 70), burst_s=st.sampled_from([0.0, 0.05]),
    broken=st.sampled_from([0.0, 0.02]),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_all_containers_at_once_are_one_after_the_other(seed, count, burst_s, broken):
    rng = np.random.default_rng(seed)
    fleet = made(rng, count)
    other = cfs.Fleet(*(values.copy() for values in fleet))
    load = rng.choice([0.0, 0.2, 3.0], (3, count)) * rng.random((3, count))
    load[rng.random((3, count)) < broken] = rng.choice([-1.0, np.nan, np.inf])
    want = rng.integers(0, 120, (3, count))
    want[rng.random((3, count)) < broken] = -1
    hosts = sharing.crowded_hosts(np.arange(count), np.full(count, 8.0), fleet.cap, np.ones(count))
    over, expected = np.zeros((2, count), np.int64)
    report, plain = cfs.new_report(count), cfs.new_report(count)
    for row in range(3):
        found = end_period(fleet, hosts, load, want, row, PERIOD_S, burst_s, report, over)
        told = one_by_one(other, hosts, load, want, row, PERIOD_S, burst_s, plain, expected)
        assert found == told
        if found < 0:
            return
        assert over[:found].tolist() == expected[:found].tolist()
        for ours, theirs in (*zip(fleet, other, strict=True), *zip(report, plain, strict=True)):
            assert ours.tobytes() == theirs.tobytes()
