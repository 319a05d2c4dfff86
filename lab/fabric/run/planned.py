"""A fleet under a plan for failures: effective training time, and GPU-hours and cost by cause.

For: `fleet.plan` of a scenario. Not for: the walk through failures (twin.fabric.planner), nor a fleet's
single iterations (fleet.py). fleet_causes.csv has Llama 3's causes by count (The Llama 3 Herd of Models,
2024, table 5; switches are an assumed fifth of "switch or cable"), and how long ByteRobust's inspection needs
to find each: its time to detect, else its mean time to resolve (code, storage, NaN), else 600 s (arXiv
2509.16293).
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa

from lab.fabric.input import FleetInput, PlanInput
from lab.fabric.run.world import Measured, World
from twin.fabric.failover import gap_samples
from twin.fabric.model import Scheme
from twin.fabric.planner import BINS, NO_PROGRESS, Action, Failure, Loss, Outcome, Plan, Tier, simulate
from twin.fabric.rdma import Link
from twin.fabric.recovery_forms import standby_pool, tier_interval_s
from twin.fabric.transports import Rdma, Reconnecting
from twinbed import ScenarioError

CAUSES = Path(__file__).parents[1] / "fleet_causes.csv"
GPUS_PER_NODE = 8
_DAY_S = 86_400.0
_STALLS = 1024
"""Stalls drawn, from which the simulation draws with replacement."""
_SHOWN = 4
"""Decimals of a share in tables (metrics.csv). A share of training that shows as 0 is no progress."""
_MOST_FAILURES = 1e8
"""Number of failures at which no fleet makes progress. To walk through more takes minutes."""
_EDGE = ("cable", "switch")
_NETWORK = (*_EDGE, "NIC")
_SIZES = np.log2([2048, 4096, 8192, 16384])
_REQUEUE_S, _UPDATE_S = np.array([454.0, 545.0, 635.0, 768.0]), np.array([46.0, 51.0, 54.0, 65.0])
"""ByteRobust's times to requeue a job and to update it in place, s, by GPUs."""


def measure(world: World, asked: FleetInput, plan: PlanInput) -> Measured:
    """Run the plan under the run's scheme. Raises ScenarioError for a job that makes no progress."""
    spec = plan_of(world, asked, plan)
    failures = sum(failure.per_s for failure in spec.failures) * spec.duration_s
    if failures > _MOST_FAILURES:
        raise ScenarioError(f"fabric.fleet.plan.{NO_PROGRESS} (it fails {failures:.0e} times)")
    out = simulate(spec, world.measure)
    if round(out.ettr_queue, _SHOWN) == 0:
        raise ScenarioError(f"fabric.fleet.plan.{NO_PROGRESS} (it trains {out.ettr_queue:.0e} of the time)")
    lost_h = out.gpu_h[1:].sum()
    metrics = {
        "effective_share": out.ettr_queue,
        "effective_run_share": out.ettr,
        "goodput_share": out.ettr_queue / spec.working_share,
        "lost_gpu_h": float(lost_h),
        "lost_cost": float(lost_h) * asked.price_gpu_hour,
        "deaths": float(out.interruptions[:-1].sum()),  # the last entry counts restarts for changes of code
        "checkpoint_interval_s": spec.tiers[-1].interval_s,
        **{f"{name}_gpu_h": float(value) for name, value in zip(BINS, out.gpu_h, strict=True)},
    }
    if metrics["deaths"]:
        metrics["between_deaths_s"] = spec.duration_s / metrics["deaths"]
    bins = {"bin": list(BINS), "gpu_h": out.gpu_h, "cost": out.gpu_h * asked.price_gpu_hour}
    tables = {"bins": pa.table(bins), "causes": _by_cause(spec, out, asked.price_gpu_hour)}
    return Measured(metrics, tables)


def _by_cause(spec: Plan, out: Outcome, price: float) -> pa.Table:
    names = [*(failure.name for failure in spec.failures), "code change"]
    places = [place for place in range(1, len(BINS) - 1) if BINS[place] != "checkpoint"]
    bins = {f"{BINS[place]}_gpu_h": out.by_cause_h[:, place] for place in places}
    lost_h = sum(bins.values())
    columns = {"deaths": out.interruptions, "stalls": out.stalls, **bins, "lost_cost": lost_h * price}
    return pa.table({"cause": pa.array(names), **{key: pa.array(value) for key, value in columns.items()}})


