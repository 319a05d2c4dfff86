"""The request engine's state at the start of a run.

For: building the tables and the engine's record from a workload. Not for: their layout (engine/records.py),
nor for what happens to them (physics.py, engine/).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.allocator.shares import DEFAULT_WEIGHT
from control.services import Draw
from twin.containers.cfs import ABSENT
from twin.containers.model import Floats
from twin.containers.requests.engine import records
from twin.containers.requests.model import RequestWorkload, ServiceGraph

ROOM = 1024
"""Number of nodes at the start, and of log entries for injected requests. Both double when needed."""

NUMBERS = 4096
"""Number of random numbers of each kind that are drawn in advance."""

RANDOM = ("exponentials", "normals", "uniforms")
"""Tables of random numbers."""

_CACHE_LINE = 64
"""Bytes of a cache line."""

_TREE_BYTES = 2 * (records.KEY.itemsize + records.OWNER.itemsize)
"""Bytes of a tree per leaf."""


def new_engine(workload: RequestWorkload, tables: dict[str, records.Records], watch: bool) -> records.Records:
    """Return the engine's record (an array of one) over `tables`."""
    state = np.zeros(1, records.ENGINE)
    for name in records.TABLES:
        state[name] = tables[name].ctypes.data
    for name in ("node", "container", "host", "line"):
        state[f"{name}_count"] = len(tables[f"{name}s"])
    trees, below = tables["trees"], int(tables["hosts"]["size"].sum())
    state["top"] = trees.ctypes.data + _TREE_BYTES * below
    state["top_size"] = trees.nbytes // _TREE_BYTES - below
    state["count"] = len(workload.arrivals.at_s)
    state["next_due_s"] = workload.arrivals.at_s[0] if len(workload.arrivals.at_s) else np.inf
    state["free"], state["spare"] = 1, len(tables["nodes"]) - 1
    state["client"] = len(workload.graph.call_handler)
    for name in RANDOM:
        state[name.removesuffix("s")] = len(tables[name])  # no element is in use yet
    state["reserve"] = _reserve(workload.graph) + (workload.moves > 0.0)
    client = workload.client
    state["connections"], state["queue"] = client.connections, client.queue
    state["timeout_s"], state["watch"] = client.timeout_s, watch
    state["wake_s"], state["wake_tau_s"] = workload.graph.wake_s, workload.graph.wake_tau_s
    state["moves"] = workload.moves
    state["keep_s"] = workload.graph.keep_s
    return state


def new_tables(workload: RequestWorkload) -> dict[str, records.Records]:
    """Return the engine's tables by name, and their trees. No request has been made yet."""
    graph, arrivals = workload.graph, workload.arrivals
    lines, network, backoff, timeout = _delay_lines(graph, workload.client.way_s)
    requests = np.zeros(len(arrivals.at_s), records.REQUEST)
    requests["at_s"], requests["kind"], requests["end_s"] = arrivals.at_s, arrivals.kind, np.nan
    containers, hosts, members = _containers(workload)
    owners = [*members, np.arange(len(containers) + len(hosts) + len(lines) + 1)]
    trees = _trees(owners)
    sizes = np.array([_leaves(owner) for owner in members])
    hosts["size"] = sizes
    hosts["tree"] = trees.ctypes.data + _TREE_BYTES * (np.cumsum(sizes) - sizes)
    calls = _calls(graph, network, backoff, timeout)
    pools = np.zeros(len(graph.pool_connections), records.POOL)
    pools["connections"] = graph.pool_connections
    stages = np.zeros(len(graph.first_call), records.STAGE)
    stages["first_call"] = graph.first_call
    nodes = free_nodes(ROOM + _reserve(graph))
    runnable = np.zeros(int(graph.workers.sum()), records.RUNNABLE)
    return {
        "nodes": nodes,
        "timers": np.zeros(len(nodes), records.TIMER),
        "containers": containers,
        "hosts": hosts,
        "trees": trees,
        "lines": lines,
        "pools": pools,
        "stages": stages,
        "calls": calls,
        "runnable": runnable,
        "requests": requests,
        "spans": np.zeros(1, records.SPAN),
        "slowest": np.zeros(1, records.SLOW),
        **{name: np.zeros(NUMBERS, records.NUMBER) for name in RANDOM},
    }


def _reserve(graph: ServiceGraph) -> int:
    """Return the nodes that one event may take: a stage's calls, an attempt given up, an opened request."""
    return int(np.diff(graph.first_call).max(initial=0)) + 4


def _zeros(count: int, dtype: np.dtype[np.void]) -> records.Records:
    """Return zeroed records, the first at the start of a cache line."""
    buffer = np.zeros(count * dtype.itemsize + _CACHE_LINE, np.uint8)
    start = -buffer.ctypes.data % _CACHE_LINE
    return buffer[start : start + count * dtype.itemsize].view(dtype)


def free_nodes(count: int) -> records.Records:
    """Return free nodes, each linked to the next."""
    nodes = _zeros(count, records.NODE)
    nodes["next"][:-1] = np.arange(1, count)
    return nodes


def _leaves(owners: NDArray[np.int64]) -> int:
    """Return the number of leaves of a tree of `owners`: a power of two, at least 2."""
    return 1 << max(len(owners) - 1, 1).bit_length()


