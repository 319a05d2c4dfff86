"""The choices of FC²'s Scala-Opt in its experiments F1–F4, and their cost against Time-Opt's.

For: the experiments' figures, and `use_bps`: the rate at which a worker with FC²'s network uses a parameter
server's port on each EC2 type. This is b_t of Scala-Opt, which the source measured and does not print. Not
for: the rules (control.recommender.fc2), nor any other network. Source: FC² (Ta, Cluster Computing 22, 2019)
§8: types, server and cap.

The network is TensorFlow's CIFAR-10 tutorial (that of cuda-convnet, as FC² names it): 1,068,298 parameters
and 19.5 million multiply-adds per image; a training step is three times those. The network's size is from
memory. GPUs: batch latencies of a network of nearly the same size (CIFAR10_CNN, 32 px) on the same GPUs, from
PROFET (CLOUD 2022, MIT). CPUs: the peak of AVX2 cores at the clock that follows from their ECU, times the
share of the peak that such a network reached on one core (measured with PyTorch on an EPYC core at 2.6 GHz,
2026-11-21: 44.2 GFLOP/s at batch 64, 48.8 at 128). No number here is fitted to FC²'s figures. But FC²'s
counts were known when the form was chosen among a few that physics allows (both directions of a port or one,
the clocks of burstable types), so F1–F4 are no blind test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from control.recommender import fc2
from traces.catalogue.catalogue import Listing
from twin.cloud.performance import (
    BYTES_PER_PARAMETER,
    Work,
    asynchronous_steps_per_s,
    compute_s,
    server_s,
    server_traffic_bps,
    step_s,
    work_of,
)
from twinbed import ScenarioError

REGION = "ap-southeast-1"
PRICES = Path(__file__).with_name("fc2_2017.csv")
"""FC²'s types at the prices of 2017, with the network rates that it saw."""
CAP = 6
"""Most workers in every experiment of FC² (§8)."""

_IMAGES = 1e6
PARAMETERS = 1_068_298
OPERATIONS_PER_IMAGE = 3 * 2 * 19.5e6
"""Forward once, backward twice; two operations per multiply-add."""

AVX2_OPERATIONS_PER_CYCLE = 32
"""Two fused multiply-adds of eight 32-bit floats: Haswell, Broadwell and the EPYC that was measured."""

REACHED = {
    64: 44.2e9 / (2.596e9 * AVX2_OPERATIONS_PER_CYCLE),
    128: 48.8e9 / (2.596e9 * AVX2_OPERATIONS_PER_CYCLE),
}
"""Measured share of a core's peak by batch size. Larger batches reach the share of 128."""

VCPUS_PER_CORE = 2
CLOCK_HZ_PER_ECU = 2.9e9 / 4
"""c4 has 4 ECU per vCPU at 2.9 GHz (Amazon's figures)."""

BURST_CLOCK_HZ = 3.0e9
"""Clock of t2, which has no ECU. Assumption: a core that has credits runs at its usual turbo clock."""

GPU_LATENCIES_S = {
    "NVIDIA K80": {16: 0.0098, 32: 0.0113, 64: 0.0154, 128: 0.0246, 256: 0.0416},
    "NVIDIA M60": {16: 0.0037, 32: 0.0051, 64: 0.0075, 128: 0.0125, 256: 0.0214},
}
"""Medians of nine runs on p2.xlarge and g3s.xlarge, by GPU and batch size (PROFET, MIT)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One experiment of FC² at a batch size.

    types: worker types to choose from.
    server: type of the parameter server.
    batch: samples per worker and step.
    source: type and number of workers that the source's Scala-Opt chose.
    """

    experiment: str
    types: tuple[str, ...]
    server: str
    batch: int
    source: tuple[str, int]


CPU = ("m4.xlarge", "t2.xlarge", "c4.xlarge")
HIGH = ("g3.4xlarge", "p2.xlarge", "c4.8xlarge")
CHOICES = (
    Choice("F1", CPU, "m4.large", 64, ("t2.xlarge", 2)),
    Choice("F1", CPU, "m4.large", 128, ("t2.xlarge", 3)),
    Choice("F2", (*CPU, "p2.xlarge"), "m4.large", 128, ("p2.xlarge", 2)),
    Choice("F2", (*CPU, "p2.xlarge"), "m4.large", 512, ("p2.xlarge", 3)),
    Choice("F2", (*CPU, "p2.xlarge"), "m4.large", 1280, ("p2.xlarge", 5)),
    Choice("F3", HIGH, "m4.2xlarge", 128, ("g3.4xlarge", 2)),
    Choice("F3", HIGH, "m4.2xlarge", 512, ("g3.4xlarge", 4)),
    Choice("F4", HIGH, "m4.10xlarge", 128, ("g3.4xlarge", 6)),
    Choice("F4", HIGH, "m4.10xlarge", 512, ("g3.4xlarge", 6)),
)