def plan_of(world: World, asked: FleetInput, plan: PlanInput) -> Plan:
    """Return the plan in the twin's terms. Raises ScenarioError if no tier survives everything, and for
    more replica groups than nodes."""
    nodes = asked.gpus // GPUS_PER_NODE
    if plan.replica_groups is not None and plan.replica_groups > nodes:
        raise ScenarioError(
            f"fabric.fleet.plan.replica_groups: {plan.replica_groups} of {nodes} nodes: "
            + (f"give 2 to {nodes}" if nodes > 1 else "a single node has no groups")
        )
    failures = _failures(world, asked, plan, nodes)
    size = float(np.log2(asked.gpus))
    requeue_s = _at_size(size, _REQUEUE_S) if plan.requeue_s is None else plan.requeue_s
    standby_s = requeue_s / plan.standby_gain
    return Plan(
        nodes=nodes,
        gpus_per_node=GPUS_PER_NODE,
        duration_s=asked.days * _DAY_S,
        failures=failures,
        tiers=_with_intervals(plan, failures, asked.days * _DAY_S),
        warm=warm(plan, asked.gpus),
        cold=plan.cold,
        update_s=_at_size(size, _UPDATE_S) if plan.update_s is None else plan.update_s,
        standby_s=standby_s,
        reschedule_s=standby_s * plan.cold_gain,
        requeue_s=requeue_s,
        start_fails=plan.start_fails,
        updates_per_s=plan.updates_per_day / _DAY_S,
    )


def warm(plan: PlanInput, gpus: int) -> int:
    """Return the number of initialised standby nodes of a fleet."""
    return standby_pool(gpus // GPUS_PER_NODE) if plan.warm is None else plan.warm


def _at_size(size: float, known: np.ndarray) -> float:
    """Return ByteRobust's time at log2 of the GPUs, s: below its sizes that of the smallest one, and above
    them by its mean growth per doubling."""
    growth = (known[-1] - known[0]) / (len(known) - 1)
    return float(np.interp(size, _SIZES, known) + growth * max(size - _SIZES[-1], 0.0))


def _failures(world: World, asked: FleetInput, plan: PlanInput, nodes: int) -> tuple[Failure, ...]:
    with CAUSES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    every = sum(int(row["failures"]) for row in rows)
    edge = sum(int(row["failures"]) for row in rows if row["cause"] in _EDGE)
    shares = {"switch": plan.switch_share * edge, "cable": (1 - plan.switch_share) * edge}
    rdma = Rdma(world.fabric.queue_pair, Link(world.fabric.rate_bps), library=world.port_failover)
    single = world.scheme is Scheme.NONE
    stalls_s = () if single else _stalls(world, asked, rdma)
    made = []
    for row in rows:
        name = row["cause"]
        per_s = plan.failures_per_node_day * nodes / _DAY_S * shares.get(name, float(row["failures"])) / every
        # Every adapter has two uplinks, each with a cable and a switch, unless there is no scheme.
        uplinks = 2 if name in _EDGE and not single else 1
        found_s = float(row["detect_s"])
        # Without inspection only a dead network is found sooner, because its queue pairs give up.
        blind_s = rdma.noticed_s if name in _NETWORK else max(plan.undetected_s, found_s)
        detect_s = found_s if plan.inspection else blind_s
        loss, action = Loss[row["loss"].upper()], Action[row["action"].upper()]
        if nodes == 1 and loss is Loss.NODE:
            loss = Loss.PEERS  # a single node has no peer that holds a copy
        stalls = stalls_s if name in _EDGE else ()
        if plan.replica_groups and loss < Loss.PEERS and action is not Action.WAIT:
            # A death ends one group; all other groups wait for it no longer than a step.
            rejoined_s = plan.rejoin_s / plan.replica_groups + asked.iteration_s
            stalls = tuple(stall if stall < np.inf else rejoined_s for stall in stalls or (np.inf,))
        made.append(Failure(name, per_s * uplinks, detect_s, loss, action, asked.repair_s, stalls))
    return tuple(made)


def _stalls(world: World, asked: FleetInput, rdma: Rdma) -> tuple[float, ...]:
    """Return the lengths of the job's stalls for faults of an uplink, s; 0: no connection was on it."""
    random, meeting = world.network.spawn(2)
    handling = world.fabric.handling(world.scheme)
    gaps_s = gap_samples(handling, world.asked.faults.silent, _STALLS, random, down_s=asked.repair_s)
    transport = Reconnecting() if world.scheme is Scheme.REROUTE else rdma
    missed = 0.0 if world.port_failover is not None else 0.5**asked.flows
    met = np.random.default_rng(meeting).random(gaps_s.shape) >= missed
    return tuple(np.where(met, transport.stall_s(gaps_s), 0.0).max(axis=1).tolist())


def _with_intervals(plan: PlanInput, failures: tuple[Failure, ...], duration_s: float) -> tuple[Tier, ...]:
    """Return the tiers by the failures they survive, each with its interval. Of the tiers that survive a
    failure, the one with the shortest save serves it."""
    survives = {tier.name: Loss[tier.survives.upper()] for tier in plan.tiers}
    served = dict.fromkeys(survives, 0.0)
    for failure in failures:
        able = [tier for tier in plan.tiers if survives[tier.name] >= failure.loss]
        if able:
            served[min(able, key=lambda tier: (tier.save_s, tier.restore_s)).name] += failure.deaths_per_s
    made = []
    for tier in sorted(plan.tiers, key=lambda tier: survives[tier.name]):
        rate = served[tier.name]
        best_s = max(tier_interval_s(tier.save_s, rate), 1.0) if rate else duration_s
        interval_s = plan.intervals_s.get(tier.name, best_s)
        made.append(Tier(tier.name, interval_s, tier.save_s, tier.restore_s, survives[tier.name]))
    return tuple(made)
