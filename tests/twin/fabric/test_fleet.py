"""A fleet's weeks: where the time goes, by hand for single faults, and the bill that must always add up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.fabric import FaultKind
from lab.runs.compare import mean_ci95
from twin.fabric import checkpoints
from twin.fabric.checkpoints import Checkpointing, expected_ratio
from twin.fabric.fleet import simulate
from twin.fabric.fleet_model import Cause, FleetOutcome, FleetSpec
from twin.fabric.model import Delay, QueuePair
from twin.fabric.port_failover import PortFailover
from twin.fabric.topology import dual_tor
from twin.fabric.transports import Rdma, Reconnecting
from twinbed import ScenarioError

HOUR_S, DAY_S = 3600.0, 86400.0
INF = np.full((1, 2), np.inf)


def fleet(uplinks: int = 2, rows: int = 32, **given: Any) -> FleetSpec:
    plain = FleetSpec(
        topology=dual_tor(rows, tors=rows // 8 * uplinks, uplinks=uplinks, nics=uplinks, spines=1),
        rows_per_host=8,
        gpus_per_host=8,
        spares=1,
        duration_s=2 * DAY_S,
        iteration_s=np.array([np.inf, *np.linspace(6.0, 8.0, uplinks)[::-1]]),
        jitter_cv=0.0,
        busy=np.array([[0.0, 1.0]]),
        flows=8,
        causes=(),
        gaps_s=np.full((1, 2), 0.2) if uplinks > 1 else INF,
        transport=Rdma(QueuePair(timeout=14)),
        checkpointing=Checkpointing(600.0, 12.0, 30.0, 60.0),
    )
    return replace(plain, **given)


def cause(kind: FaultKind | None, per_day: float, repair_s: float = HOUR_S) -> Cause:
    """per_day: faults a day of one component."""
    return Cause(str(kind), kind, per_day / DAY_S, Delay(repair_s, repair_s))


def run(spec: FleetSpec, seed: int = 1) -> FleetOutcome:
    return simulate(spec, np.random.SeedSequence(seed))


def test_without_faults_only_saves_cost_time() -> None:
    out = run(fleet())
    # 100 iterations of 6 s, then 12 s of saving.
    assert out.effective_ratio == pytest.approx(600 / 612, abs=1e-3)
    assert out.bill.saving_s == pytest.approx(out.duration_s * 12 / 612, abs=13)
    assert np.all(out.iteration_s == 6.0)
    assert (out.deaths, len(out.fault_at_s), out.gpus) == (0, 0, 32)


def test_a_redundant_edge_pays_a_stall_and_a_slower_pace_until_the_repair() -> None:
    out = run(fleet(causes=(cause(FaultKind.LINK, 0.1),)))
    stall_s = float(Rdma(QueuePair(timeout=14)).stall_s(np.array([0.2]))[0])
    assert out.deaths == 0
    assert len(out.fault_at_s) > 5
    assert out.bill.stalled_s > 0
    assert set(np.round(out.fault_stall_s, 6)) <= {0.0, round(stall_s, 6)}
    # An hour's iterations of 8 s instead of 6 s for each repair, unless they overlap.
    assert 0 < out.bill.degraded_s <= len(out.fault_at_s) * HOUR_S * 0.25 + 10
    assert out.bill.lost_s == out.bill.down_s == 0.0


def test_a_single_uplink_dies_of_the_same_faults_and_comes_back_on_a_spare() -> None:
    out = run(fleet(uplinks=1, spares=100, causes=(cause(FaultKind.LINK, 0.1),)))
    assert out.deaths == np.isinf(out.fault_stall_s).sum() > 0
    assert np.isnan(out.fault_stall_s).sum() + out.deaths == len(out.fault_at_s)
    assert out.bill.down_s == pytest.approx(out.deaths * 90.0, rel=0.3)
    assert 0 < out.bill.lost_s <= out.deaths * 700


def test_without_a_spare_the_job_waits_for_the_repair() -> None:
    quick = run(fleet(uplinks=1, spares=100, causes=(cause(FaultKind.LINK, 0.02),)))
    waits = run(fleet(uplinks=1, spares=0, causes=(cause(FaultKind.LINK, 0.02),)))
    assert waits.deaths == quick.deaths > 0
    assert waits.bill.down_s >= quick.bill.down_s + (HOUR_S - 90) * (waits.deaths - 1)


def test_a_flap_shorter_than_the_queue_pair_s_patience_kills_nobody() -> None:
    flaps = cause(FaultKind.LINK, 0.3, repair_s=0.2)
    assert run(fleet(uplinks=1, causes=(flaps,))).deaths == 0
    assert run(fleet(uplinks=1, causes=(replace(flaps, repair=Delay(5.0, 5.0)),))).deaths > 0


def test_an_adapter_that_carries_all_uplinks_is_no_redundancy() -> None:
    nic = cause(FaultKind.NIC, 0.05)
    one = fleet(topology=dual_tor(32, tors=8, uplinks=2, nics=1, spines=1), causes=(nic,))
    assert run(one).deaths > 0
    assert run(fleet(causes=(nic,))).deaths == 0


def test_a_library_moves_nothing_off_an_adapter_that_lost_all_its_ports() -> None:
    spec = fleet(
        topology=dual_tor(32, tors=8, uplinks=2, nics=1, spines=1),
        gaps_s=INF,
        flows=1 << 10,
        transport=Rdma(QueuePair(timeout=14), library=PortFailover()),
    )
    nic, cable = cause(FaultKind.NIC, 0.05), cause(FaultKind.LINK, 0.05)
    dead = run(replace(spec, causes=(nic,)))
    assert dead.deaths > 0
    assert not np.isfinite(dead.fault_stall_s).any()
    moved = run(replace(spec, causes=(cable,)))
    assert len(moved.fault_at_s) > moved.deaths == 0


def test_a_tor_takes_all_its_hosts_down_or_slows_them() -> None:
    tor = cause(FaultKind.TOR, 0.5)
    assert run(fleet(causes=(tor,))).deaths == 0
    alone = run(fleet(uplinks=1, spares=0, causes=(tor,)))
    assert alone.deaths > 0
    assert alone.bill.down_s >= (alone.deaths - 1) * HOUR_S


def test_rebuilding_a_communicator_adds_its_gap() -> None:
    link = cause(FaultKind.LINK, 0.05)
    out = run(fleet(gaps_s=np.full((1, 2), 40.0), transport=Reconnecting(), causes=(link,)))
    assert out.deaths == 0
    assert out.fault_stall_s.max() == 40.0


def test_a_gap_while_the_network_is_idle_is_not_noticed() -> None:
    spec = fleet(causes=(cause(FaultKind.LINK, 0.3),), gaps_s=np.full((1, 2), 0.3), flows=64)
    busy, idle = run(spec), run(replace(spec, busy=np.array([[0.9, 1.0]])))
    assert len(busy.fault_at_s) == len(idle.fault_at_s)
    assert idle.bill.stalled_s < 0.6 * busy.bill.stalled_s


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    uplinks=st.sampled_from([1, 2]),
    per_day=st.floats(0.01, 1.0),
    spares=st.integers(0, 3),
    interval_s=st.floats(10.0, 7200.0),
    jitter_cv=st.sampled_from([0.0, 0.1]),
)
def test_the_bill_adds_up(
    seed: int, uplinks: int, per_day: float, spares: int, interval_s: float, jitter_cv: float
) -> None:
    causes = tuple(cause(kind, per_day) for kind in (FaultKind.LINK, FaultKind.NIC, FaultKind.TOR, None))
    saves = Checkpointing(interval_s, 12.0, 30.0, 60.0)
    spec = fleet(uplinks=uplinks, spares=spares, jitter_cv=jitter_cv, causes=causes, checkpointing=saves)
    out = run(spec, seed)
    assert sum(astuple(out.bill)) == pytest.approx(out.duration_s)
    assert min(astuple(replace(out.bill, jitter_s=0.0))) >= -1e-6
    assert out.bill.ideal_s == pytest.approx(out.iterations * 6.0)
    assert out.iterations <= len(out.iteration_s)
    assert np.all(np.diff(out.fault_at_s) >= 0)


def test_the_same_seed_gives_the_same_to_the_bit() -> None:
    spec = fleet(jitter_cv=0.05, causes=(cause(FaultKind.LINK, 0.1), cause(None, 0.2)))
    one, again, other = run(spec, 3), run(spec, 3), run(spec, 4)
    assert np.array_equal(one.iteration_s, again.iteration_s)
    assert one.bill == again.bill
    assert one.bill != other.bill


@pytest.mark.slow
def test_it_agrees_with_daly_where_daly_holds() -> None:
    """Hosts that die and are replaced at once: one Poisson process of deaths, iterations short."""
    how = Checkpointing(900.0, 30.0, 30.0, 60.0)
    mtbf_s = 5400.0
    spec = fleet(
        uplinks=1,
        spares=10_000,
        iteration_s=np.array([np.inf, 10.0]),
        duration_s=60 * DAY_S,
        causes=(cause(None, DAY_S / mtbf_s / 4),),
        checkpointing=how,
    )
    mean, half = mean_ci95(np.array([run(spec, seed).effective_ratio for seed in range(6)]))
    assert half < 0.01
    assert mean == pytest.approx(expected_ratio(how, mtbf_s), abs=2 * half)


def test_it_agrees_with_the_walk_through_the_same_deaths() -> None:
    spec = fleet(uplinks=1, spares=1000, causes=(cause(None, 1.0),), iteration_s=np.array([np.inf, 1.0]))
    out = run(spec)
    # The walk's deaths are those of a job that runs or starts; both know the same ones.
    lives = checkpoints.run(
        spec.checkpointing, np.inf, out.fault_at_s, out.fault_at_s, until_s=spec.duration_s
    )
    walked_s = lives.kept_s.sum() + lives.lost_s[-1]  # at the end nothing is lost yet
    assert out.bill.ideal_s == pytest.approx(walked_s, rel=0.02)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda: fleet(rows_per_host=7), "no whole hosts"),
        (lambda: fleet(iteration_s=np.array([np.inf, 6.0])), "iteration_s has 2 values"),
        (lambda: fleet(gaps_s=np.zeros(3)), "rows of"),
        (lambda: fleet(busy=np.array([[0.5, 1.2]])), "busy"),
        (lambda: fleet(causes=(cause(None, -1.0),)), "per_s"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused(change: Callable[[], FleetSpec], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        change()
