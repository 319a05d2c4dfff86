"""Time of a training step and of a job on a cluster, from sizes and speeds: no measurement of that cluster.

For: a job that was run on one machine (its compute per sample, its parameters), on instances whose speed
and network are known: what a recommender ranks before any probe, and FC²'s experiments. Not for: clusters on
which other jobs were measured (scaling.py learns from them), nor prices (pricing.py). All arrays broadcast.
Source: ring all-reduce and its α–β cost: Thakur, Rabenseifner and Gropp 2005; parameter server with a shared
network port: FC² §5.2.4 and spotDNN (IWQoS 2023); stragglers: order statistics of log-normal steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twinbed import ScenarioError

Real = NDArray[np.float64]

BYTES_PER_PARAMETER = 4
"""Gradients and parameters travel as 32-bit floats in PyTorch's DDP and TensorFlow's parameter servers."""
BITS = 8


@dataclass(frozen=True, slots=True)
class Work:
    """What one step of a job asks of any machine.

    fixed_s, per_sample_s: of one step and one of its samples at speed 1, on the machine of the local run;
    bytes: of all parameters, exchanged once per step in each direction; input_s: to read and prepare one
    sample, hidden behind compute unless it is longer; jitter: standard deviation of the log of a step.
    """

    fixed_s: float
    per_sample_s: float
    bytes: float
    input_s: float = 0.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        for name in ("fixed_s", "per_sample_s", "bytes", "input_s", "jitter"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ScenarioError(f"work: {name} is {getattr(self, name)}; it is a number of at least zero")


def work_of(step_s: ArrayLike, batch: ArrayLike, parameters: int, jitter: float = 0.0) -> Work:
    """Work from a local run's step times at one or more batch sizes (a straight line, neither part negative).

    One batch size alone leaves nothing fixed. Raises ScenarioError on a time or batch that is not positive.
    """
    times, sizes = np.atleast_1d(np.asarray(step_s, np.float64)), np.atleast_1d(np.asarray(batch, np.float64))
    if not (np.isfinite(times).all() and (times > 0).all() and (sizes > 0).all()):
        raise ScenarioError("local run: step times and batch sizes must be above zero; record it anew")
    slope = float(np.median(times / sizes))
    fixed = 0.0
    if np.unique(sizes).size > 1:
        centred = sizes - sizes.mean()
        slope = max(0.0, float(centred @ times / (centred @ centred)))
        fixed = float(times.mean() - slope * sizes.mean())
        if fixed < 0:
            fixed, slope = 0.0, float(sizes @ times / (sizes @ sizes))
    return Work(fixed, slope, parameters * BYTES_PER_PARAMETER, jitter=jitter)


def compute_s(work: Work, batch: ArrayLike, speed: ArrayLike = 1.0) -> Real:
    """Seconds of compute in one worker's step; speed: relative to the machine of the local run.

    The input pipeline runs beside it, at the CPU's own speed, and is what counts where it is the longer.
    """
    samples = np.asarray(batch, np.float64)
    machine = (work.fixed_s + work.per_sample_s * samples) / np.asarray(speed, np.float64)
    found: Real = np.maximum(machine, work.input_s * samples)
    return found


def ring_s(size_bytes: ArrayLike, workers: ArrayLike, network_bps: ArrayLike, latency_s: float = 0.0) -> Real:
    """Ring all-reduce: 2(n − 1) messages of 1/n of the bytes through the slowest port; 0 if n = 1."""
    n = np.asarray(workers, np.float64)
    bits = np.asarray(size_bytes, np.float64) * BITS
    found: Real = 2 * (n - 1) * (bits / (n * np.asarray(network_bps)) + latency_s)
    return found


def server_s(
    size_bytes: ArrayLike,
    workers: ArrayLike,
    worker_bps: ArrayLike,
    server_bps: ArrayLike,
    servers: ArrayLike = 1,
) -> Real:
    """Parameter servers, synchronous: every worker pushes and pulls all parameters; ports are shared.

    A port sends and receives at once (full duplex), but a pull follows its push: 2 × bytes at the rate of
    the worker's own port or its share of the servers', whichever is less.
    """
    share = np.asarray(server_bps, np.float64) * np.asarray(servers) / np.asarray(workers)
    found: Real = 2 * np.asarray(size_bytes, np.float64) * BITS / np.minimum(np.asarray(worker_bps), share)
    return found


def slowest(workers: ArrayLike, jitter: float) -> Real:
    """Expected longest of n log-normal steps over the median one (Blom's normal order statistic).

    Source: Blom 1958; below 2 % off for jitter ≤ 0.2 and n ≤ 64 (a test compares with drawn samples).
    """
    n = np.asarray(workers, np.float64)
    found: Real = np.exp(jitter * _normal_quantile((n - 0.375) / (n + 0.25)))
    return found


def _normal_quantile(share: Real) -> Real:
    """Inverse of the normal distribution function: Abramowitz and Stegun 26.2.23, error below 4.5e-4."""
    tail = np.sqrt(-2 * np.log(np.minimum(share, 1 - share)))
    top = 2.515517 + tail * (0.802853 + tail * 0.010328)
    bottom = 1 + tail * (1.432788 + tail * (0.189269 + tail * 0.001308))
    found: Real = np.sign(share - 0.5) * (tail - top / bottom)
    return found


def step_s(computing_s: ArrayLike, synchronising_s: ArrayLike, overlap: float = 1.0) -> Real:
    """One step: (compute^γ + sync^γ)^(1/γ); γ = 1 hides nothing, large γ hides the shorter (Pollux §3.2)."""
    a, b = np.asarray(computing_s, np.float64), np.asarray(synchronising_s, np.float64)
    found: Real = (a**overlap + b**overlap) ** (1 / overlap)
    return found


def asynchronous_steps_per_s(
    worker_step_s: ArrayLike,
    size_bytes: float,
    workers: ArrayLike,
    server_bps: ArrayLike,
) -> Real:
    """Steps per second of all workers, asynchronous: theirs, or as many as the server's port carries.

    worker_step_s: one worker's step with a server of its own (compute and exchange).
    """
    alone = np.asarray(workers, np.float64) / np.asarray(worker_step_s)
    carried = np.asarray(server_bps, np.float64) / (size_bytes * BITS)
    found: Real = np.minimum(alone, carried)
    return found


def server_traffic_bps(worker_step_s: ArrayLike, size_bytes: float) -> Real:
    """What one worker takes of its server's port in one direction (FC²'s b_t), bit/s.

    A port is full duplex: its capacity holds for each direction, and as much is pulled as is pushed.
    """
    found: Real = size_bytes * BITS / np.asarray(worker_step_s, np.float64)
    return found


def job_s(steps: ArrayLike, one_step_s: ArrayLike, startup_s: ArrayLike = 0.0) -> Real:
    """Seconds from start to end: start-up of the workers, then the steps."""
    found: Real = np.asarray(startup_s, np.float64) + np.asarray(steps, np.float64) * np.asarray(one_step_s)
    return found
