"""How many request-hops per second the request-level twin does, and what a hop costs as containers grow.

A hop is a visit of a request to a container. Requests go through groups of ten services, in two shapes. In a
chain each service calls the next: a visit has two CPU parts with the callee's answer between them. In a fan
the first service calls the nine others in parallel, whose visits have one part. Demands are exponential.
Containers have four threads under a quota that is used to 80 % and throttles one period in a hundred. The
timed loop calls run_until and end_period for every period. It makes no decisions and no series.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import numpy as np

from benchmarks.figure import figure, median_s
from benchmarks.simpy_requests import Chain
from control.allocator.model import Application, CpuLimits
from control.services import Draw
from twin.containers import cfs
from twin.containers.members import Members
from twin.containers.model import Machine
from twin.containers.requests.model import Arrivals, Client, RequestWorkload, ServiceGraph
from twin.containers.requests.physics import Requests

PERIOD_S = 0.1
SERVICES = 10
THREADS, QUOTA_CORES, UTILISATION = 4.0, 1.0, 0.8
MEAN_S = 0.0005
REPEATS = 7
MACHINE = Machine(0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


def groups(count: int, hops: int, fan: bool = False) -> RequestWorkload:
    """Return `count` groups of ten services, chains or fans, and requests for `hops` visits in all."""
    rng = np.random.default_rng(3)
    rate = UTILISATION * QUOTA_CORES / MEAN_S * count
    at_s = np.cumsum(rng.exponential(1 / rate, hops // SERVICES))
    containers = count * SERVICES
    handlers = np.arange(containers)
    place = handlers % SERVICES
    calls = handlers[place != 0]
    stages = (place == 0 if fan else place != SERVICES - 1).astype(np.int64)
    first_call = np.arange(count + 1) * (SERVICES - 1) if fan else np.arange(len(calls) + 1)
    graph = ServiceGraph(
        services=tuple(f"s{k}" for k in handlers),
        first_container=np.arange(containers + 1),
        workers=np.full(containers, 256),
        queue=np.full(containers, 1024),
        base_bytes=np.full(containers, 64 << 20),
        request_bytes=np.full(containers, 256 << 10),
        cache_bytes=np.full(containers, 16 << 20),
        cache_request_bytes=np.full(containers, 1 << 10),
        handlers=tuple(f"h{k}" for k in handlers),
        handler_service=handlers,
        draw=np.full(containers, Draw.EXPONENTIAL, np.uint8),
        mean_s=np.full(containers, MEAN_S),
        cv=np.ones(containers),
        first_stage=np.concatenate(([0], np.cumsum(stages))),
        first_call=first_call,
        call_handler=calls,
        probability=np.ones(len(calls)),
        timeout_s=np.full(len(calls), np.inf),
        retries=np.zeros(len(calls), np.int64),
        backoff_s=np.zeros(len(calls)),
        network_s=np.zeros(len(calls)),
        pool=np.full(len(calls), -1),
        pool_connections=np.zeros(0, np.int64),
        request_names=tuple(f"r{k}" for k in range(count)),
        request_handler=np.arange(count) * SERVICES,
    )
    return RequestWorkload(
        names=graph.services,
        applications=(Application("groups", 1e6, 1 << 60),),
        app=np.zeros(containers, np.int64),
        period_s=PERIOD_S,
        periods=int(at_s[-1] / PERIOD_S) + 1,
        threads=np.full(containers, THREADS),
        host=np.zeros(containers, np.int64),
        cores_of_host=np.array([THREADS * containers]),
        host_cores=np.full(containers, THREADS * containers),
        peak_cores=np.full(containers, QUOTA_CORES),
        peak_bytes=np.full(containers, 1 << 30),
        phase_s=np.zeros(containers),
        graph=graph,
        arrivals=Arrivals(at_s, rng.integers(0, count, len(at_s))),
        client=Client(),
    )


def figures() -> Iterator[dict[str, object]]:
    """Yield hops per second of one core's time, and by the wall clock; medians of repeats.

    Core time is the process's CPU time, so that neighbours on a machine count less. The baseline is the SimPy
    model of one chain in the same run. The last figure is the cost of a hop as the containers grow a
    hundredfold.
    """
    plain, plain_hops = _plain(200)
    for shape in ("chain", "fan"):
        for count in (1, 7):
            wall_s, cpu_s, physics = _twin(groups(count, 1_000_000 * count, fan=shape == "fan"))
            fleet, hops = physics.fleet, physics.finish().hops
            yield figure(
                f"requests_{shape}_{count * SERVICES}_services",
                hops / cpu_s,
                "hops per core-second",
                baseline=f"SimPy, a process per request, a chain of {SERVICES} services",
                baseline_value=plain,
                ratio=hops / cpu_s / plain,
                target="≥ 10 million, ratio ≥ 40",
                by_wall_clock=round(hops / wall_s),
                throttled_share=round(float(fleet.nr_throttled.sum() / fleet.nr_periods.sum()), 4),
                hops=hops,
                baseline_hops=plain_hops,
            )
    small, large = (_cost_ns(groups(count, 4_000_000)) for count in (1, 100))
    yield figure(
        "requests_hop_at_1000_services",
        large,
        "ns of core time per hop of a chain",
        baseline="the same at 10 services",
        baseline_value=small,
        ratio=small / large,
        target="flat: ratio ≥ 0.5",
    )


def _cost_ns(load: RequestWorkload) -> float:
    _, cpu_s, physics = _twin(load)
    return cpu_s / physics.finish().hops * 1e9


def _twin(load: RequestWorkload) -> tuple[float, float, Requests]:
    """Return (wall seconds, CPU seconds) of a run, medians of repeats, and the last run."""
    last: list[Requests] = []
    report = cfs.new_report(len(load.names))

    def start() -> tuple[Requests]:
        last[:] = [_start(load)]
        return (last[0],)

    def run(physics: Requests) -> None:
        for row in range(load.periods):
            physics.run_until((row + 1) * PERIOD_S)
            physics.end_period(row, 0, report)

    return *median_s(run, REPEATS, start), last[0]


def _start(load: RequestWorkload) -> Requests:
    physics = Requests(load, MACHINE, np.random.SeedSequence(1))
    columns = np.arange(len(load.names))
    quotas = np.full(len(columns), QUOTA_CORES)
    physics.admit(columns, quotas, np.full(len(columns), 1 << 40))
    members = Members(physics.group, len(physics.ends_s))
    members.add(columns, columns)
    physics.write_quotas(members, CpuLimits(columns, quotas, np.zeros(len(columns), np.uint8)), 1)
    return physics


def _plain(periods: int) -> tuple[float, int]:
    """Return (hops per core-second of the SimPy model of one chain, hops done)."""
    rng = np.random.default_rng(3)
    seconds = periods * PERIOD_S
    at_s = np.cumsum(rng.exponential(MEAN_S / UTILISATION / QUOTA_CORES, int(seconds / MEAN_S)))
    at_s = at_s[at_s < seconds]
    demands = rng.exponential(MEAN_S, (len(at_s), SERVICES))
    cpu, hops = [], 0
    for _ in range(3):
        model = Chain(SERVICES, THREADS, QUOTA_CORES, 256, PERIOD_S)
        began = time.process_time()
        model.run(at_s.tolist(), demands.tolist(), seconds)
        cpu.append(time.process_time() - began)
        hops = model.hops
    return hops / median(cpu), hops