def _trees(members: list[NDArray[np.int64]]) -> records.Records:
    """Return one tournament tree after another, keys before owners. No member is due."""
    table = _zeros(sum(3 * _leaves(owners) for owners in members), records.KEY)
    first = 0
    for owners in members:
        size = _leaves(owners)
        tree = table["key"][first : first + 3 * size]
        tree[: 2 * size] = np.array(np.inf).view(np.int64)
        tree[2 * size :].view(np.int32)[size : size + len(owners)] = owners
        first += 3 * size
    return table


def _containers(
    workload: RequestWorkload,
) -> tuple[records.Records, records.Records, list[NDArray[np.int64]]]:
    """Return (containers, hosts, the containers of each host)."""
    graph = workload.graph
    containers = _zeros(len(workload.names), records.CONTAINER)
    containers["status"] = ABSENT
    containers["cap"] = np.minimum(workload.threads, workload.host_cores)
    containers["host"] = workload.host
    for name in ("end0_v", "end1_v", "end2_v", "end3_v", "trim_s"):
        containers[name] = np.inf
    containers["idle_since_s"] = -np.inf
    others = np.ceil(workload.cores_of_host[workload.host]) - 1
    containers["elsewhere"] = np.divide(1.0, others, out=np.zeros(len(others)), where=others > 0)
    containers["share"], containers["weight"] = 1.0, DEFAULT_WEIGHT
    containers["first"] = np.cumsum(graph.workers) - graph.workers
    for name in ("workers", "queue", "base_bytes", "request_bytes", "cache_bytes", "cache_request_bytes"):
        containers[name] = getattr(graph, name)
    hosts = np.zeros(len(workload.cores_of_host), records.HOST)
    hosts["cores"], hosts["next_u"] = workload.cores_of_host, np.inf
    hosts["imbalance"] = workload.imbalance
    hosts["speed"] = hosts["factor"] = 1.0 - workload.stolen
    slowed = workload.imbalance > 0.0 or workload.stolen > 0.0
    hosts["members"] = np.bincount(workload.host, minlength=len(hosts))
    hosted = [np.flatnonzero(workload.host == index) for index in range(len(hosts))]
    for members, cores in zip(hosted, workload.cores_of_host, strict=True):
        containers["leaf"][members] = np.arange(len(members))
        containers["shared"][members] = slowed or containers["cap"][members].sum() > cores
    return containers, hosts, hosted


def _calls(graph: ServiceGraph, network: Any, backoff: Any, timeout: Any) -> records.Records:
    """Return the graph's calls and clients' calls, which follow them."""
    count = len(graph.call_handler)
    calls = _zeros(count + len(graph.request_handler), records.CALL)
    calls["network"][:count], calls["network"][count:] = network[:-1], network[-1]
    for name, values in (("backoff", backoff), ("timeout", timeout), ("pool", graph.pool)):
        calls[name][:count], calls[name][count:] = values, -1
    calls["direct"] = (calls["timeout"] < 0) & (calls["network"] < 0) & (calls["pool"] < 0)
    for name in ("retries", "probability"):
        calls[name][:count] = getattr(graph, name)
    handler = np.concatenate((graph.call_handler, graph.request_handler))
    service, stages = graph.handler_service[handler], np.diff(graph.first_stage)
    calls["first"] = graph.first_container[service]
    calls["replicas"] = np.diff(graph.first_container)[service]
    calls["first_stage"], calls["last_stage"] = graph.first_stage[handler], graph.first_stage[handler + 1]
    calls["share"], calls["draw"] = 1.0 / (stages + 1)[handler], graph.draw[handler]
    variance = np.log1p(np.where(graph.draw == Draw.LOGNORMAL, graph.cv, 0.0) ** 2)
    with np.errstate(divide="ignore"):
        mu = np.log(graph.mean_s) - variance / 2
    calls["scale"] = np.where(graph.draw == Draw.LOGNORMAL, mu, graph.mean_s)[handler]
    calls["sigma"] = np.sqrt(variance)[handler]
    return calls


def _delay_lines(graph: ServiceGraph, way_s: float) -> tuple[records.Records, Any, Any, Any]:
    """Return the lines, and for each call the index of its network, backoff and timeout line (−1 = none).

    way_s: network delay of clients' calls; their network line follows those of the graph's calls.
    """
    network_s = np.append(graph.network_s, way_s)
    delays = np.unique(np.concatenate((network_s, graph.backoff_s)))
    delays = delays[delays > 0.0]
    timeouts = np.unique(graph.timeout_s[np.isfinite(graph.timeout_s)])
    lines = np.zeros(len(delays) + len(timeouts), records.LINE)
    lines["delay_s"] = np.concatenate((delays, timeouts))
    lines["kind"] = np.repeat((records.DELAY, records.TIMEOUT), (len(delays), len(timeouts)))

    def index(values: Floats, delays_s: Floats, first: int, used: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.where(used, first + np.searchsorted(delays_s, values), -1)

    return (
        lines,
        index(network_s, delays, 0, network_s > 0.0),
        index(graph.backoff_s, delays, 0, graph.backoff_s > 0.0),
        index(graph.timeout_s, timeouts, len(delays), np.isfinite(graph.timeout_s)),
    )
