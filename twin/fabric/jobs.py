"""Training jobs: the time of an iteration, when it uses the network, and what outages add to it.

For: data, pipeline and tensor parallel jobs from the numbers of a model and a cluster; a series of iterations
through outages. Not for: deaths and restarts (checkpoints.py, fleet.py), nor the outages (failover.py).
Source: D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM,
SC 2021, for micro-batches in flight, the bubble, and four all-reduces per layer and micro-batch of tensor
parallelism; S. Li et al., PyTorch Distributed, VLDB 2020, for gradients sent in buckets during the backward
pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from scipy.special import ndtri

from twin.fabric.collectives import Collective, time_s
from twin.fabric.iterations import BOOK, advance, begin, meet
from twin.fabric.model import Floats
from twin.fabric.rdma import in_order
from twin.fabric.transports import Transport
from twinbed import ScenarioError

_REDUCES_PER_LAYER = 4
"""All-reduces of a micro-batch's activations per layer: two forward, two backward (Megatron-LM)."""

_BACKWARD = 2 / 3
"""Share of the backward pass in a micro-batch's work. It multiplies twice where forward does once."""

NO_SPANS = np.empty((0, 2))

_TOUCHING_S = 1e-12
"""Distance below which spans follow one another, s. Their ends are sums, which are rounded."""


