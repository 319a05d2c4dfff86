"""The controller: listens to agents and their telemetry, and sends them what its books decide.

For: sockets, calls, clocks, and who is still there. Not for: what follows from a report (books.py). It is one
asyncio loop, so the allocator is asked one thing at a time. TCP (gRPC) and UDP use the same port number. It
keeps nothing on disk: agents hold their limits while it is away, and tell a new controller what they have.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import grpc

from control.allocator.ports import Allocator
from testbed.containers.remote import datagrams, service
from testbed.containers.remote.books import ControllerBooks, RefusedError
from testbed.containers.remote.certificates import Identity
from testbed.containers.remote.deployment import Deployment
from testbed.containers.remote.messages_pb2 import Hello, Order, Report
from testbed.containers.remote.refusals import Refusals
from twinbed import BackendError

_TICK_S = 0.25
TLS_S = 5.0
"""A connection from which no call came for so long was refused by TLS, s. gRPC does not tell, so it is
counted here."""

_RECEIVE_BYTES = 4 << 20
_MAX_QUEUED = 1_000
_log = logging.getLogger("twinbed.controller")


@dataclass(slots=True)
class _Connection:
    """One agent's call, and the orders that wait to be written to it."""

    agent: str
    session: int
    orders: asyncio.Queue[Order] = field(default_factory=asyncio.Queue)


