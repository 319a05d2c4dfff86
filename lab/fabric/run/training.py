"""A training job during faults: its iterations, and its loss if a fault ends the job.

For: the measurement of experiments T1, T2 and T3. Not for: iterations and restarts themselves
(twin.fabric.jobs, twin.fabric.checkpoints). A job whose connections survive every outage continues. Any other
job ends, and restarts from its last save as soon as the lost path is back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from lab.fabric.input import TrainingInput
from lab.fabric.run.world import Measured, World, before, first_uplink, of_outages, plan, stopped, story_of
from twin.fabric import checkpoints, jobs, training_curve
from twin.fabric.checkpoints import Checkpointing
from twin.fabric.jobs import NO_SPANS, Cluster, Job
from twin.fabric.model import Floats, Scheme
from twin.fabric.rdma import NO_OUTAGES, Link, goodput_bps, in_order
from twin.fabric.transports import Rdma, Reconnecting, Transport
from twinbed import InvariantError, ScenarioError

_WATCHED = 2.0
"""A job is watched for this multiple of its undisturbed time."""


def measure(world: World, asked: TrainingInput) -> Measured:
    """Run the job on the first hosts, one GPU each. Neighbours are joined by one flow each."""
    job = Job(**asked.model_dump(exclude={"iterations", "epochs", "average", "jitter_cv", "checkpoint"}))
    if job.gpus > world.topology.hosts:
        raise ScenarioError(
            f"fabric.training: {job.gpus} GPUs on {world.topology.hosts} hosts: give a host per GPU"
        )
    recorded = len(accuracy_curve()) - 1
    if asked.epochs is not None and asked.epochs > recorded:
        raise ScenarioError(
            f"fabric.training.epochs: {asked.epochs} is more than the {recorded} recorded epochs"
        )
    library = world.port_failover
    rate_bps = goodput_bps(world.rate_bps, world.fabric.queue_pair.mtu_bytes, world.scheme)
    if library is not None:
        rate_bps *= library.ports  # A message is striped over all of them.
    cluster = Cluster(1, rate_bps, world.fabric.alpha_s, rate_bps, world.fabric.alpha_s)
    usual_s = jobs.iteration_s(job, cluster)
    work_s = asked.iterations * usual_s
    until_s = _WATCHED * work_s
    random = np.random.default_rng(world.network.spawn(1)[0])
    paths = {flow: world.path(*flow, random) for flow in _flows(job)} if library is None else {}
    uplink = first_uplink(world, paths, job.gpus)
    faults = plan(world, work_s, until_s=until_s, uplink=uplink)
    outages = world.outages(faults)
    rdma = Rdma(world.fabric.queue_pair, Link(world.rate_bps, world.rtt_s(0, 1)))
    transport: Transport = Reconnecting() if world.scheme is Scheme.REROUTE else rdma
    slow = NO_SPANS
    if library is None:
        lost = in_order(np.concatenate([NO_OUTAGES, *stopped(outages, paths).values()]))
        fatal = lost[np.isinf(transport.stall_s(lost[:, 1] - lost[:, 0]))]
    else:
        told, fatal = story_of(world, library, outages, _flows(job))
        lost, slow, transport = told.stalls, told.degraded, Reconnecting(np.inf)
    dies_s = float(fatal[0, 0]) if len(fatal) else np.inf
    run = jobs.series(
        job,
        cluster,
        iterations=asked.iterations,
        outages=lost[lost[:, 0] < dies_s],
        transport=transport,
        seed=world.measure,
        jitter_cv=asked.jitter_cv,
        slow=slow,
        slow_cluster=None if library is None else replace(cluster, rate_bps=rate_bps * library.degraded),
    )
    job_s = float(run.duration_s.sum() + _saves_s(asked, work_s))
    end_s = np.concatenate([[0.0], np.cumsum(run.duration_s)])
    if dies_s < job_s:
        died, corners = _dying(asked, rdma.noticed_s, work_s, fatal, until_s)
        learnt = _learnt(asked, usual_s, *corners) if corners is not None else _Learnt({}, {})
        done = end_s[1:] <= dies_s
        return of_outages(
            before(outages, died["job_s"]),
            died | learnt.metrics,
            {"at_s": end_s[:-1][done], "duration_s": run.duration_s[done]},
            learnt.tables,
            frozenset({"job_s"} if died["failed"] else ()),
        )
    values = _means(run.duration_s, asked.average)
    metrics = {
        "failed": 0.0,
        "deaths": 0.0,
        "job_s": job_s,
        "kept_share": 1.0,
        **{f"iteration_p{share}_s": float(np.quantile(values, share / 100)) for share in (50, 90, 95)},
    }
    # The job met no fault after until_s, which would have delayed it further.
    later = plan(world, work_s, until_s=max(job_s, until_s), uplink=uplink)
    done_s = np.linspace(0.0, work_s, len(end_s))
    learnt = _learnt(asked, usual_s, end_s + _saves_s(asked, done_s), done_s)
    return of_outages(
        before(outages, job_s),
        metrics | learnt.metrics,
        {"at_s": end_s[:-1], "duration_s": run.duration_s},
        learnt.tables,
        frozenset({"job_s"} if len(later) > len(faults) else ()),
    )


@dataclass(frozen=True, slots=True)
class _Learnt:
    """Accuracy over time: its metrics, and its table."""

    metrics: dict[str, float]
    tables: dict[str, dict[str, Floats]]


def _learnt(asked: TrainingInput, usual_s: float, at_s: Floats, done_s: Floats) -> _Learnt:
    """Return the shipped training's accuracy at this job's times.

    at_s, done_s: float64[k], corners of the job's work over time, s.
    """
    if asked.epochs is None:
        return _Learnt({}, {})
    work_s = asked.iterations * usual_s
    accuracy = accuracy_curve()[: asked.epochs + 1]
    ends_s = training_curve.epoch_ends_s(asked.epochs, work_s / asked.epochs, at_s, done_s)
    # An epoch that ends then up to rounding counts as ended.
    now = np.array([(work_s + _saves_s(asked, work_s)) * (1 + 1e-9)])
    done = np.isfinite(ends_s)
    return _Learnt(
        {
            "accuracy": float(training_curve.accuracy_at(accuracy, ends_s, now)[0]),
            "flat_s": training_curve.flat_s(ends_s) if done.all() else np.nan,
        },
        {"accuracy": {"at_s": ends_s[done], "accuracy": np.maximum.accumulate(accuracy)[1:][done]}},
    )


def _saves_s(asked: TrainingInput, done_s: Floats | float) -> Floats:
    """Return the time of all saves before an amount of work (any shape), s. The work's end needs none."""
    saving = asked.checkpoint
    if saving is None:
        return np.zeros_like(done_s)
    return saving.save_s * np.maximum(np.ceil(done_s / saving.interval_s - 1 - 1e-9), 0.0)


