"""Time of a training step and of a job on a cluster, from sizes and speeds, without measurements on it.

For: a job whose compute per sample and parameters are known from a run on one machine, on instances whose
speed and network are known. Not for: clusters on which other jobs were measured (scaling.py learns from
them), nor prices (pricing.py). All arrays broadcast. Sources: ring all-reduce: Thakur, Rabenseifner and Gropp
2005; parameter servers that share a network port: FC² §5.2.4 and spotDNN (IWQoS 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from control.jobs import Real
from twinbed import ScenarioError

BYTES_PER_PARAMETER = 4
"""Bytes per parameter on the network: PyTorch's DDP and TensorFlow's parameter servers send 32-bit floats."""
BITS = 8


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one step of a job.

    fixed_s: compute time of a step that does not depend on the batch, s, on the machine of the local run.
    per_sample_s: compute time of a sample, s, on that machine. bytes: size of all parameters, exchanged once
    per step in each direction.
    """

    fixed_s: float
    per_sample_s: float
    bytes: float

    def __post_init__(self) -> None:
        for name in ("fixed_s", "per_sample_s", "bytes"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ScenarioError(f"work: {name} is {getattr(self, name)}; it is a number of at least zero")


def work_of(step_s: ArrayLike, batch: ArrayLike, parameters: int) -> Work:
    """Return the work, by a straight line through step times at one or more batch sizes. Neither part is
    negative.

    With a single batch size, fixed_s is 0. Raises ScenarioError for a time or batch that is not positive.
    """
    times, sizes = np.atleast_1d(np.asarray(step_s, np.float64)), np.atleast_1d(np.asarray(batch, np.float64))
    if not (np.isfinite(times).all() and (times > 0).all() and (sizes > 0).all()):
        raise ScenarioError("local run: step times and batch sizes must be above zero; record it again")
    slope = float(np.median(times / sizes))
    fixed = 0.0
    if np.unique(sizes).size > 1:
        centred = sizes - sizes.mean()
        slope = max(0.0, float(centred @ times / (centred @ centred)))
        fixed = float(times.mean() - slope * sizes.mean())
        if fixed < 0:
            fixed, slope = 0.0, float(sizes @ times / (sizes @ sizes))
    return Work(fixed, slope, parameters * BYTES_PER_PARAMETER)


def compute_s(work: Work, batch: ArrayLike, speed: ArrayLike = 1.0) -> Real:
    """Return the compute time of one worker's step, s; speed: relative to the machine of the local run."""
    time_s: Real = (work.fixed_s + work.per_sample_s * np.asarray(batch, np.float64)) / np.asarray(speed)
    return time_s


def ring_s(size_bytes: ArrayLike, workers: ArrayLike, network_bps: ArrayLike) -> Real:
    """Return the time of a ring all-reduce, s: 2(n − 1) messages of 1/n of the bytes on the slowest port."""
    n = np.asarray(workers, np.float64)
    bits = np.asarray(size_bytes, np.float64) * BITS
    time_s: Real = 2 * (n - 1) * (bits / (n * np.asarray(network_bps)))
    return time_s


def server_s(
    size_bytes: ArrayLike,
    workers: ArrayLike,
    worker_bps: ArrayLike,
    server_bps: ArrayLike,
    servers: ArrayLike = 1,
) -> Real:
    """Return the time in which all workers push and pull all parameters through parameter servers, s."""
    share = np.asarray(server_bps, np.float64) * np.asarray(servers) / np.asarray(workers)
    time_s: Real = 2 * np.asarray(size_bytes, np.float64) * BITS / np.minimum(np.asarray(worker_bps), share)
    return time_s


def step_s(computing_s: ArrayLike, synchronising_s: ArrayLike) -> Real:
    """Return the time of a step, s: nothing overlaps."""
    return np.asarray(computing_s, np.float64) + np.asarray(synchronising_s, np.float64)


def pipelined(stages: ArrayLike, micro_batches: ArrayLike, interleaved: ArrayLike = 1) -> Real:
    """Return the share of a step in which a stage works: v·m / (v·m + p − 1) (Megatron-LM, SC 2021, §2.2).

    interleaved: v, number of parts of the model on each of the p stages.
    """
    work = np.asarray(micro_batches, np.float64) * np.asarray(interleaved, np.float64)
    return np.asarray(work / (work + np.asarray(stages) - 1))


def asynchronous_steps_per_s(
    worker_step_s: ArrayLike, size_bytes: float, workers: ArrayLike, server_bps: ArrayLike
) -> Real:
    """Return the steps per second of all asynchronous workers, at most what the server's port can carry.

    worker_step_s: time of one worker's step, compute and exchange, with a server of its own, s.
    """
    alone = np.asarray(workers, np.float64) / np.asarray(worker_step_s)
    carried = np.asarray(server_bps, np.float64) / (size_bytes * BITS)
    steps_per_s: Real = np.minimum(alone, carried)
    return steps_per_s


def server_traffic_bps(worker_step_s: ArrayLike, size_bytes: float) -> Real:
    """Return the rate at which one worker uses its server's port in one direction (FC²'s b_t), bit/s.

    A port is full duplex: its capacity holds for each direction, and a worker pulls as much as it pushes.
    """
    return size_bytes * BITS / np.asarray(worker_step_s, np.float64)


def job_s(steps: ArrayLike, one_step_s: ArrayLike, startup_s: ArrayLike = 0.0) -> Real:
    """Return the time of a job, s: start-up of the workers, then the steps."""
    total_s: Real = np.asarray(startup_s, np.float64) + np.asarray(steps, np.float64) * np.asarray(one_step_s)
    return total_s
