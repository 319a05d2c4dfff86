"""Small service graphs, and a driver that does of the control loop only what time needs.

For: tests of the request-level twin. A graph is told as services with handlers; see `world`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from control import services as words
from control.allocator.model import Application, CpuLimits
from control.services import Draw
from twin.containers import cfs
from twin.containers.members import Members
from twin.containers.model import Machine
from twin.containers.requests.graph import compile_graph
from twin.containers.requests.model import Arrivals, Client, RequestLog, RequestWorkload, ServiceGraph
from twin.containers.requests.physics import Requests

NO_LIMIT = (1 << 63) - 1
PERIOD_S = 0.1
QUIET = Machine(
    telemetry_delay_s=0.0,
    telemetry_jitter_s=0.0,
    quota_write_delay_s=0.0,
    oom_grant_delay_s=0.0,
    reclaim_delay_s=0.0,
    restart_s=1.0,
)


@dataclass(frozen=True)
class Call:
    """One call of a stage, to a handler by name."""

    to: str
    probability: float = 1.0
    timeout_s: float = np.inf
    retries: int = 0
    backoff_s: float = 0.0
    network_s: float = 0.0
    pool: int = -1


@dataclass(frozen=True)
class Handler:
    """An operation: its mean CPU seconds, and its stages of calls."""

    mean_s: float
    stages: Sequence[Sequence[Call]] = ()
    draw: Draw = Draw.FIXED
    cv: float = 1.0


@dataclass(frozen=True)
class Service:
    """A service with handlers by name; numbers are per replica."""

    handlers: dict[str, Handler]
    replicas: int = 1
    threads: float = 1.0
    workers: int = 256
    queue: int = 1 << 20
    base_bytes: int = 0
    request_bytes: int = 0
    cache_bytes: int = 0
    cache_request_bytes: int = 0
    host: int = 0
    phase_s: float = 0.0


def chain(
    means: Sequence[float], draw: Draw = Draw.FIXED, call: dict[str, Any] | None = None, **service: Any
):
    """Services a0 → a1 → …, each with one handler of its name."""
    services = []
    for k, mean in enumerate(means):
        stages = [[Call(f"a{k + 1}", **(call or {}))]] if k + 1 < len(means) else []
        services.append(Service({f"a{k}": Handler(mean, stages, draw)}, **service))
    return services


def graph_of(services: Sequence[Service], entries: Sequence[str], pools: Sequence[int] = ()) -> ServiceGraph:
    """The graph of `services`; entries: the handlers that clients call."""
    places = {name: f"s{k}.{name}" for k, service in enumerate(services) for name in service.handlers}
    handlers = [handler for service in services for handler in service.handlers.values()]
    calls = [call for handler in handlers for stage in handler.stages for call in stage]
    app = words.ServiceApp(
        "app",
        {f"s{k}": _in_words(service, places) for k, service in enumerate(services)},
        {name: places[name] for name in entries},
    )
    return replace(
        compile_graph(app, 0.0),
        handlers=tuple(places),
        network_s=np.array([call.network_s for call in calls], np.float64),
        pool=np.array([call.pool for call in calls], np.int64),
        pool_connections=np.array(pools, np.int64),
    )


def _in_words(service: Service, places: dict[str, str]) -> words.Service:
    def handler(spec: Handler) -> words.Handler:
        stages = tuple(tuple(map(call, stage)) for stage in spec.stages)
        return words.Handler(spec.mean_s, spec.draw, spec.cv, stages)

    def call(spec: Call) -> words.Call:
        timeout_s = None if spec.timeout_s == np.inf else spec.timeout_s
        return words.Call(places[spec.to], spec.probability, timeout_s, spec.retries, spec.backoff_s)

    memory = words.Memory(*(getattr(service, name) for name in words.Memory.__slots__))
    handlers = {name: handler(spec) for name, spec in service.handlers.items()}
    return words.Service(handlers, service.replicas, service.threads, service.workers, service.queue, memory)


def world(
    services: Sequence[Service],
    at_s: Sequence[float] | np.ndarray,
    entries: Sequence[str] | None = None,
    kinds: np.ndarray | None = None,
    *,
    periods: int = 10,
    pools: Sequence[int] = (),
    client: Client | None = None,
    cores: Sequence[float] = (1024.0,),
    period_s: float = PERIOD_S,
) -> RequestWorkload:
    """A workload of one application; by default clients call the first service's first handler."""
    entries = entries or [next(iter(services[0].handlers))]
    at_s = np.array(at_s, np.float64)
    containers = [service for service in services for _ in range(service.replicas)]
    count = len(containers)
    host = np.array([service.host for service in containers], np.int64)
    return RequestWorkload(
        names=tuple(f"c{k}" for k in range(count)),
        applications=(Application("app", 1e6, 1 << 60),),
        app=np.zeros(count, np.int64),
        period_s=period_s,
        periods=periods,
        threads=np.array([service.threads for service in containers], np.float64),
        host=host,
        cores_of_host=np.array(cores, np.float64),
        host_cores=np.array(cores, np.float64)[host],
        peak_cores=np.ones(count),
        peak_bytes=np.ones(count, np.int64),
        phase_s=np.array([service.phase_s for service in containers], np.float64),
        graph=graph_of(services, entries, pools),
        arrivals=Arrivals(at_s, np.zeros(len(at_s), np.int64) if kinds is None else kinds),
        client=client or Client(),
    )


