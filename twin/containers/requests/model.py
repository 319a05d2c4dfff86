"""Input and output of the request-level twin, as structures of arrays.

For: service graphs as indices, arrivals, the workload made of both, and the result of each request. Not for:
simulating requests (engine/), a user's graph (control.services) or its compilation (graph.py). "CSR" arrays
have one entry more than they have owners: owner i has the entries [first[i], first[i + 1]) of the next array.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Application
from twin.containers.model import Floats

Index = NDArray[np.int64]

NO_TIMEOUT = float("inf")
UNLIMITED = 0
"""Connections without a limit."""


@dataclass(frozen=True, slots=True)
class ServiceGraph:
    """S services in N containers, H handlers (an operation of a service), and the calls they make.

    The terms are those of control.services. A visit to a handler draws its CPU demand once and spends it in
    equal parts before, between and after its stages (stages + 1 parts). Handlers call each other without
    cycles; Requests' constructor raises InvariantError otherwise, and a user's cycle is a ScenarioError when
    the file is read.

    services: names. first_container: int64[S+1], CSR over containers (replicas, served round robin; those
    that are down are left out).

    Per container (N), int64: workers, visits at once. queue: visits that may wait for a worker (more are
    DROPPED). base_bytes: memory of the idle process. request_bytes: memory of each visit that holds a worker.
    cache_bytes: size that its caches grow to. cache_request_bytes: by how much each finished visit grows them
    until then.

    Per handler (H): handler_service: int64. draw: uint8 `Draw`. mean_s: float64 ≥ 0, CPU seconds. cv:
    float64, coefficient of variation (LOGNORMAL). first_stage: int64[H+1], CSR over stages.

    Per stage: first_call: int64[stages+1], CSR over calls.

    Per call (C): call_handler: int64. probability: float64 in (0, 1]. timeout_s: float64 per attempt (inf =
    none). retries: int64. backoff_s: float64. network_s: float64, way from caller to container (the way back
    is counted in it). pool: int64, index into pool_connections, or −1.

    pool_connections: int64[P], open calls at once of each connection pool; further callers wait in line.
    Client requests (R kinds): request_names; request_handler: int64, the handler that a client calls.

    wake_s, wake_tau_s: a part that begins in a container in which nothing is runnable needs wake_s · (1 −
    exp(−idle / wake_tau_s)) more CPU seconds, for the cache contents lost in the `idle` seconds since its
    last work. It needs all of wake_s if nothing has run yet. An answer that arrives there before the last one
    of its stage costs the same; the container's next part burns that CPU. wake_s ≥ 0, wake_tau_s > 0.

    keep_s: how long a container keeps the memory of ended visits for later ones, as allocators do. From the
    first visit that ends, and every keep_s while any is kept, it returns at its period's end the memory that
    its most visits at once in that time did not need. 0: at once, at a visit's end.
    """

    services: tuple[str, ...]
    first_container: Index
    workers: Index
    queue: Index
    base_bytes: Index
    request_bytes: Index
    cache_bytes: Index
    cache_request_bytes: Index
    handlers: tuple[str, ...]
    handler_service: Index
    draw: NDArray[np.uint8]
    mean_s: Floats
    cv: Floats
    first_stage: Index
    first_call: Index
    call_handler: Index
    probability: Floats
    timeout_s: Floats
    retries: Index
    backoff_s: Floats
    network_s: Floats
    pool: Index
    pool_connections: Index
    request_names: tuple[str, ...]
    request_handler: Index
    wake_s: float = 0.0
    wake_tau_s: float = 1.0
    keep_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Open-loop client requests. at_s: float64[A], ascending. kind: int64[A], index into request_names."""

    at_s: Floats
    kind: Index