class Controller(asyncio.DatagramProtocol):
    """Runs `allocator` for a deployment.

    identity: read anew for each connection; on_latency: called with the seconds from sending a record to
    writing its last limit, as agents report them; clock: seconds, monotonic. books: the state; gate,
    refusals: what was let in, and what was not; telemetry_bytes: bytes of all datagrams that came.
    """

    def __init__(
        self,
        deployment: Deployment,
        allocator: Allocator,
        identity: Callable[[], Identity],
        *,
        on_latency: Callable[[float], None] = lambda _seconds: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.refusals = Refusals(_log, clock)
        self.gate = datagrams.Gate(self.refusals)
        self.books = ControllerBooks(deployment, allocator, self.refusals, clock())
        self.telemetry_bytes = 0
        self._identity = identity
        self._on_latency = on_latency
        self._clock = clock
        self._connections: dict[str, _Connection] = {}
        self.by_session: dict[int, _Connection] = {}
        self._handshakes: deque[float] = deque()
        self._failure: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._port = 0

    async def run(self, listen: str, stop: asyncio.Event, on_ready: Callable[[int], None]) -> None:
        """Serve at HOST:PORT (port 0: any) until `stop` is set; call on_ready with the port. Raises
        BackendError when the address cannot be listened on, and what the allocator raises."""
        self._loop = asyncio.get_running_loop()
        self._failure = self._loop.create_future()
        server, credentials = service.server(
            self._attend,
            self._identity,
            self._note_handshake,
        )
        try:
            self._port = server.add_secure_port(listen, credentials)
        except RuntimeError as error:
            raise BackendError(f"{listen}: cannot be listened on (TCP); choose another --listen") from error
        transport = await self._listen_for_telemetry(listen.rpartition(":")[0])
        await server.start()
        ticks = asyncio.create_task(self._ticks())
        stopping = asyncio.create_task(stop.wait())
        try:
            on_ready(self._port)
            ends: set[asyncio.Future[Any]] = {stopping, ticks, self._failure}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for future in ends - {stopping}:
                if future.done():
                    future.result()
        finally:
            for task in (ticks, stopping):
                task.cancel()
            await asyncio.gather(ticks, stopping, return_exceptions=True)
            transport.close()
            await server.stop(0)

    async def _listen_for_telemetry(self, host: str) -> asyncio.DatagramTransport:
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.create_datagram_endpoint(
                lambda: self, local_addr=(host.strip("[]"), self._port)
            )
        except OSError as error:
            raise BackendError(
                f"{host}:{self._port}: cannot be listened on (UDP, {error.strerror}); choose another --listen"
            ) from error
        # Many agents' periods may end at the same moment.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        return transport

    # --- telemetry -------------------------------------------------------------------------------

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """Take in a datagram, from whomever."""
        self.telemetry_bytes += len(data)
        batch = self.gate.receive(data, str(addr[0]))
        if batch is None:
            return
        agent = self.by_session[batch.session].agent
        self._guarded(lambda: self.books.telemetry(agent, batch, self._clock()))

    # --- agents ----------------------------------------------------------------------------------

    def _note_handshake(self) -> None:
        """Count a connection. gRPC calls this from a thread of its own."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._handshakes.append, self._clock())

    async def _attend(self, requests: Any, context: Any) -> None:
        """Serve one agent's call, from Hello to its end."""
        del requests
        if self._handshakes:
            self._handshakes.popleft()
        hello = await self._hello(context)
        connection = await self._register(hello, context)
        speaker = asyncio.create_task(self._speak(connection, context))
        why = "its connection broke"
        try:
            while True:
                report = await asyncio.wait_for(context.read(), service.SILENCE_S)
                if report is grpc.aio.EOF:
                    why = "it ended the call"
                    break
                if report is None:
                    self.refusals.add("malformed message", f"from agent {connection.agent}")
                    why = "it sent what is no message"
                    break
                if report.round_trip_ns > 0:
                    self._on_latency(report.round_trip_ns / 1e9)
                self._reported(connection.agent, report)
        except TimeoutError:
            why = f"silent for {service.SILENCE_S:g} s"
        finally:
            speaker.cancel()
            self._ended(connection, why)

    async def _hello(self, context: Any) -> Hello:
        try:
            report = await asyncio.wait_for(context.read(), service.SILENCE_S)
        except TimeoutError:
            report = None
        if not isinstance(report, Report) or report.WhichOneof("what") != "hello":
            self.refusals.add("malformed message", f"no Hello from {context.peer()}")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call begins with a Hello")
        return cast(Report, report).hello

    async def _register(self, hello: Hello, context: Any) -> _Connection:
        names = context.auth_context().get("x509_common_name", [])
        session, key = secrets.randbits(63), secrets.token_bytes(datagrams.KEY_BYTES)
        try:
            if hello.version != service.PROTOCOL_VERSION:
                raise RefusedError(f"agent {hello.name!r} speaks version {hello.version}")  # noqa: TRY301
            if names != [hello.name.encode()]:
                raise RefusedError(f"agent {hello.name!r} shows the certificate of {names}")  # noqa: TRY301
            self.books.register(hello, session, self._clock())
        except RefusedError as error:
            self.refusals.add("registration", f"{error} ({context.peer()})")
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        former = self._connections.get(hello.name)
        if former is not None:
            self._close(former)
        connection = _Connection(hello.name, session)
        self._connections[hello.name] = self.by_session[session] = connection
        self.gate.open(session, key)
        connection.orders.put_nowait(self._welcome(hello.name, session, key))
        return connection

    def _welcome(self, agent: str, session: int, key: bytes) -> Order:
        order, rule = Order(), self.books.allocator.reclaim
        welcome = order.welcome
        welcome.session, welcome.key, welcome.telemetry_port = session, key, self._port
        welcome.traps_oom = self.books.allocator.traps_oom
        if rule is not None:
            welcome.reclaim_interval_s, welcome.reclaim_margin_bytes = rule.interval_s, rule.margin_bytes
        for name, placed in self.books.deployment.containers_of(agent).items():
            welcome.containers.add(
                name=name,
                command=placed.command,
                environment=dict(placed.environment),
                attach=dict(placed.attach),
                runtime=placed.runtime,
            )
        for watch in self.books.deployment.watches_of(agent):
            welcome.watches.add(parent=watch.parent, pattern=watch.pattern)
        return order

    async def _speak(self, connection: _Connection, context: Any) -> None:
        """Write orders as they come, and a heartbeat when there are none."""
        with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
            while True:
                try:
                    order = await asyncio.wait_for(connection.orders.get(), service.HEARTBEAT_S)
                except TimeoutError:
                    order = Order()
                await context.write(order)

    def _reported(self, agent: str, report: Report) -> None:
        self._guarded(lambda: self.books.reported(agent, report, self._clock()))

    def _ended(self, connection: _Connection, why: str) -> None:
        """Note that a call is over: the agent is lost, unless another call has taken its place."""
        self._close(connection)
        if self._connections.get(connection.agent) is connection:
            del self._connections[connection.agent]
            self._guarded(lambda: self.books.lost(connection.agent, why, self._clock()))

    def _close(self, connection: _Connection) -> None:
        self.gate.close(connection.session)
        self.by_session.pop(connection.session, None)

    # --- orders ----------------------------------------------------------------------------------

    def _guarded(self, action: Callable[[], None]) -> None:
        """Do something and send the orders that come of it. What it raises ends the controller, and no
        container."""
        try:
            action()
            for agent, order in self.books.take_orders():
                orders = self._connections[agent].orders
                if orders.qsize() < _MAX_QUEUED:
                    orders.put_nowait(order)
        except Exception as error:
            if self._failure is None:
                raise
            if not self._failure.done():
                self._failure.set_exception(error)

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            now_s = self._clock()
            self._guarded(lambda: self.books.tick(self._clock()))
            while self._handshakes and now_s - self._handshakes[0] >= TLS_S:
                self._handshakes.popleft()
                self.refusals.add(
                    "certificate",
                    "a connection without a certificate of ours that is in date, or none at all",
                )