def plan(rule: fc2.Rule, row: Choice, listings: Mapping[str, Listing]) -> fc2.Plan:
    """Return the plan that the rule takes."""
    host = listings[row.server]
    workers = [
        fc2.Worker(name, listings[name].price_usd_h, use_bps(listings[name], row.batch, host.network_bps))
        for name in row.types
    ]
    return fc2.plan(rule, workers, fc2.Server(host.name, host.price_usd_h, host.network_bps), cap=CAP)


def figures(row: Choice, listings: Mapping[str, Listing]) -> dict[str, float]:
    """Return the figures of a row by name.

    type, choice, as_cost_opt: 1 where the type is the source's, where the count is, too, and where the choice
    is Cost-Opt's; else 0. count: workers. cost, time: percent against Time-Opt. time_opt_cost, time_opt_time:
    Time-Opt against the choice.
    """
    ours, dearest, cheapest = (
        plan(rule, row, listings) for rule in (fc2.Rule.SCALE, fc2.Rule.TIME, fc2.Rule.COST)
    )
    bandwidth = listings[row.server].network_bps
    time_s, base_s = (
        run_s(listings[chosen.worker], row.batch, chosen.count, bandwidth, _IMAGES)
        for chosen in (ours, dearest)
    )
    cost = time_s * ours.price_usd_h / (base_s * dearest.price_usd_h)
    return {
        "type": float(ours.worker == row.source[0]),
        "choice": float((ours.worker, ours.count) == row.source),
        "count": float(ours.count),
        "cost": 100 * (cost - 1),
        "time": 100 * (time_s / base_s - 1),
        "time_opt_cost": 100 * (1 / cost - 1),
        "time_opt_time": 100 * (base_s / time_s - 1),
        "as_cost_opt": float((ours.worker, ours.count) == (cheapest.worker, cheapest.count)),
    }


def work(listing: Listing, batch: int) -> Work:
    """Return one worker's step on a type. Raises ScenarioError for a GPU without measured latencies."""
    size = PARAMETERS * BYTES_PER_PARAMETER
    if listing.gpus:
        if listing.gpu_model not in GPU_LATENCIES_S:
            known = ", ".join(GPU_LATENCIES_S)
            raise ScenarioError(
                f"{listing.name}: no latency of {listing.gpu_model} is known, only of {known}"
            )
        latencies = GPU_LATENCIES_S[listing.gpu_model]
        return work_of(list(latencies.values()), list(latencies), PARAMETERS)
    clock = BURST_CLOCK_HZ if np.isnan(listing.cpu_speed) else listing.cpu_speed * CLOCK_HZ_PER_ECU
    peak = listing.vcpus / VCPUS_PER_CORE * clock * AVX2_OPERATIONS_PER_CYCLE
    return Work(0.0, OPERATIONS_PER_IMAGE / (peak * REACHED[64 if batch < 128 else 128]), size)


def use_bps(listing: Listing, batch: int, server_bps: float) -> float:
    """Return the rate at which one worker uses the port of a server of its own, bit/s, as FC² measures it."""
    step = work(listing, batch)
    return float(server_traffic_bps(_alone_s(listing, step, batch, server_bps), step.bytes))


def run_s(listing: Listing, batch: int, workers: int, server_bps: float, images: float) -> float:
    """Return the time to process `images` images with asynchronous workers that share a server's port, s."""
    step = work(listing, batch)
    alone = _alone_s(listing, step, batch, server_bps)
    return float(images / batch / asynchronous_steps_per_s(alone, step.bytes, workers, server_bps))


def _alone_s(listing: Listing, step: Work, batch: int, server_bps: float) -> NDArray[np.float64]:
    return step_s(compute_s(step, batch), server_s(step.bytes, 1, listing.network_bps, server_bps))
