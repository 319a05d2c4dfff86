"""Measures a training fleet over weeks: the share of time that faults leave for training, and their cost.

For: the measurement behind the fleet's economics. Not for: the fleet itself (twin.fabric.fleet). Failure
rates of parts are published (traces.fault_rates). How long a path is lost comes from the same failover as in
every other measurement.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from control.fabric import FaultKind
from lab.fabric.input import FleetInput
from lab.fabric.run import planned
from lab.fabric.run.world import Measured, World
from traces.fault_rates import FLEETS, per_gpu_s
from twin.fabric.checkpoints import Checkpointing, daly_s
from twin.fabric.failover import gap_samples
from twin.fabric.fleet import simulate
from twin.fabric.fleet_model import Cause, FleetSpec
from twin.fabric.model import Delay, Scheme
from twin.fabric.rdma import Link
from twin.fabric.topology import dual_tor
from twin.fabric.transports import Rdma, Reconnecting
from twinbed import ScenarioError

_GAPS = 4096
"""Number of gaps drawn, from which the simulation draws with replacement."""
_ALWAYS = np.array([[0.0, 1.0]])
"""Shares of an iteration in which flows are on the network. Always is an upper bound."""

_GPUS_PER_HOST = 8
_ATTACHMENTS_PER_TOR = 32
"""Adapters of one uplink at a ToR."""
_DAY_S = 86_400.0
_STRIPED = 1 << 10
"""Number of connections of an adapter at which each uplink certainly has one."""
_MOST_ITERATIONS = 1 << 27
"""Largest number of iterations whose lengths are kept, 8 bytes each."""


def measure(world: World, asked: FleetInput) -> Measured:
    """Run the fleet under the run's scheme. An adapter has one uplink without a scheme, else two to different
    ToRs."""
    if asked.plan is not None:
        return planned.measure(world, asked, asked.plan)
    spec = _spec(world, asked)
    out = simulate(spec, world.measure)
    spare_h = asked.spares * _GPUS_PER_HOST * spec.duration_s / 3600
    lost_h = spare_h + out.gpus * spec.duration_s / 3600 - out.kept_gpu_hours
    at_edge = np.array([cause.kind is not None for cause in spec.causes])
    metrics = {
        "effective_share": out.effective_ratio,
        "productive_gpu_h": out.kept_gpu_hours,
        "idle_spare_gpu_h": spare_h,
        "lost_gpu_h": lost_h,
        "lost_cost": lost_h * asked.price_gpu_hour,
        "deaths": float(out.deaths),
        "edge_faults": float(at_edge[out.fault_cause].sum()),
        "checkpoint_interval_s": spec.checkpointing.interval_s,
    }
    causes = np.array([cause.name for cause in spec.causes])
    faults = pa.table(
        {
            "at_s": pa.array(out.fault_at_s),
            "duration_s": pa.array(out.fault_stall_s),
            "cause": pa.array(causes[out.fault_cause]),
        }
    )
    return Measured(metrics, {"series": faults})


def _spec(world: World, asked: FleetInput) -> FleetSpec:
    uplinks = 1 if world.scheme is Scheme.NONE else 2
    groups = max(asked.gpus // (_ATTACHMENTS_PER_TOR * uplinks), 1)
    topology = dual_tor(
        asked.gpus,
        tors=groups * uplinks,
        uplinks=uplinks,
        rate_bps=world.fabric.rate_bps,
        delay_s=world.fabric.delay_s,
        spines=1,
    )
    repair = Delay(asked.repair_s, asked.repair_s)
    link, nic, host = (per_gpu_s(FLEETS[asked.rates], part) for part in ("link", "nic", "other"))
    causes = (
        Cause("cable", FaultKind.LINK, link, repair),
        Cause("adapter", FaultKind.NIC, nic, repair),
        Cause("host", None, host * _GPUS_PER_HOST, repair),
    )
    hosts = asked.gpus // _GPUS_PER_HOST
    # A lost adapter loses all its uplinks, so no scheme saves a job from it.
    fatal_per_s = hosts * host * _GPUS_PER_HOST + asked.gpus * (nic + (link if uplinks == 1 else 0.0))
    rdma = Rdma(world.fabric.queue_pair, Link(world.fabric.rate_bps), library=world.port_failover)
    if asked.checkpoint_interval_s is None and not asked.save_s:
        raise ScenarioError(
            "fabric.fleet.save_s: 0 has no best interval between saves: give checkpoint_interval_s"
        )
    if (iterations := asked.days * _DAY_S / asked.iteration_s) > _MOST_ITERATIONS:
        raise ScenarioError(
            f"fabric.fleet.iteration_s: {iterations:.2g} iterations in {asked.days:g} days, at most "
            f"{_MOST_ITERATIONS:,}: give fewer days, or a plan"
        )
    interval_s = asked.checkpoint_interval_s or daly_s(asked.save_s, 1 / fatal_per_s)
    rerouted = world.scheme is Scheme.REROUTE
    healthy_s, degraded_s = asked.iteration_s, asked.degraded_iteration_s or asked.iteration_s
    return FleetSpec(
        topology=topology,
        rows_per_host=_GPUS_PER_HOST,
        gpus_per_host=_GPUS_PER_HOST,
        spares=asked.spares,
        duration_s=asked.days * _DAY_S,
        iteration_s=np.array([np.inf, *([degraded_s] * (uplinks - 1)), healthy_s]),
        jitter_cv=asked.jitter_cv,
        busy=_ALWAYS,
        # NCCL stripes a message over all ports, so each fault of a port meets it.
        flows=asked.flows if world.port_failover is None else _STRIPED,
        causes=causes,
        gaps_s=gap_samples(
            world.fabric.handling(world.scheme), world.asked.faults.silent, _GAPS, world.network
        ),
        transport=Reconnecting() if rerouted else rdma,
        checkpointing=Checkpointing(interval_s, asked.save_s, rdma.noticed_s, asked.init_s),
    )