@dataclass
class Driver:
    """A `Requests` driven through its periods; `rows` keeps the series, and reports come one by one."""

    workload: RequestWorkload
    quota: float | np.ndarray = np.inf
    limit: int | np.ndarray = NO_LIMIT
    seed: int = 1
    machine: Machine = QUIET
    watch: bool = False
    stops: list[float] = field(default_factory=list)  # further instants at which run_until is called

    def __post_init__(self) -> None:
        load = self.workload
        count = len(load.names)
        self.physics = Requests(load, self.machine, np.random.SeedSequence(self.seed), watch=self.watch)
        self.members = Members(self.physics.group, len(self.physics.ends_s))
        columns = np.arange(count)
        self.members.add(columns, columns)
        quotas = np.broadcast_to(self.quota, count).astype(float)
        self.physics.admit(columns, quotas, np.broadcast_to(self.limit, count))
        self.series = cfs.new_series(load.periods, count)
        self.rows = cfs.Rows(*(getattr(self.series, name) for name in cfs.Rows._fields))
        self.report = cfs.new_report(count)
        self.order = 0
        self.write(quotas)

    def write(
        self, quotas: float | Sequence[float] | np.ndarray, columns: Sequence[int] | None = None
    ) -> int:
        """Writes quotas now."""
        ids = np.arange(len(self.workload.names)) if columns is None else np.array(columns)
        self.order += 1
        cores = np.broadcast_to(np.array(quotas, float), ids.shape).copy()
        limits = CpuLimits(ids, cores, np.ones(len(ids), np.uint8))
        return self.physics.write_quotas(self.members, limits, self.order)

    def ends(self) -> list[tuple[float, int, int]]:
        """(when, row, group) of all periods' ends in their order."""
        load, ends_s = self.workload, self.physics.ends_s
        return [
            (row * load.period_s + end_s, row, group)
            for row in range(load.periods)
            for group, end_s in enumerate(ends_s)
        ]

    def run(self) -> RequestLog:
        """All periods; signals are passed over."""
        stops = sorted(self.stops)
        for at_s, row, group in self.ends():
            while stops and stops[0] <= at_s:
                self.to(stops.pop(0))
            self.to(at_s)
            self.physics.end_period(row, group, self.report)
            self.physics.record(self.rows, row, group, self.report)
        return self.physics.finish()

    def to(self, at_s: float) -> None:
        """Moves to `at_s` whatever is signalled."""
        while self.physics.run_until(at_s) < at_s or self.physics.signalled:
            self.physics.take_over()


def run(workload: RequestWorkload, **settings: Any) -> RequestLog:
    """The log of a workload driven with nobody deciding."""
    return Driver(workload, **settings).run()
