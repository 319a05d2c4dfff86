"""Passes over many periods do what the control loop does period by period, to the bit."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator.autopilot import Autopilot, AutopilotSettings
from control.allocator.autothrottle import Autothrottle, AutothrottleSettings
from control.allocator.escra import Escra, EscraSettings
from control.allocator.model import Application
from control.allocator.periodic import PeriodicPolicy
from control.allocator.requests_only import RequestsOnly, RequestsOnlySettings
from control.allocator.static import Static, StaticSettings
from control.allocator.vpa import Vpa
from control.allocator.vpa_settings import VpaSettings
from tests.twin.containers.scripted import PERIOD_S, machine
from twin.containers import simulation
from twin.containers.model import Outcome, Workload
from twin.containers.run import simulate
from twin.containers.timers import delays_until

MIB = 1 << 20


class Mine(PeriodicPolicy):
    def limits(self, sample):
        return sample.cores * (1.0 + sample.throttled) + 0.1, sample.memory_bytes * 1.2


POLICIES = {
    "escra": lambda: Escra(EscraSettings()),
    "static": lambda: Static(StaticSettings(factor=0.9)),
    "vpa": lambda: Vpa(VpaSettings(update_interval_s=3.0, sample_interval_s=1.0, min_restart_interval_s=1.0)),
    "vpa in place": lambda: Vpa(VpaSettings(update_mode="in_place", update_interval_s=2.0)),
    "autopilot": lambda: Autopilot(AutopilotSettings(update_interval_s=2.5, sample_interval_s=0.7)),
    "autothrottle": lambda: Autothrottle(
        AutothrottleSettings(target_busy=0.1, target_idle=0.0, tower_interval_s=4.0, window=4, history=9)
    ),
    "own": lambda: Mine(interval_s=1.5),
}


def load(seed: int, periods: int, count: int, *, come_and_go: bool, shared: bool) -> Workload:
    """Bursts, heaps that climb and fall, and containers that join and leave, if they do."""
    rng = np.random.default_rng(seed)
    demand = rng.lognormal(-1.0, 0.9, count) * rng.lognormal(0.0, 0.8, (periods, count))
    demand *= rng.random((periods, count)) < 0.9
    climb = (np.arange(periods)[:, None] / rng.integers(20, 200, count) + rng.random(count)) % 1.0
    memory = ((50 + 100 * rng.random(count)) * MIB + 90 * MIB * climb).astype(np.int64)
    present = np.ones((periods, count), np.bool_)
    if come_and_go:
        for column in range(1, count):
            first, last = sorted(rng.integers(0, periods + 1, 2).tolist())
            present[:, column] = (np.arange(periods) < first) | (np.arange(periods) >= last)
    demand, memory = demand * present, memory * present
    limit = float(demand.max(axis=0).sum()) * 1.2, int(memory.max(axis=0).sum() * 1.3)
    return Workload(
        names=tuple(f"c{i}" for i in range(count)),
        applications=(Application("a", *limit), Application("b", *limit)),
        app=np.arange(count) % 2,
        period_s=PERIOD_S,
        demand_cores=demand,
        memory_bytes=memory,
        present=present,
        threads=np.full(count, 4.0),
        host=np.zeros(count, np.int64) if shared else np.arange(count),
        host_cores=np.full(count, 6.0),
        weight=rng.integers(1, 5, count).astype(np.float64),
        peak_cores=np.maximum(demand.max(axis=0), 0.01),
        peak_bytes=np.maximum(memory.max(axis=0), MIB),
    )


def both(monkeypatch, workload, policy, on, *, record=True, profile=None) -> tuple[Outcome, Outcome]:
    def once() -> Outcome:
        seed = np.random.SeedSequence(3)
        return simulate(workload, policy(), on, seed=seed, record=record, profile=profile)

    leapt = once()
    with monkeypatch.context() as patch:
        patch.setattr(simulation, "new_leaps", lambda *_: None)
        return leapt, once()


def assert_equal(leapt: Outcome, plain: Outcome) -> None:
    if plain.series is not None:
        for name in type(plain.series).__slots__:
            np.testing.assert_array_equal(getattr(leapt.series, name), getattr(plain.series, name), name)
    for name in type(plain.events).__slots__:
        assert getattr(leapt.events, name) == getattr(plain.events, name), name
    for field in fields(Outcome):
        if field.name not in ("series", "events", "decide_s", "asked"):
            np.testing.assert_array_equal(getattr(leapt, field.name), getattr(plain, field.name), field.name)


@pytest.mark.parametrize("name", POLICIES)
@given(
    seed=st.integers(0, 1000),
    count=st.integers(1, 6),
    come_and_go=st.booleans(),
    shared=st.booleans(),
    delays=st.sampled_from([(0.0001, 0.0002, 0.0002), (0.0, 0.0, 0.0), (0.03, 0.02, 0.04), (0.15, 0.0, 0.2)]),
    burst_s=st.sampled_from([0.0, 0.03]),
    record=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_passes_equal_periods_one_by_one(name, seed, count, come_and_go, shared, delays, burst_s, record):
    delay_s, jitter_s, write_s = delays
    on = machine(
        telemetry_delay_s=delay_s,
        telemetry_jitter_s=jitter_s,
        quota_write_delay_s=write_s,
        oom_grant_delay_s=0.0003,
        reclaim_delay_s=0.001,
        restart_s=0.8,
        burst_s=burst_s,
    )
    workload = load(seed, 150, count, come_and_go=come_and_go, shared=shared)
    with pytest.MonkeyPatch.context() as patch:
        assert_equal(*both(patch, workload, POLICIES[name], on, record=record))


@given(
    seed=st.integers(0, 1000),
    count=st.integers(1, 8),
    come_and_go=st.booleans(),
    shared=st.booleans(),
    room=st.sampled_from([0.35, 0.45, 1.0]),
    every_s=st.sampled_from([0.05, 0.3, 1.0]),
    margin=st.sampled_from([2 * MIB, 50 * MIB]),
    delays=st.sampled_from([(0.0003, 0.001), (0.0003, 0.15), (0.0, 0.0), (0.001, 0.001), (0.12, 0.05)]),
    network_s=st.sampled_from([0.0, 0.0, 0.0, 0.002]),
)
@settings(max_examples=40, deadline=None)
def test_sweeps_grants_and_kills_come_as_period_by_period(
    seed, count, come_and_go, shared, room, every_s, margin, delays, network_s
):
    on = machine(
        telemetry_delay_s=0.0001,
        telemetry_jitter_s=0.0002,
        quota_write_delay_s=0.0002,
        oom_grant_delay_s=delays[0],
        reclaim_delay_s=delays[1],
        network_delay_s=network_s,
        restart_s=0.8,
    )
    workload = load(seed, 300, count, come_and_go=come_and_go, shared=shared)
    apps = tuple(
        replace(app, memory_limit_bytes=int(app.memory_limit_bytes * room)) for app in workload.applications
    )
    rule = EscraSettings(reclaim_interval_s=every_s, reclaim_margin_bytes=margin)
    with pytest.MonkeyPatch.context() as patch:
        assert_equal(*both(patch, replace(workload, applications=apps), lambda: Escra(rule), on))


def test_passes_go_on_over_sweeps_and_grants(monkeypatch):
    """Otherwise the test above would compare a thing with itself."""
    workload = load(1, 600, 3, come_and_go=False, shared=False)
    on = machine(telemetry_delay_s=0.0001, oom_grant_delay_s=0.0003, reclaim_delay_s=0.001)
    leapt, plain = both(monkeypatch, workload, POLICIES["escra"], on)
    assert {"oom", "grant", "reclaim"} <= set(plain.events.kind)
    assert leapt.asked < plain.asked / 20


def test_passes_begin_where_a_container_is_at_its_limit(monkeypatch):
    """In a large fleet, some container is at the end of nearly every period."""
    workload = load(1, 600, 3, come_and_go=False, shared=False)
    growing = workload.memory_bytes + (20 * MIB * np.arange(600))[:, None]
    apps = tuple(replace(app, memory_limit_bytes=1 << 40) for app in workload.applications)
    workload = replace(workload, memory_bytes=growing, applications=apps)
    rule = EscraSettings(initial_memory=0.0)
    on = machine(telemetry_delay_s=0.0001, oom_grant_delay_s=0.0003, reclaim_delay_s=0.001)
    leapt, plain = both(monkeypatch, workload, lambda: Escra(rule), on)
    assert_equal(leapt, plain)
    assert plain.events.kind.count("oom") > 600
    assert leapt.asked < plain.asked / 20


@pytest.mark.parametrize("name", ["escra", "static", "vpa", "autopilot", "autothrottle", "own"])
def test_the_policies_that_ship_leap(monkeypatch, name):
    """Otherwise the test above would compare a thing with itself."""
    workload = load(1, 600, 3, come_and_go=False, shared=False)
    workload = replace(workload, memory_bytes=np.full_like(workload.memory_bytes, MIB))
    leapt, plain = both(monkeypatch, workload, POLICIES[name], machine(telemetry_delay_s=0.001))
    assert leapt.asked < plain.asked / 3


def test_requests_in_force_are_recorded_in_passes(monkeypatch):
    workload = load(1, 200, 3, come_and_go=False, shared=False)
    from control.allocator.model import History

    profile = History(workload.demand_cores, workload.memory_bytes, PERIOD_S)
    leapt, plain = both(
        monkeypatch, workload, lambda: RequestsOnly(RequestsOnlySettings()), machine(), profile=profile
    )
    assert_equal(leapt, plain)
    assert leapt.asked < plain.asked


def test_quotas_are_summed_as_they_are_recorded(monkeypatch):
    workload = load(5, 300, 4, come_and_go=True, shared=False)
    policy, on = POLICIES["vpa"], machine(telemetry_delay_s=0.001)
    series = both(monkeypatch, workload, policy, on)[0].series
    held = np.where(np.isnan(series.request_cores), workload.host_cores, series.request_cores)
    quota = np.where(np.isfinite(series.quota_cores), series.quota_cores, held)
    summed = np.where(series.up, quota, 0).sum(axis=0, dtype=np.float64)
    assert both(monkeypatch, workload, policy, on, record=False)[0].reserved_cores.tolist() == summed.tolist()


@given(now=st.integers(1, 50), after=st.integers(0, 50_000))
def test_an_instant_is_reached_to_the_bit_from_any_other(now, after):
    now_s, at_s = now * 0.1, (now + after) * 0.1
    reached_s = now_s
    for delay_s in delays_until(at_s, now_s):
        assert delay_s >= 0.0
        reached_s += delay_s
    assert reached_s == at_s
