"""A serverless function under an allocator: invocations or a batch of tasks, served by pods that come and go.

For: the simulation of a `ServerlessWorkload`: the pods (pods.py) on top of the control loop (simulation.py)
and the request engine (requests/physics.py). Not for: a policy, nor the workload's data
(serverless_model.py).

Pods are the population's columns: one for each pod that may be there at once, all of one application. CPU
steps are requests injected into the pod; waits pass outside of it. Source: the serverless evaluation of Escra
(ICDCS 2022).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, fields, replace
from math import ceil, isfinite
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from control.allocator.ports import Allocator
from control.services import Draw
from twin.containers.model import Events, Floats, Machine, Outcome, Series
from twin.containers.pods import Ledger, PodPool, PodRequests, new_ledger
from twin.containers.recording import Recorder
from twin.containers.requests.model import Arrivals, Client, RequestLog, RequestWorkload, ServiceGraph
from twin.containers.serverless_model import Batch, Invocations, PodSpec, ServerlessWorkload
from twin.containers.simulation import ControlLoop
from twin.containers.telling import Progress
from twinbed import InvariantError


@dataclass(frozen=True, slots=True)
class ServerlessOutcome:
    """The result of a serverless simulation.

    outcome: as of any simulation. Its columns are the pods, and its `requests` the invocations (one kind;
        at_s: time at which they were due; tasks of a batch are due at 0 s). A batch's series and events end
        with the period in which the job ended; its counters are those of the whole run.
    start_s: float64[A], time at which a pod began it, s (NaN: never). cold: bool[A], a pod was started for
        it.
    attempts: int64[A], number of pods that took it. pods_started: number of cold starts.
    pods: int64[T], number of pods at each period's end.
    job_s: time from a batch's start to the end of its last task, s (NaN: no batch, or not done).
    """

    outcome: Outcome
    start_s: Floats
    cold: NDArray[np.bool_]
    attempts: NDArray[np.int64]
    pods_started: int
    pods: NDArray[np.int64]
    job_s: float

    @property
    def invocations(self) -> RequestLog:
        """The outcome's `requests`."""
        if self.outcome.requests is None:
            raise InvariantError("a serverless outcome without invocations")
        return self.outcome.requests


def simulate_serverless(
    workload: ServerlessWorkload,
    allocator: Allocator,
    machine: Machine,
    *,
    seed: np.random.SeedSequence,
    progress: Progress | None = None,
) -> ServerlessOutcome:
    """Run `workload` under `allocator`.

    Arguments, errors and determinism are those of `twin.containers.run.simulate`. Raises InvariantError for a
    workload that violates its class's rules.
    """
    _check(workload)
    engine, lengths, starts = seed.spawn(3)
    load, steps = workload.load, workload.steps
    ledger = new_ledger(load.at_s.copy() if isinstance(load, Invocations) else np.zeros(load.tasks))
    random = np.random.default_rng(lengths)
    # The lengths are drawn before the run, so that every policy meets the same invocations.
    lengths_s = np.stack([step.sample(random, len(ledger.at_s)) for step in steps], axis=1)
    physics = PodRequests(request_workload(workload, lengths_s), machine, engine)
    recorder = Recorder(physics.periods, len(physics.group))
    loop = ControlLoop(physics, allocator, machine, seed, recorder)
    retries = load.retries if isinstance(load, Batch) else 0
    pool = PodPool(
        loop, physics, workload.pod, steps, lengths_s, ledger, retries, np.random.default_rng(starts)
    )
    loop.env.process(_arrive(loop.env, pool, ledger.at_s))
    return _outcome(workload, loop.run(progress), ledger, pool.started)


def request_workload(workload: ServerlessWorkload, lengths_s: Floats) -> RequestWorkload:
    """Return the population of pods for the request engine, for steps of lengths_s (float64[A, steps]).

    Kind 0 initialises a pod. Kind 1 + a·steps + s is step s of invocation a.
    """
    count = len(workload.names)
    offsets = np.arange(count) % workload.phases
    return RequestWorkload(
        names=workload.names,
        applications=workload.applications,
        app=workload.app,
        period_s=workload.period_s,
        periods=workload.periods,
        threads=workload.threads,
        host=workload.host,
        cores_of_host=np.full(workload.hosts, workload.cores_per_host),
        host_cores=workload.host_cores,
        peak_cores=workload.peak_cores,
        peak_bytes=workload.peak_bytes,
        phase_s=np.asarray(offsets * (workload.period_s / workload.phases), np.float64),
        graph=_graph(workload.application.name, workload.pod, lengths_s.ravel(), count),
        arrivals=Arrivals(np.empty(0), np.empty(0, np.int64)),
        client=Client(),
    )