@dataclass(frozen=True, slots=True)
class Client:
    """The load generator.

    connections: requests that it has open at once (0 = no limit). Others wait, and their latency counts from
        when they were due.
    queue: number of requests that may wait; further ones are DROPPED.
    timeout_s: time after which it gives up, from when a request was due, s (inf = never).
    way_s: time from sending a request to the first container and back, s.
    """

    connections: int = UNLIMITED
    queue: int = 1_000_000
    timeout_s: float = NO_TIMEOUT
    way_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestWorkload:
    """Clients asking a service graph for `periods` CFS periods, in N containers on hosts.

    names, applications, app, period_s, threads, peak_cores, peak_bytes: as in `Workload`. host: int64[N],
    index into cores_of_host (float64[hosts], cores). host_cores: float64[N] ≥ cores_of_host[host], more where
    something else runs on the host too. phase_s: float64[N] in [0, period_s); a container's periods end at (t
    + 1)·period_s − phase_s. Containers of equal phase report together, so draw phases from a few values. A
    host whose containers together want more than its cores runs all of them slower, in proportion to their
    runnable threads; once CPU requests are in force on it, it shares its cores max-min fairly by weight.
    stolen: share in [0, 1) of a CPU's time in which its owner does not run. imbalance: in [0, 1], how
    unevenly w > 1 threads use a host's c CPUs. 0: no CPU is idle while a thread waits. 1: as many CPUs are
    busy as if each thread stayed on one drawn at random, c·(1 − (1 − 1/c)^w). moves: in [0, 1], probability
    that a container with wake_s > 0 wakes up on another of its host's CPUs. Each CPU keeps up to cfs.SILO_S
    of the container's run time, which the other CPUs cannot use. host_memory_bytes, report_interval_s: as in
    `Workload`.
    """

    names: tuple[str, ...]
    applications: tuple[Application, ...]
    app: Index
    period_s: float
    periods: int
    threads: Floats
    host: Index
    cores_of_host: Floats
    host_cores: Floats
    peak_cores: Floats
    peak_bytes: Index
    phase_s: Floats
    graph: ServiceGraph
    arrivals: Arrivals
    client: Client
    stolen: float = 0.0
    imbalance: float = 0.0
    moves: float = 0.0
    host_memory_bytes: float = np.inf
    report_interval_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SpanLog:
    """Spans of some answered requests. The spans of a request are consecutive, callers before callees.

    request: int64[n], index in `Arrivals`. parent: int64[n], row of the caller's span, −1 for the client's
        call.
    service: int64[n]. container: int64[n], −1 if the call failed.
    start_s, end_s: float64[n], time of the call and of its end at the caller, s.
    work_s: float64[n], CPU seconds that the visit drew, 0 if the call failed.
    drawn: bool[n], the request was drawn at random before the run; otherwise it is kept because it was slow.
    lost: number of traced requests whose spans found no room.
    """

    request: Index
    parent: Index
    service: Index
    container: Index
    start_s: Floats
    end_s: Floats
    work_s: Floats
    drawn: NDArray[np.bool_]
    lost: int = 0


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Results of the requests, in the order of `Arrivals` (A), and counters per container (N).

    at_s: float64[A], time at which each was due, s. kind: int64[A]. end_s: float64[A], its end, s (NaN:
        pending).
    status: uint8[A] `RequestStatus`.
    visits: int64[N], finished visits. dropped: int64[N], visits dropped because the queue was full.
    refused: int64[N], visits refused because the container was down.
    hops: number of finished visits. orphans: number of visits that continued without a caller.
    in_flight: number of visits unfinished at the end.
    lost_s: float64[N], CPU work that had begun and was lost with a killed container, s.
    waiting_s: float64[N], work begun and not finished at the end, s. Per container, Outcome.arrived_s =
        done_s + lost_s + waiting_s.
    spans: spans of a bounded sample; None: the requests were not traced.
    """

    at_s: Floats
    kind: Index
    end_s: Floats
    status: NDArray[np.uint8]
    visits: Index | Floats
    dropped: Index | Floats
    refused: Index | Floats
    hops: int
    orphans: int
    in_flight: int
    lost_s: Floats
    waiting_s: Floats
    spans: SpanLog | None = None

    @property
    def latency_s(self) -> Floats:
        """Time from when a request was due to its end, float64[A], NaN while pending."""
        return np.asarray(self.end_s - self.at_s, np.float64)
