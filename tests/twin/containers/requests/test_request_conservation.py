"""Laws that hold in every world: nothing is lost, nothing is made of nothing, and the seed decides all."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.services import Draw
from control.services import RequestStatus as Status
from tests.twin.containers.requests.request_world import (
    NO_LIMIT,
    PERIOD_S,
    QUIET,
    Call,
    Driver,
    Handler,
    Service,
    world,
)
from twin.containers import cfs
from twin.containers.model import Machine
from twin.containers.requests.model import Client, RequestWorkload

PERIODS = 12
BURST = Machine(0.0, 0.0, 0.0, 0.0, 0.0, 1.0, burst_s=0.02)

seconds = st.sampled_from([0.0, 0.0001, 0.001, 0.004, 0.02])
draws = st.sampled_from([Draw.FIXED, Draw.EXPONENTIAL, Draw.LOGNORMAL])


@st.composite
def calls(draw: st.DrawFn, to: str, pool: int) -> Call:
    return Call(
        to,
        probability=draw(st.sampled_from([1.0, 1.0, 0.5])),
        timeout_s=draw(st.sampled_from([np.inf, np.inf, 0.003, 0.03])),
        retries=draw(st.integers(0, 2)),
        backoff_s=draw(st.sampled_from([0.0, 0.002])),
        network_s=draw(st.sampled_from([0.0, 0.0002, 0.001])),
        pool=draw(st.sampled_from([-1, pool])),
    )


@st.composite
def worlds(draw: st.DrawFn) -> RequestWorkload:
    """Up to five services that call those behind them, all limits narrow enough to bind.

    Each service has a pool of its own: one that callers and their callees share can lock up for ever.
    """
    count = draw(st.integers(1, 5))
    services = []
    for k in range(count):
        callees = st.sampled_from([f"h{j}" for j in range(k + 1, count)]) if k + 1 < count else st.nothing()
        stage = st.lists(callees.flatmap(lambda to, pool=k: calls(to, pool)), min_size=1, max_size=3)
        stages = draw(st.lists(stage, max_size=2)) if k + 1 < count else []
        services.append(
            Service(
                {f"h{k}": Handler(draw(seconds), stages, draw(draws))},
                replicas=draw(st.integers(1, 2)),
                threads=draw(st.sampled_from([0.5, 1.0, 2.0])),
                workers=draw(st.integers(1, 4)),
                queue=draw(st.integers(0, 4)),
                base_bytes=10,
                request_bytes=draw(st.integers(0, 3)),
                cache_bytes=draw(st.integers(0, 20)),
                cache_request_bytes=draw(st.integers(0, 5)),
                host=draw(st.integers(0, 1)),
                phase_s=draw(st.sampled_from([0.0, 0.03, 0.07])),
            )
        )
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    at_s = np.sort(rng.uniform(0.0, PERIODS * PERIOD_S, draw(st.integers(0, 120))))
    client = Client(
        connections=draw(st.sampled_from([0, 0, 1, 5])),
        queue=draw(st.sampled_from([0, 3, 1000])),
        timeout_s=draw(st.sampled_from([np.inf, np.inf, 0.01, 0.1])),
    )
    entries = [f"h{k}" for k in range(min(count, 2))]
    kinds = rng.integers(0, len(entries), len(at_s))
    cores = draw(st.sampled_from([(1.0, 1.0), (1.5, 64.0)]))
    load = world(
        services,
        at_s,
        entries,
        kinds,
        periods=PERIODS,
        pools=draw(st.lists(st.integers(1, 3), min_size=count, max_size=count)),
        client=client,
        cores=cores,
    )
    wake_s = draw(st.sampled_from([0.0, 0.0, 0.002]))
    keep_s = draw(st.sampled_from([0.0, 0.0, 0.25]))
    return replace(load, graph=replace(load.graph, wake_s=wake_s, wake_tau_s=0.01, keep_s=keep_s))


@dataclass(frozen=True)
class Trouble:
    """A disturbance of container `column` (modulo their number) at `at_s`."""

    at_s: float
    what: str
    column: int
    value: float


troubles = st.lists(
    st.builds(
        Trouble,
        st.floats(0.0, PERIODS * PERIOD_S, exclude_max=True),
        st.sampled_from(["write", "hold", "down", "release"]),
        st.integers(0, 9),
        st.sampled_from([0.01, 0.1, 0.5, 3.0, np.inf]),
    ),
    max_size=8,
)
quotas = st.sampled_from([0.01, 0.05, 0.3, 1.0, np.inf])


def apply(driver: Driver, trouble: Trouble) -> None:
    column = np.array([trouble.column % len(driver.workload.names)])
    status = driver.physics.fleet.status[column[0]]
    if trouble.what == "write":
        driver.write(trouble.value, column)
    elif trouble.what == "hold" and status == cfs.UP:
        driver.physics.hold(column)
    elif trouble.what == "down" and status <= cfs.HELD:
        driver.physics.take_down(column)
    elif trouble.what == "release" and status != cfs.UP:
        driver.physics.release(column)


def drive(driver: Driver, troubles: list[Trouble]) -> None:
    """All periods, with the troubles in their time."""
    left = sorted(troubles, key=lambda trouble: trouble.at_s)
    for at_s, row, group in driver.ends():
        while left and left[0].at_s < at_s:
            driver.to(left[0].at_s)
            apply(driver, left.pop(0))
        driver.to(at_s)
        driver.physics.end_period(row, group, driver.report)
        driver.physics.record(driver.rows, row, group, driver.report)


def drain(driver: Driver) -> None:
    """Everyone runs without a limit until nothing is left to do."""
    columns = np.arange(len(driver.workload.names))
    driver.physics.release(columns[driver.physics.fleet.status != cfs.UP])
    driver.write(np.inf)
    driver.to(1e5)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(worlds(), troubles, quotas, st.sampled_from([NO_LIMIT, 13]))
def test_every_request_ends_once_and_all_that_it_took_is_given_back(load, troubles, quota, limit):
    driver = Driver(load, quota=quota, limit=limit)
    drive(driver, troubles)
    drain(driver)
    log, fleet = driver.physics.finish(), driver.physics.fleet
    ended = driver.physics.take_finished()
    assert sorted(ended.tolist()) == list(range(len(load.arrivals.at_s)))
    assert (log.status != Status.PENDING).all()
    assert (log.end_s >= log.at_s).all()
    assert log.in_flight == 0
    state, tables = driver.physics.engine[0], driver.physics.tables
    assert state["spare"] == state["node_count"] - 1
    assert state["open"] == state["waiting"] == 0
    assert not tables["pools"]["busy"].any()
    assert not tables["containers"]["runnable"].any()
    assert not tables["lines"]["head"].any()
    containers = tables["containers"]
    kept_bytes = containers["kept"] * containers["request_bytes"]
    assert (fleet.wanted_bytes == 10 + containers["cached_bytes"] + kept_bytes).all()
    assert load.graph.keep_s > 0.0 or not containers["kept"].any()
    assert log.hops == log.visits.sum()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(worlds(), troubles, quotas)
def test_cpu_work_that_began_is_done_lost_or_waiting(load, troubles, quota):
    driver = Driver(load, quota=quota)
    drive(driver, troubles)
    log, fleet = driver.physics.finish(), driver.physics.fleet
    assert fleet.arrived_s == pytest.approx(fleet.done_s + log.lost_s + log.waiting_s, abs=1e-9)
    rows = driver.series
    assert rows.demand_cores.sum(axis=0) * PERIOD_S == pytest.approx(fleet.arrived_s, abs=1e-5)
    assert rows.usage_cores.sum(axis=0) * PERIOD_S == pytest.approx(fleet.done_s, abs=1e-5)
    assert (rows.throttled_s <= fleet.cap * PERIOD_S * (1 + 1e-6)).all()
    assert (rows.throttled.sum(axis=0) == fleet.nr_throttled).all()
    assert (fleet.nr_throttled <= fleet.nr_periods).all()


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(worlds(), quotas, st.sampled_from([QUIET, BURST]))
def test_nobody_gets_more_cpu_than_quota_burst_and_host_allow(load, quota, machine):
    driver = Driver(load, quota=quota, machine=machine)
    drive(driver, [])
    usage_s = driver.series.usage_cores.astype(np.float64) * PERIOD_S
    allowed = min(quota, 1e3) * PERIOD_S
    saved_s = machine.burst_s + cfs.SLICE_S
    assert (usage_s <= allowed + saved_s + 1e-7).all()
    # Over the whole run what is carried over adds up to nothing but what one period saved.
    assert (usage_s.sum(axis=0) <= PERIODS * allowed + saved_s + 1e-6).all()
    for host, cores in enumerate(load.cores_of_host):
        assert usage_s[:, load.host == host].sum() <= cores * PERIODS * PERIOD_S + 1e-6


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(worlds(), troubles, quotas)
def test_the_same_seed_gives_the_same_bits(load, troubles, quota):
    logs = []
    for _ in range(2):
        driver = Driver(load, quota=quota)
        drive(driver, troubles)
        logs.append((driver.physics.finish(), driver.series))
    (a, rows_a), (b, rows_b) = logs
    assert a.end_s.tobytes() == b.end_s.tobytes()
    assert a.status.tobytes() == b.status.tobytes()
    assert rows_a.usage_cores.tobytes() == rows_b.usage_cores.tobytes()


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(worlds(), quotas, st.lists(st.floats(0.0, PERIODS * PERIOD_S), max_size=30))
def test_where_time_is_stopped_changes_nothing(load, quota, stops):
    whole, split = Driver(load, quota=quota), Driver(load, quota=quota, stops=stops)
    a, b = whole.run(), split.run()
    assert a.status.tolist() == b.status.tolist()
    assert a.end_s == pytest.approx(b.end_s, abs=1e-9, nan_ok=True)
    assert a.visits.tolist() == b.visits.tolist()
    assert whole.physics.fleet.done_s == pytest.approx(split.physics.fleet.done_s, abs=1e-9)
