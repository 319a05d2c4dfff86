"""Send requests when they are due, whatever the result of earlier ones, and record the result of each.

For: an open loop. After a stall, a server finds all requests that were due meanwhile. Their latencies count
from the moment at which they were due, so the stall counts fully ("coordinated omission", Tene 2013). Not
for: files and processes (main.py). The rules for connections, queue and timeout are those of the twin's
engine.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from http import HTTPStatus
from urllib.parse import urlsplit

import numpy as np
from hdrh.histogram import HdrHistogram

from control.allocator.model import ServiceStats
from control.services import RequestStatus
from testbed.containers.load.plan import LoadPlan, LoadResult
from testbed.containers.load.timer import Timer
from testbed.containers.load.tracing import Tracing, level
from testbed.containers.services.http1 import Replicas, request
from testbed.containers.services.tracing import FIRST_PORT, MARK

_STATUS: dict[int, RequestStatus] = {
    HTTPStatus.OK: RequestStatus.OK,
    HTTPStatus.SERVICE_UNAVAILABLE: RequestStatus.DROPPED,
}
_LONGEST_US = 3_600_000_000
_DIGITS = 3
_NEVER_NS = 1 << 62


class Sender:
    """Sends one plan. Make it in a running event loop.

    begins_ns: time of second 0 (CLOCK_MONOTONIC, ns). tracing: the plan's traced requests. latencies:
    HdrHistogram of answered requests' latencies, µs. arrived, ended: numbers of requests that were due, and
    that have ended, so far.
    """

    def __init__(self, plan: LoadPlan, begins_ns: int) -> None:
        self._plan, self._begins_ns = plan, begins_ns
        self._at_ns: list[int] = (begins_ns + np.round(plan.at_s * 1e9).astype(np.int64)).tolist()
        self._kind: list[int] = plan.kind.tolist()
        self._end_ns = [0] * len(self._at_ns)
        self._late_ns = [0] * len(self._at_ns)
        self._status = bytearray(len(self._at_ns))
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._waiting: deque[int] = deque()
        self._waiting_count = self._expiring = 0
        self._routes = _routes(plan)
        self._awake = asyncio.Event()
        self._stopped = False
        self._cpu_s = time.process_time()
        self.latencies = HdrHistogram(1, _LONGEST_US, _DIGITS)
        self.tracing = Tracing(plan)
        self._over: list[int] = []
        self._told, self._told_ns = 0, begins_ns
        self.arrived = self.ended = 0

    def stop(self) -> None:
        """Make `send` return at once."""
        self._stopped = True
        self._awake.set()

    async def send(self) -> bool:
        """Send until all requests have ended or the plan's time is over. Returns False if it was stopped."""
        ends_ns = self._begins_ns + round(self._plan.duration_s * 1e9)
        with Timer(self._awake) as timer:
            while (now_ns := time.monotonic_ns()) < ends_ns and self.ended < len(self._at_ns):
                self._give_up(now_ns)
                self._ask(now_ns, ends_ns)
                timer.set(self._next_ns(ends_ns))
                await self._awake.wait()
                self._awake.clear()
                if self._stopped:
                    break
        if not self._stopped:
            self._note_missed(ends_ns)
        # A request that is cancelled here must not open the next in line.
        self._waiting.clear()
        left = list(self._tasks.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for route, *_ in self._routes:
            route.close()
        await asyncio.sleep(0)  # the loop closes connections in its next turn
        return not self._stopped

    def result(self, *, complete: bool) -> LoadResult:
        """Return the results of the requests due by now. Those that have not ended are PENDING."""
        count = self.arrived
        status = np.frombuffer(bytes(self._status[:count]), np.uint8)
        end_s = (np.array(self._end_ns[:count], np.int64) - self._begins_ns) * 1e-9
        return LoadResult(
            at_s=self._plan.at_s[:count],
            kind=self._plan.kind[:count],
            end_s=np.where(status == RequestStatus.PENDING, np.nan, end_s),
            status=status,
            late_s=np.array(self._late_ns[:count], np.float64) * 1e-9,
            cpu_s=time.process_time() - self._cpu_s,
            complete=complete,
        )

    def level(self) -> ServiceStats:
        """Return the service level since the last call; see testbed.containers.load.tracing.level."""
        now_ns, over, plan = time.monotonic_ns(), self._over, self._plan
        latency_s = [(self._end_ns[index] - self._at_ns[index]) * 1e-9 for index in over]
        status = [self._status[index] for index in over]
        spans = self.tracing.window(self._begins_ns, FIRST_PORT) if plan.spans_wanted else None
        interval_s = (now_ns - self._told_ns) * 1e-9
        came, at_s = plan.kind[self._told : self.arrived], (now_ns - self._begins_ns) * 1e-9
        self._told, self._told_ns, self._over = self.arrived, now_ns, []
        return level(came, latency_s, status, interval_s, at_s, spans)

    def _next_ns(self, ends_ns: int) -> int:
        """Return the time of the next action, ns."""
        due_ns = self._at_ns[self.arrived] if self.arrived < len(self._at_ns) else ends_ns
        return min(due_ns, self._expires_ns(), ends_ns)

    def _ask(self, now_ns: int, ends_ns: int) -> None:
        """Send, queue or drop every request that is due."""
        plan = self._plan
        while self.arrived < len(self._at_ns) and self._at_ns[self.arrived] <= min(now_ns, ends_ns - 1):
            index = self.arrived
            self.arrived += 1
            self._late_ns[index] = now_ns - self._at_ns[index]
            if not plan.connections or len(self._tasks) < plan.connections:
                self._open(index)
            elif self._waiting_count < plan.queue:
                self._waiting_count += 1
                self._waiting.append(index)
            else:
                self._end(index, RequestStatus.DROPPED, now_ns)

    def _note_missed(self, ends_ns: int) -> None:
        """Note requests that were due before the end while this process did not run."""
        now_ns = time.monotonic_ns()
        while self.arrived < len(self._at_ns) and self._at_ns[self.arrived] < ends_ns:
            self._late_ns[self.arrived] = now_ns - self._at_ns[self.arrived]
            self.arrived += 1

    def _open(self, index: int) -> None:
        task = asyncio.get_running_loop().create_task(self._request(index))
        self._tasks[index] = task

    async def _request(self, index: int) -> None:
        route, host, path, message = self._routes[self._kind[index]]
        began_ns = time.monotonic_ns()
        if self.tracing.begin(index):
            message = request(host, f"{path}{MARK}{index}")
        try:
            code, port = await route.ask(message)
        except OSError:
            status = RequestStatus.FAILED
        else:
            status = _STATUS.get(code, RequestStatus.FAILED)
        now_ns = time.monotonic_ns()
        if status is RequestStatus.OK:
            self.tracing.answered(index, port, began_ns, now_ns)
        self._close(index, status, now_ns)

    def _close(self, index: int, status: RequestStatus, now_ns: int) -> None:
        """End a request that was open, and open the next in line."""
        if self._status[index] != RequestStatus.PENDING:
            return
        del self._tasks[index]
        self._end(index, status, now_ns)
        while self._waiting:
            following = self._waiting.popleft()
            if self._status[following] == RequestStatus.PENDING:
                self._waiting_count -= 1
                self._open(following)
                return

    def _end(self, index: int, status: RequestStatus, now_ns: int) -> None:
        self._status[index], self._end_ns[index] = status, now_ns
        self._over.append(index)
        self.ended += 1
        if status is not RequestStatus.OK:
            self.tracing.forget(index)
        if status is RequestStatus.OK:
            self.latencies.record_value(min(max((now_ns - self._at_ns[index]) // 1000, 1), _LONGEST_US))
        if self.ended == len(self._at_ns):
            self._awake.set()

    def _expires_ns(self) -> int:
        """Return the time at which the client gives up the oldest request that has not ended, ns."""
        if not np.isfinite(self._plan.timeout_s):
            return _NEVER_NS
        while self._expiring < self.arrived and self._status[self._expiring] != RequestStatus.PENDING:
            self._expiring += 1
        if self._expiring == self.arrived:
            return _NEVER_NS
        return self._at_ns[self._expiring] + round(self._plan.timeout_s * 1e9)

    def _give_up(self, now_ns: int) -> None:
        while self._expires_ns() <= now_ns:
            index = self._expiring
            task = self._tasks.get(index)
            if task is None:
                self._waiting_count -= 1
                self._end(index, RequestStatus.TIMED_OUT, now_ns)
            else:
                task.cancel()
                self._close(index, RequestStatus.TIMED_OUT, now_ns)


def _routes(plan: LoadPlan) -> list[tuple[Replicas, str, str, bytes]]:
    """Return for each kind the servers to ask in turn, shared by kinds with the same service, host and path,
    and the message of a request that is not traced."""
    replicas: dict[tuple[tuple[str, int], ...], Replicas] = {}
    routes = []
    for urls in plan.entries:
        parts = [urlsplit(url) for url in urls]
        addresses = tuple((part.hostname or "", part.port or 80) for part in parts)
        if addresses not in replicas:
            replicas[addresses] = Replicas(addresses)
        host, path = addresses[0][0], parts[0].path or "/"
        routes.append((replicas[addresses], host, path, request(host, path)))
    return routes
