"""A container's handling of a request: a worker, its CPU demand in parts, and the calls between them.

For: the rules of twin.containers.requests.model.ServiceGraph in a real process. Not for: connections
(http1.py), CPU (burn.py) or memory (footprint.py), which it uses. Real containers differ from the twin in
four ways: each caller takes replicas in its own turn; a caller learns that a replica is down when it refuses
a connection, and tries the next one; a pool of connections is shared out evenly over the calling service's
replicas (rounded up); timeouts and backoffs have a resolution of 1 ms. As in the twin, a visit whose caller
gave up continues, and keeps its worker until its end.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from http import HTTPStatus

from control.services import Call, Draw, Handler, Service
from testbed.containers.services.burn import Burner
from testbed.containers.services.footprint import Footprint
from testbed.containers.services.http1 import Replicas, request
from testbed.containers.services.tracing import MARK, Teller, Visit

READY_PATH = "/-/ready"
"""Path that is answered at once with 204, so that a deployment sees whether the container serves. No handler
has this name."""

_AHEAD = 64
"""Number of demands that are drawn at a time. Single draws would run with cold caches and lengthen visits."""

Addresses = Mapping[str, Sequence[tuple[str, int]]]


class Visits:
    """One container of a service. Make it in a running event loop. addresses: addresses of every service's
    replicas; seed: seed of the draws; teller: sends the calls of traced requests."""

    def __init__(self, service: Service, addresses: Addresses, seed: str, teller: Teller) -> None:
        self._teller = teller
        self._handlers = {f"/{name}": handler for name, handler in service.handlers.items()}
        self._free, self._queue_limit = service.workers, service.queue
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._draws = {f"/{name}": random.Random(f"{seed}/{name}") for name in service.handlers}
        self._demands_s: dict[str, list[float]] = {path: [] for path in self._handlers}
        callees = {call.service for handler in service.handlers.values() for call in handler.calls()}
        self._replicas = {name: Replicas(addresses[name]) for name in callees}
        self._hosts = {name: addresses[name][0][0] for name in callees}
        self._messages: dict[str, bytes] = {}
        self._connections = {
            name: asyncio.Semaphore(math.ceil(limit / service.replicas))
            for name, limit in service.connections.items()
        }
        self._burner = Burner(service.threads)
        self._footprint = Footprint(service.memory)

    async def answer(self, path: str) -> HTTPStatus:
        """Serve one request: 200, 500 when a call failed, 503 when the queue is full, 404."""
        path, _, span = path.partition(MARK)
        handler = self._handlers.get(path)
        if handler is None:
            return HTTPStatus.NO_CONTENT if path == READY_PATH else HTTPStatus.NOT_FOUND
        if self._free and not self._waiting:
            self._free -= 1
        elif len(self._waiting) < self._queue_limit:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        else:
            return HTTPStatus.SERVICE_UNAVAILABLE
        held, visit = self._footprint.hold(), Visit(span) if span else None
        try:
            good = await self._visit(path, handler, visit)
        finally:
            if visit is not None:
                self._teller.tell(visit)
            self._footprint.give_back(held)
            self._give_worker_back()
        return HTTPStatus.OK if good else HTTPStatus.INTERNAL_SERVER_ERROR

    def _give_worker_back(self) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._free += 1

    async def _visit(self, path: str, handler: Handler, visit: Visit | None) -> bool:
        draws, demands_s = self._draws[path], self._demands_s[path]
        if not demands_s:
            demands_s.extend(_drawn(handler, draws) for _ in range(_AHEAD))
        part_s = demands_s.pop() / (len(handler.stages) + 1)
        await self._burner.burn(part_s)
        for stage in handler.stages:
            calls = [call for call in stage if call.probability >= 1 or draws.random() < call.probability]
            if len(calls) == 1:
                good = await self._call(calls[0], visit)
            else:
                good = all(await asyncio.gather(*(self._call(call, visit) for call in calls)))
            if not good:
                return False
            await self._burner.burn(part_s)
        return True

    async def _call(self, call: Call, visit: Visit | None) -> bool:
        """Make a call until an attempt succeeds or no attempt is left. Return whether one succeeded."""
        for attempt in range(1 + call.retries):
            if attempt and call.backoff_s:
                await asyncio.sleep(call.backoff_s)
            try:
                if call.timeout_s is None:
                    status = await self._ask(call.handler, visit)
                else:
                    async with asyncio.timeout(call.timeout_s):
                        status = await self._ask(call.handler, visit)
            except OSError:  # refused, reset or timed out; TimeoutError is an OSError
                continue
            if status == HTTPStatus.OK:
                return True
        return False

    async def _ask(self, target: str, visit: Visit | None) -> int:
        service, _, handler = target.partition(".")
        span, began_ns = "" if visit is None else visit.call(), time.monotonic_ns()
        message = self._messages.get(target)
        if span:
            message = request(self._hosts[service], f"/{handler}{MARK}{span}")
        elif message is None:
            message = self._messages[target] = request(self._hosts[service], f"/{handler}")
        connection = self._connections.get(service)
        async with connection or nullcontext():
            status, port = await self._replicas[service].ask(message)
        if visit is not None:
            visit.answered(span, port, began_ns)
        return status


def _drawn(handler: Handler, draws: random.Random) -> float:
    """Return the CPU seconds of a visit."""
    if handler.draw == Draw.EXPONENTIAL:
        return draws.expovariate(1.0) * handler.mean_s
    if handler.draw == Draw.LOGNORMAL and handler.mean_s > 0:
        variance = math.log1p(handler.cv**2)
        return draws.lognormvariate(math.log(handler.mean_s) - variance / 2, math.sqrt(variance))
    return handler.mean_s