@dataclass(frozen=True, slots=True)
class Job:
    """A training job.

    parameters, layers: numbers of parameters and layers of the whole model.
    micro_batches: number of micro-batches per iteration and replica.
    micro_batch_s: time of a micro-batch forward and backward through the whole model on one GPU alone, s.
    activation_bytes: size of a micro-batch's activations between two layers, B.
    gradient_bytes: size of one parameter's gradient, B.
    bucket_bytes: size of the gradients that are reduced together, B (PyTorch: 25 MiB).
    data, pipeline, tensor: degrees of parallelism.
    """

    parameters: float
    layers: int
    micro_batches: int
    micro_batch_s: float
    activation_bytes: float
    gradient_bytes: float = 4.0
    bucket_bytes: float = 25.0 * (1 << 20)
    data: int = 1
    pipeline: int = 1
    tensor: int = 1

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.data * self.pipeline * self.tensor

    def __post_init__(self) -> None:
        """Raise ScenarioError, which names an impossible value."""
        for name in ("layers", "micro_batches", "data", "pipeline", "tensor"):
            if getattr(self, name) < 1:
                raise ScenarioError(f"job.{name} is {getattr(self, name)}, expected at least 1")
        for name in ("parameters", "micro_batch_s", "gradient_bytes", "bucket_bytes"):
            if not 0 < getattr(self, name) < np.inf:
                raise ScenarioError(f"job.{name} is {getattr(self, name)}, expected a number above zero")
        if self.layers % self.pipeline:
            raise ScenarioError(
                f"job.pipeline: {self.pipeline} stages do not share {self.layers} layers evenly"
            )


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines of a job.

    gpus_per_host: number of GPUs of a host. They share its network.
    rate_bps, alpha_s: rate of a host's network in each direction, and latency of a step over it.
    inside_rate_bps, inside_alpha_s: the same between two GPUs of a host.
    """

    gpus_per_host: int
    rate_bps: float
    alpha_s: float
    inside_rate_bps: float
    inside_alpha_s: float


@dataclass(frozen=True, slots=True)
class Iteration:
    """The parts of an iteration, s.

    compute_s: work of a stage. bubble_s: wait of stages for other stages.
    tensor_s, pipeline_s: exchanges of tensor and pipeline parallelism.
    data_s: reduction of gradients after the end of the backward pass.
    busy: float64[k, 2], ascending: times at which flows of the iteration are on the network, as shares of
    total_s.
    """

    compute_s: float
    bubble_s: float
    tensor_s: float
    pipeline_s: float
    data_s: float
    busy: Floats

    @property
    def total_s(self) -> float:
        """Length of the iteration, s."""
        return self.compute_s + self.bubble_s + self.tensor_s + self.pipeline_s + self.data_s


@dataclass(frozen=True, slots=True)
class Iterations:
    """A series of iterations.

    duration_s, added_s: float64[n], length of each iteration, and the time that outages added to it, s; NaN
    from the iteration on in which the job died.
    died_at_s: time at which the job died, s (NaN: it did not).
    """

    duration_s: Floats
    added_s: Floats
    died_at_s: float


def iteration_s(job: Job, cluster: Cluster) -> float:
    """Return the length of an iteration without outages, with every GPU at its mean pace, s."""
    return iteration(job, cluster).total_s


def iteration(job: Job, cluster: Cluster) -> Iteration:
    """Return the parts of an iteration without outages."""
    work_s = job.micro_batch_s / (job.pipeline * job.tensor)
    reduces = _REDUCES_PER_LAYER * job.layers // job.pipeline if job.tensor > 1 else 0
    reduce_s = _reduce_s(job.activation_bytes, job.tensor, 1, cluster) if reduces else 0.0
    hop_s = _hop_s(job, cluster) if job.pipeline > 1 else 0.0
    steps = job.micro_batches + job.pipeline - 1
    step_s = work_s + reduces * reduce_s + 2 * hop_s
    piped_s = steps * step_s
    backward_s = _BACKWARD * (step_s - 2 * hop_s)
    buckets = _buckets(job, cluster, piped_s - backward_s, backward_s)
    end_s = float(buckets[-1, 1]) if len(buckets) else piped_s
    spans = [
        _tensor_spans(job, cluster, steps, step_s, work_s, reduces, reduce_s),
        _pipeline_spans(job, cluster, steps, step_s, hop_s),
        buckets if _over_network(job.tensor * job.data, cluster) else NO_SPANS,
    ]
    return Iteration(
        compute_s=job.micro_batches * work_s,
        bubble_s=(job.pipeline - 1) * work_s,
        tensor_s=steps * reduces * reduce_s,
        pipeline_s=steps * 2 * hop_s,
        data_s=max(end_s - piped_s, 0.0),
        busy=in_order(np.concatenate(spans), _TOUCHING_S) / max(end_s, piped_s),
    )


def series(
    job: Job,
    cluster: Cluster,
    *,
    iterations: int,
    outages: Floats,
    transport: Transport,
    seed: np.random.SeedSequence,
    jitter_cv: float = 0.0,
    slow: Floats = NO_SPANS,
    slow_cluster: Cluster | None = None,
) -> Iterations:
    """Run `iterations` one after another from time 0.

    outages: float64[m, 2], begin and end of the times in which the job's flows lose data, s, ascending by
    begin.
    jitter_cv: coefficient of variation of an iteration (lognormal).
    slow: float64[k, 2], disjoint spans in which the cluster is slow_cluster, s, for example while a host
    lacks an uplink. An iteration keeps the length with which it began.
    Raises ScenarioError for spans that are not in order.
    """
    usual = iteration(job, cluster)
    slower = usual if slow_cluster is None else iteration(job, slow_cluster)
    _check(outages, "outages")
    _check(slow, "slow")
    if len(slow) and np.any(slow[1:, 0] < slow[:-1, 1]):
        raise ScenarioError("slow: spans overlap")
    random = np.random.default_rng(seed)
    sigma = float(np.sqrt(np.log1p(jitter_cv**2)))
    books, taken_s = np.zeros(1, BOOK), np.full(iterations, np.nan)
    added_s = np.zeros(iterations)
    used, died_at_s, now = 0, np.nan, usual
    begin(books, 0.0, now.total_s, sigma, random)
    for at_s, event, gap_s in _events(outages, slow):
        used = advance(books, at_s, now.total_s, usual.total_s, sigma, np.inf, 0.0, random, taken_s, used)
        if used == iterations:
            break
        if event != _OUTAGE:
            now = slower if event == _SLOW else usual
            continue
        more_s = meet(books, at_s, np.array([gap_s]), now.busy, transport)
        if np.isinf(more_s):
            died_at_s = at_s
            added_s[used:] = np.nan
            break
        added_s[used] += more_s
    else:
        advance(books, np.inf, now.total_s, usual.total_s, sigma, np.inf, 0.0, random, taken_s, used)
    return Iterations(taken_s, added_s, died_at_s)


def straggler(cv: float, workers: int) -> float:
    """Return the expected time of the slowest of `workers`, in units of their mean. Their times are normal
    with coefficient of variation cv.

    It is Blom's approximation of the greatest normal order statistic (Statistical Estimates and Transformed
    Beta-Variables, 1958).
    """
    return 1.0 + cv * float(ndtri((workers - 0.375) / (workers + 0.25))) if workers > 1 else 1.0


def transformer_s(parameters: float, tokens: float, flops_per_s: float, *, recompute: bool = False) -> float:
    """Return the time of forward and backward through a transformer on one GPU, s.

    That takes 6 operations per parameter and token, or 8 if activations are recomputed. flops_per_s: the
    GPU's sustained rate.
    """
    return (8 if recompute else 6) * parameters * tokens / flops_per_s


_OUTAGE, _SLOW, _USUAL = range(3)


def _events(outages: Floats, slow: Floats) -> list[tuple[float, int, float]]:
    events = [(begin_s, _OUTAGE, end_s - begin_s) for begin_s, end_s in outages.tolist()]
    for begin_s, end_s in slow.tolist():
        events += [(begin_s, _SLOW, 0.0), (end_s, _USUAL, 0.0)]
    return sorted(events)


def _check(spans: Floats, name: str) -> None:
    if spans.ndim != 2 or spans.shape[1] != 2 or np.any(spans[:, 1] < spans[:, 0]):
        raise ScenarioError(f"{name}: expected rows of a begin and an end not before it")
    if np.any(np.diff(spans[:, 0]) < 0):
        raise ScenarioError(f"{name}: expected spans in the order of their begin")


def _over_network(span: int, cluster: Cluster) -> bool:
    """Return whether a group of `span` consecutive GPUs reaches beyond one host."""
    return span > cluster.gpus_per_host


def _reduce_s(size_bytes: float, ranks: int, stride: int, cluster: Cluster) -> float:
    """Return the time of an all-reduce of ranks `stride` GPUs apart, s. Rings that leave a host share its
    network."""
    alpha_s, rate_bps = cluster.inside_alpha_s, cluster.inside_rate_bps
    if _over_network(ranks * stride, cluster):
        rings = min(stride, cluster.gpus_per_host)
        alpha_s, rate_bps = cluster.alpha_s, cluster.rate_bps / rings
    return float(time_s(Collective.ALL_REDUCE, size_bytes, ranks, alpha_s, rate_bps))


def _hop_s(job: Job, cluster: Cluster) -> float:
    """Return the time of a micro-batch's activations to the next stage, s. Each tensor rank sends its
    share."""
    stride = job.tensor * job.data
    alpha_s, rate_bps = cluster.inside_alpha_s, cluster.inside_rate_bps
    if _over_network(stride * job.pipeline, cluster):
        alpha_s, rate_bps = cluster.alpha_s, cluster.rate_bps / min(stride, cluster.gpus_per_host)
    return alpha_s + job.activation_bytes / job.tensor * 8 / rate_bps


def _buckets(job: Job, cluster: Cluster, ready_from_s: float, backward_s: float) -> Floats:
    """Return float64[b, 2]: when each bucket is reduced, s. Buckets become ready evenly during the last
    backward pass."""
    if job.data == 1:
        return NO_SPANS
    size_bytes = job.parameters * job.gradient_bytes / (job.pipeline * job.tensor)
    count = max(ceil(size_bytes / job.bucket_bytes), 1)
    bucket_s = _reduce_s(size_bytes / count, job.data, job.tensor, cluster)
    place = np.arange(count)
    ready_s = ready_from_s + (place + 1) / count * backward_s
    # A bucket's reduction begins when the bucket is ready and the reduction before it has ended.
    end_s = np.maximum.accumulate(ready_s - place * bucket_s) + (place + 1) * bucket_s
    return np.column_stack([end_s - bucket_s, end_s])


def _tensor_spans(
    job: Job, cluster: Cluster, steps: int, step_s: float, work_s: float, reduces: int, reduce_s: float
) -> Floats:
    if not reduces or not _over_network(job.tensor, cluster):
        return NO_SPANS
    place = np.arange(reduces)
    within_s = (place + 1) / reduces * work_s + place * reduce_s
    begin_s = (np.arange(steps)[:, None] * step_s + within_s).ravel()
    return np.column_stack([begin_s, begin_s + reduce_s])


def _pipeline_spans(job: Job, cluster: Cluster, steps: int, step_s: float, hop_s: float) -> Floats:
    if job.pipeline == 1 or not _over_network(job.tensor * job.data * job.pipeline, cluster):
        return NO_SPANS
    end_s = (np.arange(steps) + 1) * step_s
    return np.column_stack([end_s - 2 * hop_s, end_s])
