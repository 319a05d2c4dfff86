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
from testbed.containers.remote.joining import quoted
from testbed.containers.remote.messages_pb2 import Hello, Order, Report, Wanted, Welcome
from testbed.containers.remote.pieces import pieces
from testbed.containers.remote.refusals import Refusals
from twinbed import BackendError

_TICK_S = 0.25
TLS_S = 5.0
"""A connection from which no call came for so long was refused by TLS, s. gRPC does not tell, so it is
counted here."""

_RECEIVE_BYTES = 4 << 20
_REST = 4
"""Rest after each time that reports were decided on, in multiples of what that took. Under load more reports
are then decided on together, and deciding takes at most a fifth of the time."""

_LONGEST_REST_S = 1.0
"""Longest rest, s. While the machine or this process stands still, deciding seems to take long."""

_log = logging.getLogger("twinbed.controller")


@dataclass(slots=True)
class _Connection:
    """One agent's call. welcome: pieces that are to be written first; wake: set when there may be an order;
    superseded: set when the agent has another call."""

    agent: str
    session: int
    welcome: list[Order] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    superseded: asyncio.Event = field(default_factory=asyncio.Event)


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
        self._batches: list[tuple[str, datagrams.Batch]] = []
        self._flushing: asyncio.TimerHandle | None = None
        self._rested_s = 0.0
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
        self._batches.append((self.by_session[batch.session].agent, batch))
        self._flush_soon()

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
        tasks = [
            asyncio.create_task(part)
            for part in (self._listen(connection, context), self._superseded(connection))
        ]
        speaker = asyncio.create_task(self._speak(connection, context))
        code, why = grpc.StatusCode.ABORTED, "the call was cancelled"
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            code, why = done.pop().result()
        finally:
            for task in (*tasks, speaker):
                task.cancel()
            self._ended(connection, why)
        await asyncio.gather(*tasks, speaker, return_exceptions=True)
        if code is not grpc.StatusCode.OK:
            await context.abort(code, why)

    async def _superseded(self, connection: _Connection) -> tuple[grpc.StatusCode, str]:
        await connection.superseded.wait()
        return grpc.StatusCode.ABORTED, "the agent has another call"

    async def _listen(self, connection: _Connection, context: Any) -> tuple[grpc.StatusCode, str]:
        """Take reports in until the call is to end; return why."""
        while True:
            try:
                report = await asyncio.wait_for(context.read(), service.SILENCE_S)
            except TimeoutError:
                return grpc.StatusCode.DEADLINE_EXCEEDED, f"silent for {service.SILENCE_S:g} s"
            if report is grpc.aio.EOF:
                # A connection that broke ends the call here, too.
                return grpc.StatusCode.OK, "it ended the call"
            if report is None:
                self.refusals.add("malformed message", f"from agent {connection.agent}")
                return grpc.StatusCode.INVALID_ARGUMENT, "it sent what is no message"
            if report.round_trip_ns > 0:
                self._on_latency(report.round_trip_ns / 1e9)
            try:
                self._reported(connection.agent, report)
            except RefusedError as error:
                self.refusals.add("protocol", str(error))
                return grpc.StatusCode.INVALID_ARGUMENT, str(error)

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
        session, key = 1 + secrets.randbits(62), secrets.token_bytes(datagrams.KEY_BYTES)
        try:
            if hello.version != service.PROTOCOL_VERSION:
                raise RefusedError(f"agent {quoted(hello.name)} speaks version {hello.version}")  # noqa: TRY301
            if names != [hello.name.encode()]:
                raise RefusedError(f"agent {quoted(hello.name)} shows the certificate of {names}")  # noqa: TRY301
            self.books.register(hello, session, self._clock())
        except RefusedError as error:
            self.refusals.add("registration", f"{error} ({context.peer()})")
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        former = self._connections.get(hello.name)
        if former is not None:
            self._close(former)
            former.superseded.set()
        connection = _Connection(hello.name, session, self._welcome(hello.name, session, key))
        self._connections[hello.name] = self.by_session[session] = connection
        self.gate.open(session, key)
        return connection

    def _welcome(self, agent: str, session: int, key: bytes) -> list[Order]:
        """Return the Welcome in pieces, of which the first has everything but the containers."""
        order, rule = Order(), self.books.allocator.reclaim
        welcome = order.welcome
        welcome.session, welcome.key, welcome.telemetry_port = session, key, self._port
        welcome.traps_oom = self.books.allocator.traps_oom
        if rule is not None:
            welcome.reclaim_interval_s, welcome.reclaim_margin_bytes = rule.interval_s, rule.margin_bytes
        for watch in self.books.deployment.watches_of(agent):
            welcome.watches.add(parent=watch.parent, pattern=watch.pattern)
        wanted = (
            Wanted(
                name=name,
                command=placed.command,
                environment=dict(placed.environment),
                attach=dict(placed.attach),
                runtime=placed.runtime,
            )
            for name, placed in self.books.deployment.containers_of(agent).items()
        )
        orders = [order]
        for piece in pieces(wanted):
            orders[-1].welcome.more = True
            orders.append(Order(welcome=Welcome(containers=piece)))
        return orders

    async def _speak(self, connection: _Connection, context: Any) -> None:
        """Write orders as they come, and a heartbeat when there are none. An order is made when the one
        before it is written, so what changes meanwhile goes with it once, in its latest state."""
        with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
            for piece in connection.welcome:
                await context.write(piece)
            while True:
                connection.wake.clear()
                order = self.books.take_order(connection.agent, connection.session)
                if order is None:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(connection.wake.wait(), service.HEARTBEAT_S)
                        continue
                    order = Order()
                await context.write(order)

    def _reported(self, agent: str, report: Report) -> None:
        # Telemetry that came before is decided on before.
        self._decide()
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
        """Do something, and see to the orders that come of it. What it raises ends the controller, and no
        container; but RefusedError is for the agent."""
        try:
            action()
        except RefusedError:
            raise
        except Exception as error:
            if self._failure is None:
                raise
            if not self._failure.done():
                self._failure.set_exception(error)
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Decide once for everything that comes in this pass of the loop, or until deciding has rested."""
        if self._flushing is None:
            loop = asyncio.get_running_loop()
            self._flushing = loop.call_at(max(self._rested_s, loop.time()), self._flush)

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        self._decide()
        self._guarded(self._wake)
        self._flushing = None
        ended_s = loop.time()
        self._rested_s = ended_s + min(_REST * (ended_s - began_s), _LONGEST_REST_S)

    def _decide(self) -> None:
        """Hand the telemetry that has come to the books."""
        batches, self._batches = self._batches, []
        if batches:
            self._guarded(lambda: self.books.telemetry(batches, self._clock()))

    def _wake(self) -> None:
        for agent in self.books.ready():
            self._connections[agent].wake.set()

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
