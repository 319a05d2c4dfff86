"""Training jobs: how long an iteration takes, when its network is busy, and what outages add to it.

For: data, pipeline and tensor parallel jobs from a model's and a cluster's numbers; a series of iterations
through outages. Not for: deaths and restarts (checkpoints.py, fleet.py), nor the outages (failover.py).

Sources: micro-batches in flight and bubble, four all-reduces per layer and micro-batch of tensor parallelism:
D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC 2021;
gradients that are sent in buckets while the backward pass still runs: S. Li et al., PyTorch Distributed, VLDB
2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from scipy.special import ndtri

from twin.fabric.collectives import Collective, time_s
from twin.fabric.iterations import BOOK, advance, begin, meet
from twin.fabric.model import Floats
from twin.fabric.transports import Transport
from twinbed import ScenarioError

_REDUCES_PER_LAYER = 4
"""Of a micro-batch's activations: two forward, two backward (Megatron-LM)."""

_BACKWARD = 2 / 3
"""Share of the backward pass in the work on a micro-batch: it multiplies twice where forward does once."""

NO_SPANS = np.empty((0, 2))

_TOUCHING_S = 1e-12
"""Spans as near as this follow one another: their ends are sums that round."""


@dataclass(frozen=True, slots=True)
class Job:
    """parameters, layers: of the whole model. micro_batches: per iteration and replica; micro_batch_s:
    forward and backward of one through the whole model on one GPU alone, seconds.

    activation_bytes: of a micro-batch between two layers; gradient_bytes: of one parameter; bucket_bytes: of
    gradients that are reduced together (PyTorch: 25 MiB). data, pipeline, tensor: degrees of parallelism.
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
        """All of them."""
        return self.data * self.pipeline * self.tensor

    def __post_init__(self) -> None:
        """Raises ScenarioError naming what cannot be."""
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
    """rate_bps: of a host's network, each way, shared by its GPUs; alpha_s: a step's latency over it;
    inside_rate_bps, inside_alpha_s: the same of one GPU to another of its host."""

    gpus_per_host: int
    rate_bps: float
    alpha_s: float
    inside_rate_bps: float
    inside_alpha_s: float


@dataclass(frozen=True, slots=True)
class Iteration:
    """What an iteration is made of, seconds. compute_s: a stage's work; bubble_s: stages waiting for others;
    tensor_s, pipeline_s: of its exchanges; data_s: of reducing gradients after the backward pass has ended.

    busy: float64[k, 2], ascending, when flows of the iteration are on the network, as shares of total_s.
    """

    compute_s: float
    bubble_s: float
    tensor_s: float
    pipeline_s: float
    data_s: float
    busy: Floats

    @property
    def total_s(self) -> float:
        """The iteration."""
        return self.compute_s + self.bubble_s + self.tensor_s + self.pipeline_s + self.data_s


@dataclass(frozen=True, slots=True)
class Iterations:
    """duration_s, added_s: float64[n], each iteration and what of it outages added; NaN from the one on in
    which the job died, at died_at_s (NaN: it did not)."""

    duration_s: Floats
    added_s: Floats
    died_at_s: float


def iteration_s(job: Job, cluster: Cluster) -> float:
    """Seconds of an iteration without outages, every GPU at its mean pace."""
    return iteration(job, cluster).total_s


def iteration(job: Job, cluster: Cluster) -> Iteration:
    """An iteration's parts, without outages."""
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
        busy=_union(np.concatenate(spans)) / max(end_s, piped_s),
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
    """`iterations` one after another from time 0.

    outages: float64[m, 2], begin and end of what the job's flows lose, ascending by begin (see `met`);
    jitter_cv: coefficient of variation of an iteration (lognormal); slow: float64[k, 2], spans, not
    overlapping, in which the cluster is slow_cluster, as where a host lacks an uplink. An iteration keeps
    the length it began with. Raises ScenarioError for spans that are not in order.
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
    for at_s, what, gap_s in _events(outages, slow):
        used = advance(
            books, at_s, now.total_s, usual.total_s, sigma, np.inf, 0.0, 0.0, random, taken_s, used
        )
        if used == iterations:
            break
        if what != _OUTAGE:
            now = slower if what == _SLOW else usual
            continue
        more_s = meet(books, at_s, np.array([gap_s]), now.busy, transport)
        if np.isinf(more_s):
            died_at_s = at_s
            added_s[used:] = np.nan
            break
        added_s[used] += more_s
    else:
        advance(books, np.inf, now.total_s, usual.total_s, sigma, np.inf, 0.0, 0.0, random, taken_s, used)
    return Iterations(taken_s, added_s, died_at_s)


def met(
    at_s: Floats, gap_s: Floats, *, connections: int, uplinks: int, seed: np.random.SeedSequence
) -> Floats:
    """float64[k, 2]: begin and end of what a job's flows lose by faults at at_s (float64[m]) of an uplink.

    gap_s: float64[m, 2], as failover.gap_samples gives it; connections: of the host in each direction, each
    on one of its uplinks by hash. A direction counts if any of its connections was on the dead one.
    """
    random = np.random.default_rng(seed)
    hit = random.random(gap_s.shape) >= (1 - 1 / uplinks) ** connections
    lost_s = np.where(hit, gap_s, 0.0).max(axis=1)
    spans = np.column_stack([at_s, at_s + lost_s])[lost_s > 0]
    return np.asarray(spans[np.argsort(spans[:, 0], kind="stable")])


def straggler(cv: float, workers: int) -> float:
    """The slowest of `workers` in units of their mean, each normal with coefficient of variation cv.

    By Blom's approximation of the greatest normal order statistic (Statistical Estimates and Transformed
    Beta-Variables, 1958).
    """
    return 1.0 + cv * float(ndtri((workers - 0.375) / (workers + 0.25))) if workers > 1 else 1.0


def transformer_s(parameters: float, tokens: float, flops_per_s: float, *, recompute: bool = False) -> float:
    """Seconds of forward and backward through a transformer on one GPU: 6 operations per parameter and
    token, 8 where activations are computed again. flops_per_s: what the GPU sustains."""
    return (8 if recompute else 6) * parameters * tokens / flops_per_s


_OUTAGE, _SLOW, _USUAL = range(3)


def _events(outages: Floats, slow: Floats) -> list[tuple[float, int, float]]:
    found = [(begin_s, _OUTAGE, end_s - begin_s) for begin_s, end_s in outages.tolist()]
    for begin_s, end_s in slow.tolist():
        found += [(begin_s, _SLOW, 0.0), (end_s, _USUAL, 0.0)]
    return sorted(found)


def _check(spans: Floats, name: str) -> None:
    if spans.ndim != 2 or spans.shape[1] != 2 or np.any(spans[:, 1] < spans[:, 0]):
        raise ScenarioError(f"{name}: expected rows of a begin and an end not before it")
    if np.any(np.diff(spans[:, 0]) < 0):
        raise ScenarioError(f"{name}: expected spans in the order of their begin")


def _over_network(span: int, cluster: Cluster) -> bool:
    """Whether a group that spans so many consecutive GPUs leaves its host."""
    return span > cluster.gpus_per_host


def _reduce_s(size_bytes: float, ranks: int, stride: int, cluster: Cluster) -> float:
    """An all-reduce of ranks that are `stride` GPUs apart; rings that leave a host share its network."""
    alpha_s, rate_bps = cluster.inside_alpha_s, cluster.inside_rate_bps
    if _over_network(ranks * stride, cluster):
        rings = min(stride, cluster.gpus_per_host)
        alpha_s, rate_bps = cluster.alpha_s, cluster.rate_bps / rings
    return float(time_s(Collective.ALL_REDUCE, size_bytes, ranks, alpha_s, rate_bps))


def _hop_s(job: Job, cluster: Cluster) -> float:
    """A micro-batch's activations from one stage to the next: each tensor rank sends its share."""
    stride = job.tensor * job.data
    alpha_s, rate_bps = cluster.inside_alpha_s, cluster.inside_rate_bps
    if _over_network(stride * job.pipeline, cluster):
        alpha_s, rate_bps = cluster.alpha_s, cluster.rate_bps / min(stride, cluster.gpus_per_host)
    return alpha_s + job.activation_bytes / job.tensor * 8 / rate_bps


def _buckets(job: Job, cluster: Cluster, ready_from_s: float, backward_s: float) -> Floats:
    """float64[b, 2]: when each bucket is reduced: evenly ready through the last backward pass, one by one."""
    if job.data == 1:
        return NO_SPANS
    size_bytes = job.parameters * job.gradient_bytes / (job.pipeline * job.tensor)
    count = max(ceil(size_bytes / job.bucket_bytes), 1)
    each_s = _reduce_s(size_bytes / count, job.data, job.tensor, cluster)
    place = np.arange(count)
    ready_s = ready_from_s + (place + 1) / count * backward_s
    # The k-th ends one reduction after the latest of: its being ready, the one before it ending.
    end_s = np.maximum.accumulate(ready_s - place * each_s) + (place + 1) * each_s
    return np.column_stack([end_s - each_s, end_s])


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


def _union(spans: Floats) -> Floats:
    """The same time as disjoint spans in order."""
    if not len(spans):
        return NO_SPANS
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    first = np.concatenate([[True], spans[1:, 0] > reach[:-1] + _TOUCHING_S])
    last = np.concatenate([first[1:], [True]])
    return np.column_stack([spans[first, 0], reach[last]])
