"""spotDNN's predictor: how long a cluster of unequal workers takes to train to a loss, asynchronously.

For: jobs with a parameter server, to which workers push gradients without waiting for one another. Not for:
choosing a cluster (spotdnn_plans.py), fitting constants (spotdnn_fit.py), nor synchronous jobs. Source:
spotDNN (IWQoS 2023), §III. Sizes are in MB of 10⁶ bytes, speeds in MB/s.

Our readings: the contention share is kept within 0 and 1; the rest of a training that has begun follows the
new cluster's curve, between the present loss and the goal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf, isfinite

import numpy as np

from control.jobs import Real, Whole
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """A type of worker. Raises ScenarioError for a value that is out of range.

    name: name of the type; quota: largest number of workers. price_usd_h, on_demand_usd_h: price of one on
    the spot market and on demand, US$/h; infinite if not offered. samples: samples of one iteration of one
    worker, over all its GPUs; gpus: their number. compute_s: computing time of an iteration, without
    communication, s.
    """

    name: str
    price_usd_h: float
    quota: int
    samples: float
    gpus: int
    compute_s: float
    on_demand_usd_h: float = inf

    def __post_init__(self) -> None:
        _check_positive(self, f"worker type {self.name}", "price_usd_h", "samples", "gpus", "compute_s")
        if self.quota < 0 or self.quota != int(self.quota):
            raise ScenarioError(f"worker type {self.name}: quota is {self.quota}; expected 0, 1, 2 …")


@dataclass(frozen=True, slots=True)
class Training:
    """A job and the network of its parameter server. Raises ScenarioError for a value that is out of range.

    push_mb: size of one push of gradients, and of one pull of parameters, MB.
    server_mb_s: bandwidth of the parameter server, or of all of them together, MB/s.
    worker_mb_s, pcie_mb_s: bandwidth of a worker without contention, and of its PCIe, MB/s.
    contention: α1 and β1 of the contention share α1·√n + β1 of n workers.
    gamma: γ1 to γ5 of the loss curve; γ2 is at most 0, the others at least 0.
    contended, unequal: whether workers contend for the server's bandwidth, and whether their unequal speeds
        slow convergence. CM-DARE+ assumes neither, and Srifty+ only the former.
    """

    push_mb: float
    server_mb_s: float
    worker_mb_s: float
    pcie_mb_s: float
    contention: tuple[float, float]
    gamma: tuple[float, float, float, float, float]
    contended: bool = True
    unequal: bool = True

    def __post_init__(self) -> None:
        _check_positive(self, "training", "push_mb", "server_mb_s", "worker_mb_s", "pcie_mb_s")
        first, second, *others = self.gamma
        if second > 0 or min(first, *others) < 0 or not all(map(isfinite, (*self.gamma, *self.contention))):
            raise ScenarioError(f"training: gamma is {self.gamma}; expected γ2 ≤ 0 and the others ≥ 0")

    def server_limit(self) -> float:
        """Return the number of workers at which the contention share reaches 1; infinite if it never does."""
        alpha, beta = self.contention
        return inf if alpha <= 0 or not self.contended else floor(max(0.0, (1 - beta) / alpha) ** 2 + 1e-9)

    def updates(self, samples: Real, convergence: Real, workers: Whole, goal: Goal) -> Real:
        """Return the number of pushes until the goal's loss, not rounded; NaN if the loss would not fall.

        samples: mean samples of a push, float64[k]; convergence: R, float64[k]; workers: number of workers,
        int64[k].
        """
        _, _, _, _, least = self.gamma
        scale = self._scale(samples, convergence, workers)
        if goal.loss <= least or not (scale > 0).any():
            return np.full(samples.shape, np.nan)
        wanted = scale / (goal.loss - least)
        begun = self.gamma[0] if goal.from_loss == inf else scale / (goal.from_loss - least)
        return np.where(scale > 0, wanted - begun, np.nan)

    def loss(self, samples: Real, convergence: Real, workers: Whole, iterations: Real) -> Real:
        """Return the loss after `iterations` pushes, float64[k]. The arrays are those of `updates`."""
        scale = self._scale(samples, convergence, workers)
        return scale / (iterations + self.gamma[0]) + self.gamma[4]

    def _scale(self, samples: Real, convergence: Real, workers: Whole) -> Real:
        _, slope, offset, even, _ = self.gamma
        uneven = convergence if self.unequal else 0.0
        return (slope * samples + offset) * np.sqrt((uneven + even) * workers)


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a training.

    loss, time_s: loss to reach, and the time limit, s.
    from_loss: present loss; infinite for a training that has not begun.
    overhead_s: time that a change of workers adds, s; below 30 in the source (§IV).
    budget_usd: most that workers and parameter server may cost together, US$.
    server_usd_h: price of the parameter server, US$/h. The source's cost is that of the workers alone.
    """

    loss: float
    time_s: float
    from_loss: float = inf
    overhead_s: float = 0.0
    budget_usd: float = inf
    server_usd_h: float = 0.0

    def __post_init__(self) -> None:
        if not (self.time_s > 0 and self.overhead_s >= 0 and self.loss < self.from_loss):
            raise ScenarioError(
                f"goal: loss {self.loss:g} from {self.from_loss:g} in {self.time_s:g} s; expected a loss "
                "below the present one and a time above 0"
            )


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions for k clusters, arrays of length k.

    workers: number of workers, int64. share: contention share P. bandwidth_mb_s: bandwidth of a worker, MB/s.
    step_s: time between two pushes of the cluster, s. samples: mean samples of these pushes.
    convergence: convergence coefficient R.
    iterations: number of pushes until the loss; NaN: never.
    time_s: time until the loss, including the goal's overhead, s; NaN: never.
    """

    workers: Whole
    share: Real
    bandwidth_mb_s: Real
    step_s: Real
    samples: Real
    convergence: Real
    iterations: Real
    time_s: Real


def iteration_s(
    training: Training, kinds: Sequence[WorkerKind], bandwidth_mb_s: Real | float | None = None
) -> Real:
    """Return the time of an iteration of a worker of each of the m types, s, float64[…, m].

    bandwidth_mb_s: bandwidth of a worker, MB/s, float64[…]; None: its bandwidth without contention.
    """
    bandwidth = np.asarray(training.worker_mb_s if bandwidth_mb_s is None else bandwidth_mb_s)
    compute = np.array([kind.compute_s for kind in kinds])
    gpus = np.array([kind.gpus for kind in kinds])
    network, inside = 2 * training.push_mb / bandwidth, 2 * gpus * training.push_mb / training.pcie_mb_s
    return compute + network[..., np.newaxis] + inside


def convergence_coefficient(speed: Real, counts: Whole) -> Real:
    """Return R of k clusters, float64[k]: ‖W − (1, 0, …, 0)‖₂ with the fastest worker first.

    speed: samples per second of one worker of each type in each cluster, float64[k, m].
    counts: workers of each type, int64[k, m].
    """
    weight = speed / (speed * counts).sum(axis=1, keepdims=True)
    fastest = np.where(counts > 0, weight, 0.0).max(axis=1)
    squared = (counts * weight**2).sum(axis=1) - 2 * fastest + 1
    # A cluster of one worker has exactly 0; the sum leaves a rounding error.
    return np.where(counts.sum(axis=1) == 1, 0.0, np.sqrt(np.maximum(squared, 0.0)))


def predict(
    training: Training, kinds: Sequence[WorkerKind], counts: Whole, goal: Goal, *, over: float = 0.0
) -> Predicted:
    """Return predictions for k clusters.

    counts: workers of each of the m types, int64[k, m], at least one per cluster. over: share by which the
    contention share is over-predicted.
    """
    workers = counts.sum(axis=1)
    alpha, beta = training.contention
    share = np.clip((alpha * np.sqrt(workers) + beta) * (1 + over), 0.0, 1.0) * training.contended
    equal, alone = training.server_mb_s / workers, training.worker_mb_s
    bandwidth = np.where(alone > equal, share * equal + (1 - share) * alone, alone)
    rate = 1 / iteration_s(training, kinds, bandwidth)
    speed = rate * np.array([kind.samples for kind in kinds])
    step_s = 1 / (counts * rate).sum(axis=1)
    samples = (counts * speed).sum(axis=1) * step_s
    convergence = convergence_coefficient(speed, counts)
    iterations = np.maximum(np.ceil(training.updates(samples, convergence, workers, goal)), 1.0)
    time_s = iterations * step_s + goal.overhead_s
    return Predicted(workers, share, bandwidth, step_s, samples, convergence, iterations, time_s)


def _check_positive(thing: object, what: str, *names: str) -> None:
    for name in names:
        value = getattr(thing, name)
        if not (isfinite(value) and value > 0):
            raise ScenarioError(f"{what}: {name} is {value}; it must be above 0")