def _graph(name: str, pod: PodSpec, lengths_s: Floats, count: int) -> ServiceGraph:
    """Return one service without calls, and a handler of known length for each thread's part of a step.

    A pod works on one step at a time, each of its threads on a part of it. Work that arrives while it is held
    at its memory limit waits in line.
    """
    kinds, first, threads = 1 + len(lengths_s), pod.initialise, pod.threads
    names = ("initialise", *(f"step-{index}" for index in range(1, kinds)))
    nobody, nothing = np.empty(0, np.int64), np.empty(0)
    return ServiceGraph(
        services=(name,),
        first_container=np.array([0, count]),
        workers=np.full(count, threads, np.int64),
        queue=np.full(count, threads, np.int64),
        base_bytes=np.full(count, pod.base_bytes, np.int64),
        request_bytes=np.full(count, pod.working_bytes // threads, np.int64),
        cache_bytes=np.full(count, pod.retained_bytes, np.int64),
        cache_request_bytes=np.full(count, -(-pod.retained_bytes // threads), np.int64),
        handlers=names,
        handler_service=np.zeros(kinds, np.int64),
        draw=np.append(np.uint8(first.draw), np.full(kinds - 1, Draw.FIXED, np.uint8)),
        mean_s=np.append(first.mean_s, lengths_s) / threads,
        cv=np.append(first.cv, np.zeros(kinds - 1)),
        first_stage=np.zeros(kinds + 1, np.int64),
        first_call=np.zeros(1, np.int64),
        call_handler=nobody,
        probability=nothing,
        timeout_s=nothing,
        retries=nobody,
        backoff_s=nothing,
        network_s=nothing,
        pool=nobody,
        pool_connections=nobody,
        request_names=names,
        request_handler=np.arange(kinds),
    )


def _arrive(env: simpy.Environment, pool: PodPool, at_s: Floats) -> Generator[simpy.Event, Any, None]:
    """Hand over the invocations when they are due. Invocations of one instant are handed over together."""
    due, first_of, counts = np.unique(at_s, return_index=True, return_counts=True)
    for due_s, first, count in zip(due.tolist(), first_of.tolist(), counts.tolist(), strict=True):
        yield env.timeout(max(due_s - env.now, 0.0))
        pool.invoke(range(first, first + count))


def _outcome(
    workload: ServerlessWorkload, outcome: Outcome, ledger: Ledger, started: int
) -> ServerlessOutcome:
    log = outcome.requests
    if log is None:
        raise InvariantError("the request engine kept no log")
    job_s = np.nan
    if isinstance(workload.load, Batch) and np.isfinite(ledger.end_s).all():
        job_s = float(ledger.end_s.max())
        outcome = _until(outcome, ceil(job_s / workload.period_s), workload.period_s)
    invocations = replace(
        log,
        at_s=ledger.at_s,
        kind=np.zeros(len(ledger.at_s), np.int64),
        end_s=ledger.end_s,
        status=ledger.status,
    )
    return ServerlessOutcome(
        outcome=replace(outcome, requests=invocations),
        start_s=ledger.start_s,
        cold=ledger.cold,
        attempts=ledger.attempts,
        pods_started=started,
        pods=np.empty(0, np.int64) if outcome.series is None else outcome.series.up.sum(axis=1),
        job_s=job_s,
    )


def _until(outcome: Outcome, rows: int, period_s: float) -> Outcome:
    """Keep the series and events of the first `rows` periods. After a job's end, nothing is reserved."""
    series, events = outcome.series, outcome.events
    if series is not None:
        columns = {column.name: getattr(series, column.name) for column in fields(Series)}
        series = replace(
            series, **{name: column[:rows] for name, column in columns.items() if column is not None}
        )
    kept = sum(at_s <= rows * period_s for at_s in events.at_s)
    events = Events(*(getattr(events, column.name)[:kept] for column in fields(Events)))
    return replace(outcome, series=series, events=events)


def _check(workload: ServerlessWorkload) -> None:
    pod, load = workload.pod, workload.load
    lengths = (pod.start.mean_s, pod.initialise.mean_s, *(step.mean_s for step in workload.steps))
    if not all(isfinite(mean) and mean >= 0.0 for mean in lengths) or pod.start.cpu or not pod.initialise.cpu:
        raise InvariantError(
            "serverless: a start is a wait and an initialisation is CPU work, each of a finite length ≥ 0"
        )
    if (
        not workload.steps
        or min(workload.max_pods, workload.hosts, workload.periods, workload.phases, pod.threads) < 1
    ):
        raise InvariantError("serverless: there is at least one step, pod, host, period, phase and thread")
    if isinstance(load, Batch):
        if min(load.tasks, load.workers) < 1:
            raise InvariantError("serverless: a batch has at least one task and one worker")
    elif load.at_s.size and not (load.at_s[0] >= 0.0 and (np.diff(load.at_s) >= 0.0).all()):
        raise InvariantError("serverless: invocations are due in ascending order")
