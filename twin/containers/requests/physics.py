"""Requests through a service graph as a `Physics`: the control loop's view of the engine.

For: the port's methods, and requests that are injected one by one and watched (serverless pods). Not for:
simulating requests (engine/), building the state (tables.py), nor decisions.

The arrays of the fleet are views of the engine's records, so that the loop and the engine see the same
limits. Two meanings differ from cfs.py: `since` is the host's time of the last account, and `backlog`, `pool`
and `used` are as of then. A container is checked against its memory limit when a visit takes a worker or
ends.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Bytes, CpuLimits, ServiceStats
from control.services import RequestStatus
from twin.containers.cfs import ABSENT, DOWN, Fleet, Report, Rows
from twin.containers.members import Columns, Members
from twin.containers.model import Floats, Machine
from twin.containers.requests import engine, tracing
from twin.containers.requests.checks import check
from twin.containers.requests.engine import records
from twin.containers.requests.model import RequestLog, RequestWorkload
from twin.containers.requests.tables import NUMBERS, ROOM, free_nodes, new_engine, new_tables
from twinbed import InvariantError


class Requests:
    """The containers of a `RequestWorkload` and the requests in them; implements `physics.Physics`.

    seed: seed of the CPU demands and of the choice of calls. watch: `run_until` also stops at each instant at
    which client requests end; `take_finished` returns these requests. starting: columns at the start
    (default: all). windowed: `service_level` returns the spans of answered requests. Raises InvariantError
    for arrays that do not belong together, values out of range, or a cyclic graph.
    """

    def __init__(
        self,
        workload: RequestWorkload,
        machine: Machine,
        seed: np.random.SeedSequence,
        *,
        watch: bool = False,
        starting: Columns | None = None,
        windowed: bool = False,
    ) -> None:
        check(workload)
        self.population = workload
        self.periods = workload.periods
        self.host = workload.host
        self.signalled = False
        self._machine = machine
        self._rng = np.random.default_rng(seed)
        self._starting = np.arange(len(workload.names)) if starting is None else starting
        ends = workload.period_s - workload.phase_s
        self.ends_s, self.group = np.unique(ends, return_inverse=True)
        self._columns = [np.flatnonzero(self.group == group) for group in range(len(self.ends_s))]
        self.tables = new_tables(workload)
        self.engine = new_engine(workload, self.tables, watch)
        self._windowed = windowed
        tracing.begin(workload, self.tables, self.engine, seed, windowed)
        self._draw()
        containers = self.tables["containers"]
        self.fleet = Fleet(**{name: containers[name] for name in Fleet._fields})
        self._over: Columns = np.empty(len(containers), np.int64)
        self._seen = self._taken = 0
        self._asked_s, self._asked = 0.0, 0
        graph = workload.graph
        first = graph.first_container[graph.handler_service[graph.request_handler]]
        self._app_of_kind = workload.app[first]
        self._app_of_request: dict[int, int] = {}

    def first(self) -> Columns:
        """Return the columns that are present at the start."""
        return self._starting

    # --- time ------------------------------------------------------------------------------------

    def run_until(self, at_s: float) -> float:
        """Advance everything to `at_s`, or to an earlier instant that needs the loop. Return it, s."""
        self.signalled = self._advance(at_s) == records.SIGNALLED
        return float(self.engine["now"][0]) if self.signalled else at_s

    def end_period(self, row: int, group: int, report: Report) -> Columns:
        """End period `row` of the group's containers; see `Physics`."""
        columns, machine, over = self._columns[group], self._machine, self._over
        period_s = self.population.period_s
        count = engine.end_period(self.engine, columns, period_s, machine.burst_s, report, over)
        if count < 0:
            name = self.population.names[-1 - count]
            raise InvariantError(
                f"container {name!r}, period {row}: more done than its CPUs or its quota can do"
            )
        return over[:count].copy()

    def account(self, columns: Columns) -> None:
        """See `Physics`."""
        engine.account(self.engine, columns)

    def record(self, rows: Rows, row: int, group: int, report: Report) -> None:
        """Write the row of the group's containers into the series."""
        engine.record(self.engine, rows, row, self._columns[group], report, self.population.period_s)

    # --- limits and life -------------------------------------------------------------------------

    def write_quotas(self, members: Members, limits: CpuLimits, order: int) -> int:
        """Write quotas now; see `Physics`."""
        return engine.write_quotas(
            self.engine,
            members.issued,
            members.column_of,
            limits.ids,
            limits.quota_cores,
            limits.reason,
            order,
            self.population.period_s,
            self._machine.burst_s,
        )

    def weigh(self, columns: Columns, weights: Floats) -> None:
        """See `Physics`. From now on the columns' hosts share by weight (engine/)."""
        engine.weigh(self.engine, columns, weights)

    def take_over(self) -> Columns:
        """Return the running containers that exceeded their memory limit since the last call."""
        containers = self.tables["containers"]
        over: Columns = containers["over_list"][: engine.keep_exceeding(self.engine)].astype(np.int64)
        containers["over"][over] = False
        self.engine["over"] = 0
        return over

    def changes(self, row: int) -> tuple[Columns, Columns] | None:  # noqa: ARG002 — nobody comes or goes by itself
        """Return None: the graph's containers are there from start to end."""
        return None

    def admit(self, columns: Columns, quota_cores: Floats, limit_bytes: Bytes) -> None:
        """Start newcomers now, UP. The quota write that comes with it fills their pools."""
        fleet = self.fleet
        fleet.quota[columns] = quota_cores
        fleet.limit_bytes[columns] = limit_bytes
        engine.start(self.engine, columns)
        self._advance(-np.inf)

    def dismiss(self, columns: Columns) -> None:
        """Remove containers now. Their visits fail."""
        engine.kill(self.engine, columns, ABSENT)
        self._advance(-np.inf)
        for values in (self.fleet.quota, self.fleet.pool, self.fleet.limit_bytes):
            values[columns] = 0

    def hold(self, columns: Columns) -> None:
        """Stop containers at their memory limit."""
        engine.stop(self.engine, columns)

    def take_down(self, columns: Columns) -> None:
        """Kill or restart containers. Their visits fail; the visits' calls continue without a caller."""
        engine.kill(self.engine, columns, DOWN)
        self._advance(-np.inf)

    def dependents(self, columns: Columns) -> Columns:
        """See `Physics`. A service whose callee goes down fails requests, and runs on."""
        return columns[:0]

    def burn(self, columns: Columns, cpu_s: Floats) -> None:
        """Use CPU as `Physics` says. The CPU used beyond the visits' work counts as work that arrived."""
        self.fleet.pool[columns] -= cpu_s
        self.fleet.used[columns] += cpu_s

    def release(self, columns: Columns) -> None:
        """Let held containers continue, and containers that were down start again. Their queues move up."""
        engine.start(self.engine, columns)
        self._advance(-np.inf)

    # --- requests --------------------------------------------------------------------------------

    def inject(self, kind: int, column: int) -> int:
        """Make a client request of `kind` now, directly at container `column`; return its index in the log.

        It bypasses the client's connections and queue but keeps its timeout. Raises InvariantError for a
        workload with arrivals, or an unknown kind or column.
        """
        arrivals = len(self.population.arrivals.at_s)
        if arrivals or not 0 <= kind < len(self._app_of_kind) or not 0 <= column < len(self.fleet.status):
            raise InvariantError(
                f"a request of kind {kind} cannot be injected into container {column} ({arrivals} arrivals)"
            )
        state = self.engine[0]
        index = int(state["count"])
        if index == len(self.tables["requests"]):
            self._grow_requests()
        if state["spare"] < state["reserve"]:
            self._grow_nodes()
        request = self.tables["requests"][index]
        request["at_s"], request["kind"], request["end_s"] = state["now"], kind, np.nan
        state["count"] += 1
        self._app_of_request[index] = int(self.population.app[column])
        engine.inject(self.engine, column)
        self._advance(-np.inf)
        return index

    def take_finished(self) -> NDArray[np.int64]:
        """Return int64[n], the requests that ended since the last call, in the order they ended."""
        ended = int(self.engine["ended"][0])
        finished: NDArray[np.int64] = self.tables["requests"]["order"][self._taken : ended].astype(np.int64)
        self._taken = ended
        return finished

    def service_level(self, now_s: float) -> ServiceStats:
        """Return the service level since the last call; see `Physics`."""
        state, requests = self.engine[0], self.tables["requests"]
        ended, arrived, now = int(state["ended"]), int(state["arrived"]), float(state["now"])
        came = self._apps(np.arange(self._asked, arrived))
        over = requests["order"][self._seen : ended]
        answered = over[requests["status"][over] == RequestStatus.OK]
        latency, apps = requests["end_s"][answered] - requests["at_s"][answered], self._apps(answered)
        count = len(self.population.applications)
        p99 = np.full(count, np.nan)
        for app in np.unique(apps):
            p99[app] = np.quantile(latency[apps == app], 0.99)
        all_over = np.bincount(self._apps(over), minlength=count)
        failed = 1.0 - np.bincount(apps, minlength=count) / np.maximum(all_over, 1)
        failed[all_over == 0] = 0.0
        wall_s = now - self._asked_s
        rate = np.bincount(came, minlength=count) / wall_s if wall_s > 0 else np.zeros(count)
        self._seen, self._asked, self._asked_s = ended, arrived, now
        spans = mix = None
        if self._windowed:
            mix = self._mix(requests["kind"][arrived - len(came) : arrived])
            spans = tracing.window(self.population.graph, self.tables, self.engine, answered.astype(np.int64))
        return ServiceStats(rate, p99, now_s, spans, mix, failed)

    def _mix(self, kinds: NDArray[np.int64]) -> Floats:
        """Return the shares of each application's three commonest kinds of request, float64[apps, 3]."""
        count = np.bincount(kinds, minlength=len(self._app_of_kind)).astype(np.float64)
        mix = np.zeros((len(self.population.applications), 3))
        for app in range(len(mix)):
            most = np.sort(count[self._app_of_kind == app])[::-1]
            mix[app, : min(len(most), 3)] = most[:3] / max(float(most.sum()), 1.0)
        return mix

    def finish(self) -> RequestLog:
        """Return the log of the requests. CPU counters are those of each container's last period end."""
        state, containers = self.engine[0], self.tables["containers"]
        requests = self.tables["requests"][: int(state["count"])]
        return RequestLog(
            at_s=requests["at_s"].copy(),
            kind=requests["kind"].astype(np.int64),
            end_s=requests["end_s"].copy(),
            status=requests["status"].copy(),
            visits=containers["visits"].copy(),
            dropped=containers["dropped"].copy(),
            refused=containers["refused"].copy(),
            hops=int(containers["visits"].sum()),
            orphans=int(state["orphans"]),
            in_flight=engine.in_flight(self.engine),
            lost_s=containers["row_lost_s"].copy(),
            waiting_s=containers["backlog"].copy(),
            spans=tracing.kept(self.population.graph, self.tables, self.engine),
        )

    # --- small parts -----------------------------------------------------------------------------

    def _apps(self, requests: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._app_of_request:
            return np.array([self._app_of_request[index] for index in requests.tolist()], np.int64)
        kinds: NDArray[np.int64] = self._app_of_kind[self.tables["requests"]["kind"][requests]]
        return kinds

    def _advance(self, at_s: float) -> int:
        until = float(at_s)  # a whole number would make Numba compile the engine once more
        while True:
            why = engine.advance(self.engine, until)
            if why == records.NEEDS_ROOM:
                self._grow_nodes()
            elif why == records.NEEDS_NUMBERS:
                self._draw()
            else:
                return why

    def _draw(self) -> None:
        """Replace the random numbers that were used."""
        state, rng = self.engine[0], self._rng
        for name, draw in (
            ("exponential", rng.standard_exponential),
            ("normal", rng.standard_normal),
            ("uniform", rng.random),
        ):
            values, used = self.tables[f"{name}s"]["value"], int(state[name])
            if used == 0:
                continue
            left = len(values) - used
            values[:left] = values[used:].copy()
            values[left:] = draw(used)
            state[name] = 0
        state["numbers"] = NUMBERS

    def _grow_nodes(self) -> None:
        nodes, state = self.tables["nodes"], self.engine[0]
        grown = free_nodes(max(2 * len(nodes), len(nodes) + int(state["reserve"])))
        timers = np.zeros(len(grown), records.TIMER)
        timers[: len(nodes)] = self.tables["timers"]
        grown[: len(nodes)] = nodes
        grown["next"][-1] = state["free"]
        state["free"] = len(nodes)
        state["spare"] += len(grown) - len(nodes)
        state["node_count"] = len(grown)
        self._replace("nodes", grown)
        self._replace("timers", timers)

    def _grow_requests(self) -> None:
        requests = self.tables["requests"]
        grown = np.zeros(max(2 * len(requests), ROOM), records.REQUEST)
        grown[: len(requests)] = requests
        self._replace("requests", grown)

    def _replace(self, name: str, table: records.Records) -> None:
        self.tables[name] = table
        self.engine[name] = table.ctypes.data