def _flows(job: Job) -> list[tuple[int, int]]:
    """Return (source, destination) of the job's flows: a ring of hosts, both ways round if stages or tensor
    ranks exchange activations."""
    ring = [(rank, (rank + 1) % job.gpus) for rank in range(job.gpus if job.gpus > 1 else 0)]
    if job.pipeline > 1 or job.tensor > 1:
        ring += [(destination, source) for source, destination in ring]
    return list(dict.fromkeys(ring))


def _dying(
    asked: TrainingInput, noticed_s: float, work_s: float, fatal: Floats, until_s: float
) -> tuple[dict[str, float], tuple[Floats, Floats] | None]:
    """Return the metrics of a job that dies of each outage in `fatal`, notices it after noticed_s and returns
    with the path, and the corners of its work over time if it saves. The time of a job that does not end is
    until_s, for which it is watched, a lower bound."""
    checkpoint = asked.checkpoint
    if checkpoint is None:
        return {"failed": 1.0, "deaths": 1.0, "job_s": until_s, "kept_share": 0.0}, None
    saving = Checkpointing(checkpoint.interval_s, checkpoint.save_s, noticed_s, checkpoint.init_s)
    lives = checkpoints.run(saving, work_s, fatal[:, 0], fatal[:, 1], until_s=until_s)
    kept_s = float(lives.from_s[-1] + lives.kept_s[-1])
    corners = checkpoints.progress(saving, lives)
    metrics = {
        "failed": float(not lives.finished),
        "deaths": float(len(lives.begin_s) - (lives.finished or lives.end_s[-1] >= until_s)),
        "job_s": min(lives.end_of_job_s, until_s),
        "kept_share": kept_s / work_s,
        "stuck_s": _stuck_s(*corners),
    }
    return metrics, corners


def _stuck_s(at_s: Floats, done_s: Floats) -> float:
    """Return the longest time in which the job made no net progress, s. Work done is linear between its
    corners."""
    longest_s, most_s, since_s = 0.0, 0.0, 0.0
    for after in range(1, len(at_s)):
        if done_s[after] > most_s:
            rising = done_s[after] - done_s[after - 1]
            passed_s = at_s[after] - (done_s[after] - most_s) / rising * (at_s[after] - at_s[after - 1])
            longest_s = max(longest_s, float(passed_s - since_s))
            most_s, since_s = float(done_s[after]), float(at_s[after])
    return max(longest_s, float(at_s[-1] - since_s))


def _means(values: Floats, group: int) -> Floats:
    """Return the means of `group` consecutive values. An incomplete group at the end is left out."""
    whole = len(values) // group * group
    means: Floats = values[:whole].reshape(-1, group).mean(axis=1)
    return means


CURVE = Path(__file__).with_name("training_curve.csv")


@cache
def accuracy_curve() -> Floats:
    """Return float64[epochs + 1], read-only: test accuracy before the first epoch and after each."""
    table = np.loadtxt(CURVE, delimiter=",", skiprows=1)
    if table.ndim != 2 or not np.array_equal(table[:, 0], np.arange(len(table))):
        raise InvariantError(f"{CURVE}: expected epochs 0, 1, 2 … and their accuracy")
    values = np.ascontiguousarray(table[:, 1])
    values.flags.writeable = False
    return values
