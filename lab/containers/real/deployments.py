"""Makes the containers of a scenario on this machine: services, stress programs, or a job's commands.

For: turning a prepared workload into containers for the control loop, with their client. Not for: the loop
itself, nor the programs (testbed.containers.services, .load).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np

from control.allocator.model import ServiceStats
from control.allocator.ports import Allocator, ServiceAware, SpanAware
from lab.ask.scenario import RunSpec
from lab.containers.input.replay import Replay, Source
from lab.containers.input.services.graph import service_app
from lab.containers.input.services.prepare import ServicesSource
from lab.containers.real.recorded import JobSource
from testbed.containers.host.container import ContainerSpec
from testbed.containers.host.loop import Managed
from testbed.containers.load.generator import LoadGenerator
from testbed.containers.load.plan import LoadPlan, LoadResult
from testbed.containers.load.stress_scripts import StressScripts
from testbed.containers.ports import Client
from testbed.containers.services.deploy import deploy
from twin.containers.model import Population, Workload
from twin.containers.requests.model import RequestWorkload
from twinbed import BackendError, InvariantError


@dataclass(frozen=True, slots=True)
class Deployed:
    """A run's containers.

    containers: the containers, in the workload's order.
    client: sends requests, or lets the containers begin; None if neither is needed.
    load: returns the clients' results after the run; None without clients.
    service_level: argument of `testbed.containers.host.loop.control`.
    """

    containers: tuple[Managed, ...]
    client: Client | None = None
    load: Callable[[], LoadResult] | None = None
    service_level: Callable[[], ServiceStats | None] | None = None


_LEAST_BYTES = 24 << 20
"""Smallest memory of a stress container, bytes: below it the interpreter itself would be the load."""


@contextmanager
def deployed(
    spec: RunSpec, source: Source, replay: Replay, allocator: Allocator, folder: Path
) -> Iterator[Deployed]:
    """Yield the run's containers, not started.

    allocator: decides the interval of the clients' service level, and the spans in it.
    folder: folder for the files that the containers read.
    Raises BackendError for workloads that cannot be deployed here.
    """
    workload = replay.workload
    if isinstance(source, JobSource) and isinstance(workload, Workload):
        yield Deployed(_job(source, workload))
    elif isinstance(source, ServicesSource) and isinstance(workload, RequestWorkload):
        with _services(spec, source, workload, allocator, folder) as made:
            yield made
    elif isinstance(workload, Workload):
        scripts = _stress(spec.name, workload, folder)
        yield Deployed(tuple(scripts.containers), scripts)
    else:
        raise BackendError(f"{spec.name}: cannot be run here; use --backend twin")


def _job(source: JobSource, workload: Workload) -> tuple[Managed, ...]:
    by_name = {spec.name: spec for spec in source.request.specs}
    if set(by_name) != set(workload.names):
        raise InvariantError("a job's recording has other containers than the job")
    return tuple(_managed(workload, index, by_name[name]) for index, name in enumerate(workload.names))


@contextmanager
def _services(
    spec: RunSpec, source: ServicesSource, workload: RequestWorkload, allocator: Allocator, folder: Path
) -> Iterator[Deployed]:
    """Yield the service program in every container, and a load generator with the twin's arrivals."""
    app = service_app(source.app, source.asked.cpu_scale)
    with deploy(app, folder, seed=spec.seed) as laid_out:
        plan = LoadPlan(
            at_s=workload.arrivals.at_s,
            kind=workload.arrivals.kind,
            entries=laid_out.entries,
            duration_s=workload.periods * workload.period_s,
            connections=workload.client.connections,
            queue=workload.client.queue,
            timeout_s=workload.client.timeout_s,
            service_interval_s=allocator.service_interval_s if isinstance(allocator, ServiceAware) else 0.0,
            spans_wanted=allocator.spans_wanted if isinstance(allocator, SpanAware) else 0,
        )
        containers = tuple(
            _managed(workload, index, container.spec, container.ready)
            for index, container in enumerate(laid_out.containers)
        )
        with LoadGenerator(plan, folder) as generator:
            yield Deployed(containers, generator, generator.result, generator.service_level)


def _stress(name: str, workload: Workload, folder: Path) -> StressScripts:
    """Return programs with the demand of the workload, array by array."""
    small = [
        container
        for container, held, present in zip(
            workload.names, workload.memory_bytes.T, workload.present.T, strict=True
        )
        if held[present].max(initial=0) < _LEAST_BYTES
    ]
    if small:
        raise BackendError(
            f"{name}: container {small[0]} holds less than {_LEAST_BYTES >> 20} MiB, or it is not known; the "
            "program that imitates it needs that itself: give more memory_bytes, or use --backend twin"
        )
    return StressScripts(
        folder / "stress",
        workload.names,
        workload.demand_cores,
        np.maximum(workload.memory_bytes, _LEAST_BYTES),
        threads=[ceil(threads) for threads in workload.threads],
        period_s=workload.period_s,
        app=workload.app.tolist(),
        peak_cores=workload.peak_cores.tolist(),
        peak_bytes=workload.peak_bytes.tolist(),
        present=workload.present,
    )


def _managed(
    workload: Population, index: int, spec: ContainerSpec, ready: Callable[[], bool] | None = None
) -> Managed:
    return Managed(
        spec,
        app=int(workload.app[index]),
        peak_cores=float(workload.peak_cores[index]),
        peak_bytes=int(workload.peak_bytes[index]),
        ready=ready,
    )
