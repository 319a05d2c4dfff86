"""Requests through a service graph as a `Physics`: what the control loop sees of the engine.

For: building the engine's state from a workload, and the port's methods; besides, requests that are put in
one by one and watched (serverless pods). Not for: how requests move (engine.py), nor for decisions.

Fleet's arrays are views of the engine's records, so the loop and the engine see the same limits. Two differ
in meaning from cfs.py: `since` is the host's time of the last account, and `backlog`, `pool` and `used` are
as of then. Containers are checked against their memory limit when a visit takes a worker or ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Bytes, CpuLimits
from twin.containers.cfs import ABSENT, DOWN, Fleet, Report, Rows
from twin.containers.members import Columns, Members
from twin.containers.model import Floats, Machine
from twin.containers.physics import ServiceLevel
from twin.containers.requests import engine
from twin.containers.requests.checks import check
from twin.containers.requests.model import Draw, RequestLog, RequestWorkload, ServiceGraph, Status
from twinbed import InvariantError

_ROOM = 1024
"""Nodes and, for requests put in one by one, log entries to begin with; they double when needed."""

_NUMBERS = 4096
"""Random numbers of a kind that are kept in store."""

_CACHE_LINE = 64

_TREE_BYTES = 2 * (engine.KEY.itemsize + engine.OWNER.itemsize)
"""Of a tree, per leaf."""

_RANDOM = ("exponentials", "normals", "uniforms")


class Requests:
    """The containers of a `RequestWorkload` and the requests in them; implements `physics.Physics`.

    seed: of the CPU demands and of which calls are made. watch: `run_until` also stops at each instant at
    which client requests end; `take_finished` tells which. starting: columns at the start (default: all).
    InvariantError for arrays that do not belong together, values out of range, or a cyclic graph.
    """

    def __init__(
        self,
        workload: RequestWorkload,
        machine: Machine,
        seed: np.random.SeedSequence,
        *,
        watch: bool = False,
        starting: Columns | None = None,
    ) -> None:
        check(workload)
        self.population = workload
        self.periods = workload.periods
        self.signalled = False
        self._machine = machine
        self._rng = np.random.default_rng(seed)
        self._starting = np.arange(len(workload.names)) if starting is None else starting
        ends = workload.period_s - workload.phase_s
        self.ends_s, self.group = np.unique(ends, return_inverse=True)
        self._columns = [np.flatnonzero(self.group == group) for group in range(len(self.ends_s))]
        self._tables = _new_tables(workload)
        self._engine = _new_engine(workload, self._tables, watch)
        self._draw()
        boxes = self._tables["boxes"]
        self.fleet = Fleet(**{name: boxes[name] for name in Fleet._fields})
        self._over: Columns = np.empty(len(boxes), np.int64)
        self._seen = self._taken = 0
        self._asked_s, self._asked = 0.0, 0
        graph = workload.graph
        first = graph.first_container[graph.handler_service[graph.request_handler]]
        self._app_of_kind = workload.app[first]
        self._app_of_request: dict[int, int] = {}

    def first(self) -> Columns:
        """Columns that are there at the start."""
        return self._starting

    # --- time ------------------------------------------------------------------------------------

    def run_until(self, at_s: float) -> float:
        """Moves everything to `at_s`, or to the instant at which something needs the loop before it."""
        self.signalled = self._advance(at_s) == engine.SIGNALLED
        return float(self._engine["now"][0]) if self.signalled else at_s

    def end_period(self, row: int, group: int, report: Report) -> Columns:
        """Ends period `row` of the group's containers; see `Physics`."""
        columns, machine, over = self._columns[group], self._machine, self._over
        period_s = self.population.period_s
        found = engine.end_period(self._engine, columns, period_s, machine.burst_s, report, over)
        if found < 0:
            name = self.population.names[-1 - found]
            raise InvariantError(
                f"container {name!r}, period {row}: more done than its CPUs or its quota can do"
            )
        return over[:found].copy()

    def record(self, rows: Rows, row: int, group: int, report: Report) -> None:
        """Writes the group's containers' row of the series."""
        engine.record(self._engine, rows, row, self._columns[group], report, self.population.period_s)

    # --- limits and life -------------------------------------------------------------------------

    def write_quotas(self, members: Members, limits: CpuLimits, order: int) -> int:
        """Quota writes now; see `Physics`."""
        return engine.write_quotas(
            self._engine,
            members.issued,
            members.column_of,
            limits.ids,
            limits.quota_cores,
            limits.reason,
            order,
            self.population.period_s,
            self._machine.burst_s,
        )

    def take_over(self) -> Columns:
        """Running containers that exceeded their memory limit since last asked."""
        boxes = self._tables["boxes"]
        over: Columns = boxes["over_order"][: engine.exceeding(self._engine)].astype(np.int64)
        boxes["over"][over] = False
        self._engine["over"] = 0
        return over

    def changes(self, row: int) -> tuple[Columns, Columns] | None:  # noqa: ARG002 — nobody comes or goes by itself
        """None: the graph's containers are there from start to end."""
        return None

    def admit(self, columns: Columns, quota_cores: Floats, limit_bytes: Bytes) -> None:
        """Newcomers begin now, UP; their pools are filled by the quota write that comes with it."""
        fleet = self.fleet
        fleet.quota[columns] = quota_cores
        fleet.limit_bytes[columns] = limit_bytes
        engine.start(self._engine, columns)
        self._advance(-np.inf)

    def dismiss(self, columns: Columns) -> None:
        """Containers leave now; what they were doing fails."""
        engine.kill(self._engine, columns, ABSENT)
        self._advance(-np.inf)
        for values in (self.fleet.quota, self.fleet.pool, self.fleet.limit_bytes):
            values[columns] = 0

    def hold(self, columns: Columns) -> None:
        """Containers are stopped at their memory limit."""
        engine.stop(self._engine, columns)

    def take_down(self, columns: Columns) -> None:
        """Containers are killed or restarted: their visits fail, calls of those go on for nobody."""
        engine.kill(self._engine, columns, DOWN)
        self._advance(-np.inf)

    def burn(self, columns: Columns, cpu_s: Floats) -> None:
        """As the port says; what a period used beyond its visits' work counts as work that arrived."""
        self.fleet.pool[columns] -= cpu_s
        self.fleet.used[columns] += cpu_s

    def release(self, columns: Columns) -> None:
        """Held containers go on, containers that were down begin anew; queues move up."""
        engine.start(self._engine, columns)
        self._advance(-np.inf)

    # --- requests --------------------------------------------------------------------------------

    def inject(self, kind: int, column: int) -> int:
        """A client request of `kind` now, straight to container `column`; returns its index in the log.

        Past the client's connections and queue, under its timeout. Only for a workload without arrivals.
        """
        arrivals = len(self.population.arrivals.at_s)
        if arrivals or not 0 <= kind < len(self._app_of_kind) or not 0 <= column < len(self.fleet.status):
            raise InvariantError(
                f"request of kind {kind} put into container {column} beside {arrivals} arrivals"
            )
        state = self._engine[0]
        index = int(state["count"])
        if index == len(self._tables["requests"]):
            self._grow_requests()
        if state["spare"] < state["reserve"]:
            self._grow_nodes()
        request = self._tables["requests"][index]
        request["at_s"], request["kind"], request["end_s"] = state["now"], kind, np.nan
        state["count"] += 1
        self._app_of_request[index] = int(self.population.app[column])
        engine.inject(self._engine, column)
        self._advance(-np.inf)
        return index

    def take_finished(self) -> NDArray[np.int64]:
        """int64[n]: indices of the requests that ended since last asked, in the order they ended."""
        ended = int(self._engine["ended"][0])
        finished: NDArray[np.int64] = self._tables["requests"]["order"][self._taken : ended].astype(np.int64)
        self._taken = ended
        return finished

    def service_level(self) -> ServiceLevel:
        """What clients saw since last asked; see `Physics`."""
        state, requests = self._engine[0], self._tables["requests"]
        ended, arrived, now = int(state["ended"]), int(state["arrived"]), float(state["now"])
        came = self._apps(np.arange(self._asked, arrived))
        over = requests["order"][self._seen : ended]
        over = over[requests["status"][over] == Status.OK]
        latency, apps = requests["end_s"][over] - requests["at_s"][over], self._apps(over)
        count = len(self.population.applications)
        p99 = np.full(count, np.nan)
        for app in np.unique(apps):
            p99[app] = np.quantile(latency[apps == app], 0.99)
        wall_s = now - self._asked_s
        rate = np.bincount(came, minlength=count) / wall_s if wall_s > 0 else np.zeros(count)
        self._seen, self._asked, self._asked_s = ended, arrived, now
        return ServiceLevel(rate, p99)

    def finish(self) -> RequestLog:
        """What became of the requests; counters of CPU work as of each container's last period's end."""
        state, boxes = self._engine[0], self._tables["boxes"]
        requests = self._tables["requests"][: int(state["count"])]
        return RequestLog(
            at_s=requests["at_s"].copy(),
            kind=requests["kind"].astype(np.int64),
            end_s=requests["end_s"].copy(),
            status=requests["status"].copy(),
            visits=boxes["visits"].copy(),
            dropped=boxes["dropped"].copy(),
            refused=boxes["refused"].copy(),
            hops=int(boxes["visits"].sum()),
            orphans=int(state["orphans"]),
            in_flight=engine.in_flight(self._engine),
            lost_s=boxes["row_lost_s"].copy(),
            waiting_s=boxes["backlog"].copy(),
        )

    # --- small parts -----------------------------------------------------------------------------

    def _apps(self, requests: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._app_of_request:
            return np.array([self._app_of_request[index] for index in requests.tolist()], np.int64)
        kinds: NDArray[np.int64] = self._app_of_kind[self._tables["requests"]["kind"][requests]]
        return kinds

    def _advance(self, at_s: float) -> int:
        while True:
            why = engine.advance(self._engine, at_s)
            if why == engine.NEEDS_ROOM:
                self._grow_nodes()
            elif why == engine.NEEDS_NUMBERS:
                self._draw()
            else:
                return why

    def _draw(self) -> None:
        """Replaces the random numbers that were used."""
        state, rng = self._engine[0], self._rng
        for name, draw in (
            ("exponential", rng.standard_exponential),
            ("normal", rng.standard_normal),
            ("uniform", rng.random),
        ):
            values, used = self._tables[f"{name}s"]["value"], int(state[name])
            if used == 0:
                continue
            left = len(values) - used
            values[:left] = values[used:].copy()
            values[left:] = draw(used)
            state[name] = 0
        state["numbers"] = _NUMBERS

    def _grow_nodes(self) -> None:
        nodes, state = self._tables["nodes"], self._engine[0]
        grown = _free_nodes(max(2 * len(nodes), len(nodes) + int(state["reserve"])))
        timers = np.zeros(len(grown), engine.TIMER)
        timers[: len(nodes)] = self._tables["timers"]
        grown[: len(nodes)] = nodes
        grown["next"][-1] = state["free"]
        state["free"] = len(nodes)
        state["spare"] += len(grown) - len(nodes)
        state["node_count"] = len(grown)
        self._replace("nodes", grown)
        self._replace("timers", timers)

    def _grow_requests(self) -> None:
        requests = self._tables["requests"]
        grown = np.zeros(max(2 * len(requests), _ROOM), engine.REQUEST)
        grown[: len(requests)] = requests
        self._replace("requests", grown)

    def _replace(self, name: str, table: engine.Records) -> None:
        self._tables[name] = table
        self._engine[name] = table.ctypes.data


# --- the engine's state ------------------------------------------------------------------------------


def _new_engine(workload: RequestWorkload, tables: dict[str, engine.Records], watch: bool) -> engine.Records:
    state = np.zeros(1, engine.ENGINE)
    for name in engine.TABLES:
        state[name] = tables[name].ctypes.data
    for name in ("node", "box", "host", "line"):
        state[f"{name}_count"] = len(tables["boxes" if name == "box" else f"{name}s"])
    trees, below = tables["trees"], int(tables["hosts"]["size"].sum())
    state["top"] = trees.ctypes.data + _TREE_BYTES * below
    state["top_size"] = trees.nbytes // _TREE_BYTES - below
    state["count"] = len(workload.arrivals.at_s)
    state["next_due_s"] = workload.arrivals.at_s[0] if len(workload.arrivals.at_s) else np.inf
    state["free"], state["spare"] = 1, len(tables["nodes"]) - 1
    state["client"] = len(workload.graph.call_handler)
    for name in _RANDOM:
        state[name.removesuffix("s")] = len(tables[name])  # none are there yet
    state["reserve"], state["busy_with"] = _reserve(workload.graph), -1
    client = workload.client
    state["connections"], state["queue"] = client.connections, client.queue
    state["timeout_s"], state["watch"] = client.timeout_s, watch
    state["wake_s"], state["wake_tau_s"] = workload.graph.wake_s, workload.graph.wake_tau_s
    return state


def _new_tables(workload: RequestWorkload) -> dict[str, engine.Records]:
    graph, arrivals = workload.graph, workload.arrivals
    lines, network, backoff, timeout = _delay_lines(graph, workload.client.way_s)
    requests = np.zeros(len(arrivals.at_s), engine.REQUEST)
    requests["at_s"], requests["kind"], requests["end_s"] = arrivals.at_s, arrivals.kind, np.nan
    boxes, hosts, members = _boxes(workload)
    owners = [*members, np.arange(len(boxes) + len(hosts) + len(lines) + 1)]
    trees = _trees(owners)
    sizes = np.array([_leaves(owner) for owner in members])
    hosts["size"] = sizes
    hosts["tree"] = trees.ctypes.data + _TREE_BYTES * (np.cumsum(sizes) - sizes)
    count = len(graph.call_handler)
    calls = np.zeros(count + len(graph.request_handler), engine.CALL)
    calls["network"][:count], calls["backoff"][:count], calls["timeout"][:count] = (
        network[:-1],
        backoff,
        timeout,
    )
    calls["handler"] = np.concatenate((graph.call_handler, graph.request_handler))
    calls["retries"][:count], calls["probability"][:count] = graph.retries, graph.probability
    calls["pool"][:count] = graph.pool
    for name in ("backoff", "timeout", "pool"):
        calls[name][count:] = -1
    calls["network"][count:] = network[-1]
    calls["direct"] = (calls["timeout"] < 0) & (calls["network"] < 0) & (calls["pool"] < 0)
    pools = np.zeros(len(graph.pool_connections), engine.POOL)
    pools["connections"] = graph.pool_connections
    stages = np.zeros(len(graph.first_call), engine.STAGE)
    stages["first_call"] = graph.first_call
    nodes = _free_nodes(_ROOM + _reserve(graph))
    runnable = _zeros(int(boxes["first"][-1] + graph.workers[-1]), engine.RUNNABLE)
    runnable["v"] = np.inf
    return {
        "nodes": nodes,
        "timers": np.zeros(len(nodes), engine.TIMER),
        "boxes": boxes,
        "hosts": hosts,
        "trees": trees,
        "lines": lines,
        "pools": pools,
        "services": np.zeros(len(graph.services), engine.SERVICE),
        "handlers": _handlers(graph),
        "stages": stages,
        "calls": calls,
        "runnable": runnable,
        "requests": requests,
        **{name: np.zeros(_NUMBERS, engine.NUMBER) for name in _RANDOM},
    }


def _reserve(graph: ServiceGraph) -> int:
    """Nodes that one event may take: the calls of one stage, an attempt given up, a request opened."""
    return int(np.diff(graph.first_call).max(initial=0)) + 4


def _zeros(count: int, dtype: np.dtype[np.void]) -> engine.Records:
    """Zeroed records whose first begins a cache line."""
    buffer = np.zeros(count * dtype.itemsize + _CACHE_LINE, np.uint8)
    start = -buffer.ctypes.data % _CACHE_LINE
    return buffer[start : start + count * dtype.itemsize].view(dtype)


def _free_nodes(count: int) -> engine.Records:
    """Nodes that are all free, each linked to the next."""
    nodes = _zeros(count, engine.NODE)
    nodes["next"][:-1] = np.arange(1, count)
    return nodes


def _leaves(owners: NDArray[np.int64]) -> int:
    return 1 << max(len(owners) - 1, 1).bit_length()


def _trees(members: list[NDArray[np.int64]]) -> engine.Records:
    """One tournament tree after another, nobody of whose members is due: keys, then owners."""
    table = _zeros(sum(3 * _leaves(owners) for owners in members), engine.KEY)
    first = 0
    for owners in members:
        size = _leaves(owners)
        tree = table["key"][first : first + 3 * size]
        tree[: 2 * size] = np.array(np.inf).view(np.int64)
        tree[2 * size :].view(np.int32)[size : size + len(owners)] = owners
        first += 3 * size
    return table


def _boxes(workload: RequestWorkload) -> tuple[engine.Records, engine.Records, list[NDArray[np.int64]]]:
    """(containers, hosts, the containers of each host)."""
    graph = workload.graph
    boxes = _zeros(len(workload.names), engine.BOX)
    boxes["status"] = ABSENT
    boxes["cap"] = np.minimum(workload.threads, workload.host_cores)
    boxes["host"] = workload.host
    boxes["least_v"], boxes["idle_since_s"] = np.inf, -np.inf
    # No powers of two: else the first visits of all containers compete for a few cache lines.
    boxes["first"][1:] = np.cumsum((graph.workers + 3) // 4 * 4 + 4)[:-1]
    for name in ("workers", "queue", "base_bytes", "request_bytes", "cache_bytes", "cache_request_bytes"):
        boxes[name] = getattr(graph, name)
    hosts = np.zeros(len(workload.cores_of_host), engine.HOST)
    hosts["cores"], hosts["next_u"] = workload.cores_of_host, np.inf
    hosts["imbalance"] = workload.imbalance
    hosts["speed"] = hosts["factor"] = 1.0 - workload.stolen
    slowed = workload.imbalance > 0.0 or workload.stolen > 0.0
    hosted = [np.flatnonzero(workload.host == index) for index in range(len(hosts))]
    for members, cores in zip(hosted, workload.cores_of_host, strict=True):
        boxes["leaf"][members] = np.arange(len(members))
        boxes["shared"][members] = slowed or boxes["cap"][members].sum() > cores
    return boxes, hosts, hosted


def _handlers(graph: ServiceGraph) -> engine.Records:
    handlers = _zeros(len(graph.handlers), engine.HANDLER)
    handlers["service"], handlers["draw"] = graph.handler_service, graph.draw
    handlers["first"] = graph.first_container[graph.handler_service]
    handlers["replicas"] = np.diff(graph.first_container)[graph.handler_service]
    handlers["first_stage"], handlers["last_stage"] = graph.first_stage[:-1], graph.first_stage[1:]
    handlers["share"] = 1.0 / (np.diff(graph.first_stage) + 1)
    handlers["mean_s"] = graph.mean_s
    variance = np.log1p(np.where(graph.draw == Draw.LOGNORMAL, graph.cv, 0.0) ** 2)
    with np.errstate(divide="ignore"):
        handlers["mu"] = np.log(graph.mean_s) - variance / 2
    handlers["sigma"] = np.sqrt(variance)
    return handlers


def _delay_lines(graph: ServiceGraph, way_s: float) -> tuple[engine.Records, Any, Any, Any]:
    """(lines, and per call the index of its network, backoff and timeout line, −1 = none); way_s: of clients'
    calls, whose network line comes after the others."""
    network_s = np.append(graph.network_s, way_s)
    delays = np.unique(np.concatenate((network_s, graph.backoff_s)))
    delays = delays[delays > 0.0]
    timeouts = np.unique(graph.timeout_s[np.isfinite(graph.timeout_s)])
    lines = np.zeros(len(delays) + len(timeouts), engine.LINE)
    lines["delay_s"] = np.concatenate((delays, timeouts))
    lines["kind"] = np.repeat((engine.DELAY, engine.TIMEOUT), (len(delays), len(timeouts)))

    def of(values: Floats, among: Floats, first: int, used: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.where(used, first + np.searchsorted(among, values), -1)

    return (
        lines,
        of(network_s, delays, 0, network_s > 0.0),
        of(graph.backoff_s, delays, 0, graph.backoff_s > 0.0),
        of(graph.timeout_s, timeouts, len(delays), np.isfinite(graph.timeout_s)),
    )
