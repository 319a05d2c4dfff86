"""The controller. It receives reports and telemetry from agents, and sends them the decisions of its books.

For: sockets, calls, clocks, and the liveness of agents. Not for: acting on reports (books.py). It is one
asyncio loop, so the allocator gets one call at a time. TCP (gRPC) and UDP use the same port number. It stores
nothing on disk: agents keep their limits while it is away, and report their containers to a new controller.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import grpc

from control.allocator.ports import Allocator
from testbed.containers.ownership import temporary_directory
from testbed.containers.remote import datagrams, door, service
from testbed.containers.remote.books import ControllerBooks
from testbed.containers.remote.certificates import Identity, serial_of
from testbed.containers.remote.deployment import Deployment
from testbed.containers.remote.joining import quoted
from testbed.containers.remote.messages_pb2 import Hello, Order, Report, Wanted, Welcome
from testbed.containers.remote.refusals import Refusals, RefusedError
from twinbed import BackendError

_TICK_S = 0.25
_ADMITTING_S = 0.05
"""Time for everything else between two pieces of work on many newcomers that do not fit, s."""

_RECEIVE_BYTES = 4 << 20
_SO_RCVBUFFORCE = 33
"""asm-generic/socket.h."""

_DATAGRAMS_AT_ONCE = 64
_DATAGRAM_BYTES = 2 * datagrams.MAX_BYTES
"""Number of bytes read of a datagram, enough to see that it is too large."""

_REST = 4
"""Pause after each decision on reports, in multiples of the decision's time. Under load, more reports are
then decided on together, and decisions take at most a fifth of the time."""

_LONGEST_REST_S = 1.0
"""Longest pause, s. If the machine or this process was suspended, the decision seems to have taken long."""

_log = logging.getLogger("twinbed.controller")
_End = tuple[grpc.StatusCode, str]


@dataclass(slots=True)
class _Connection:
    """One agent's call.

    certificate: serial number of its certificate. welcome: messages to write first.
    wake: event that is set if there may be an order. idle: whether nothing is being written. order: order
        made while it was idle.
    closing: future with the reason for which the controller ends the call.
    """

    agent: str
    session: int
    certificate: int
    welcome: list[Order] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    idle: bool = False
    order: bytes | None = None
    closing: asyncio.Future[_End] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def close(self, code: grpc.StatusCode, why: str) -> None:
        if not self.closing.done():
            self.closing.set_result((code, why))


class Controller:
    """Runs `allocator` for a deployment.

    identity: function that returns the controller's identity; called for each connection.
    revoked: function that returns the serial numbers of revoked certificates; called several times a second.
    on_latency: function called with reported times from sending a record to writing its last limit, s.
    books: the state.
    gate: accepted datagrams. refusals: counts of refused messages. telemetry_bytes: size of all received
    datagrams, bytes.
    """

    def __init__(
        self,
        deployment: Deployment,
        allocator: Allocator,
        identity: Callable[[], Identity],
        *,
        revoked: Callable[[], frozenset[int]] = frozenset,
        on_latency: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self.refusals = Refusals(_log, time.monotonic)
        self.gate = datagrams.Gate(self.refusals)
        self.books = ControllerBooks(deployment, allocator, self.refusals, time.monotonic())
        self.telemetry_bytes = 0
        self._identity = identity
        self._revoked = revoked
        self._on_latency = on_latency
        self._connections: dict[str, _Connection] = {}
        self.by_session: dict[int, _Connection] = {}
        self._batches: list[tuple[str, datagrams.Batch]] = []
        self._flushing: asyncio.TimerHandle | None = None
        self._rested_s = 0.0
        self._failure: asyncio.Future[None] | None = None
        self._port = 0

    async def run(self, listen: str, stop: asyncio.Event, on_ready: Callable[[int], None]) -> None:
        """Serve at HOST:PORT (port 0: any) until `stop` is set. on_ready: function called with the port.
        Raises BackendError if the address cannot be used, and the errors of the allocator."""
        self._failure = asyncio.get_running_loop().create_future()
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        waiting = door.room(len(self.books.deployment.agents))
        async with AsyncExitStack() as ending:
            inside = ending.enter_context(temporary_directory()) / "grpc"
            try:
                listener = door.listen(host, int(port))
            except OSError as error:
                raise BackendError(
                    f"{listen}: cannot be listened on (TCP, {error.strerror}); choose another --listen"
                ) from error
            ending.callback(listener.close)
            self._port = listener.getsockname()[1]
            ending.enter_context(self._listen_for_telemetry(host))
            server, credentials = service.server(self._attend, self._identity)
            try:
                server.add_secure_port(f"unix:{inside}", credentials)
            except RuntimeError as error:
                raise BackendError(
                    f"{inside}: cannot be listened on; set a TMPDIR with a short name"
                ) from error
            await server.start()
            ending.push_async_callback(server.stop, 0)
            self._door = door.Door(listener, inside, waiting, self.refusals)
            await self._until(stop, on_ready)

    async def _until(self, stop: asyncio.Event, on_ready: Callable[[int], None]) -> None:
        assert self._failure is not None
        work = [asyncio.create_task(part) for part in (self._ticks(), self._door.run())]
        stopping = asyncio.create_task(stop.wait())
        try:
            on_ready(self._port)
            ends: set[asyncio.Future[Any]] = {*work, self._failure}
            await asyncio.wait({*ends, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for future in ends:
                if future.done():
                    future.result()
        finally:
            for task in (*work, stopping):
                task.cancel()
            await asyncio.gather(*work, stopping, return_exceptions=True)

    def reload(self) -> None:
        """Load the certificate and the revocations from their files, and log it."""
        self._end_revoked()
        try:
            identity = self._identity()
        except BackendError as error:
            _log.warning("not reloaded: %s; the former certificate stays in use", error)
            return
        _log.info(
            "reloaded: this controller's certificate is good until %s, revoked certificates: %d",
            f"{identity.expires:%Y-%m-%d}",
            len(self._revoked()),
        )

    @contextmanager
    def _listen_for_telemetry(self, host: str) -> Iterator[None]:
        family, kind, _, _, address = socket.getaddrinfo(host, self._port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind | socket.SOCK_NONBLOCK) as wire:
            try:
                wire.bind(address)
            except OSError as error:
                raise BackendError(
                    f"{host}:{self._port}: cannot be listened on (UDP, {error.strerror}); choose another "
                    "--listen"
                ) from error
            # Many agents' periods may end at the same moment. Only root may have more than rmem_max.
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            with suppress(PermissionError):
                wire.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
            loop = asyncio.get_running_loop()
            loop.add_reader(wire, self._drain, wire)
            try:
                yield
            finally:
                loop.remove_reader(wire)

    # --- telemetry -------------------------------------------------------------------------------

    def _drain(self, wire: socket.socket) -> None:
        """Process the received datagrams, up to a limit that leaves time for other work. It reads several at
        once, because a pass of the loop costs more than reading a datagram."""
        # This call also reports network errors. The next pass of the loop continues reading.
        with suppress(OSError):
            for _ in range(_DATAGRAMS_AT_ONCE):
                self.datagram_received(*wire.recvfrom(_DATAGRAM_BYTES))

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """Take a datagram. Anybody may have sent it."""
        self.telemetry_bytes += len(data)
        batch = self.gate.receive(data, str(addr[0]))
        if batch is None:
            return
        self._batches.append((self.by_session[batch.session].agent, batch))
        self._flush_soon()

    # --- agents ----------------------------------------------------------------------------------

    async def _attend(self, requests: Any, context: Any) -> None:
        """Serve one agent's call, from Hello to its end."""
        del requests
        peer = context.peer()
        self._door.called(peer)
        hello = await self._hello(context)
        connection = await self._register(hello, context)
        self._door.registered(peer, connection.agent)
        listener = asyncio.create_task(self._listen(connection, context))
        speaker = asyncio.create_task(self._speak(connection, context))
        code, why = grpc.StatusCode.ABORTED, "the call was cancelled"
        try:
            done, _ = await asyncio.wait({listener, connection.closing}, return_when=asyncio.FIRST_COMPLETED)
            code, why = done.pop().result()
        finally:
            for task in (listener, connection.closing, speaker):
                task.cancel()
            self._ended(connection, why)
            self._door.ended(peer)
        await asyncio.gather(listener, speaker, return_exceptions=True)
        if code is not grpc.StatusCode.OK:
            await context.abort(code, why)

    async def _listen(self, connection: _Connection, context: Any) -> _End:
        """Take reports until the call is to end. Returns the reason."""
        while True:
            try:
                async with asyncio.timeout(service.SILENCE_S):
                    report = await context.read()
            except TimeoutError:
                return grpc.StatusCode.DEADLINE_EXCEEDED, f"silent for {service.SILENCE_S:g} s"
            if report is grpc.aio.EOF:
                # A connection that broke ends the call here, too.
                return grpc.StatusCode.OK, "it ended the call"
            if report is None:
                self.refusals.add("malformed message", f"from agent {connection.agent}")
                return grpc.StatusCode.INVALID_ARGUMENT, "it sent an invalid message"
            if report.round_trip_ns > 0:
                self._on_latency(report.round_trip_ns / 1e9)
            try:
                self._reported(connection.agent, report)
            except RefusedError as error:
                self.refusals.add("protocol", str(error))
                return grpc.StatusCode.INVALID_ARGUMENT, str(error)

    async def _hello(self, context: Any) -> Hello:
        try:
            async with asyncio.timeout(service.SILENCE_S):
                report = await context.read()
        except TimeoutError:
            report = None
        if not isinstance(report, Report) or report.WhichOneof("what") != "hello":
            self.refusals.add("malformed message", f"no Hello from {self._door.address(context.peer())}")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call begins with a Hello")
        return cast(Report, report).hello

    async def _register(self, hello: Hello, context: Any) -> _Connection:
        shown = context.auth_context()
        names, serial = shown.get("x509_common_name", []), serial_of(shown["x509_pem_cert"][0])
        session, key = 1 + secrets.randbits(62), secrets.token_bytes(datagrams.KEY_BYTES)
        try:
            if hello.version != service.PROTOCOL_VERSION:
                raise RefusedError(f"agent {quoted(hello.name)} speaks version {hello.version}")  # noqa: TRY301
            if names != [hello.name.encode()]:
                raise RefusedError(f"agent {quoted(hello.name)} shows the certificate of {names}")  # noqa: TRY301
            if serial in self._revoked():
                raise RefusedError(f"agent {quoted(hello.name)} shows a certificate that was revoked")  # noqa: TRY301
            self.books.register(hello, session, time.monotonic())
        except RefusedError as error:
            self.refusals.add("registration", f"{error} (from {self._door.address(context.peer())})")
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        former = self._connections.get(hello.name)
        if former is not None:
            self._close(former)
            former.close(grpc.StatusCode.ABORTED, "the agent has another call")
        connection = _Connection(hello.name, session, serial, self._welcome(hello.name, session, key))
        self._connections[hello.name] = self.by_session[session] = connection
        self.gate.open(session, key)
        return connection

    def _welcome(self, agent: str, session: int, key: bytes) -> list[Order]:
        """Return the Welcome in pieces. The first has everything but the containers."""
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
        for piece in service.pieces(wanted):
            orders[-1].welcome.more = True
            orders.append(Order(welcome=Welcome(containers=piece)))
        return orders

    async def _speak(self, connection: _Connection, context: Any) -> None:
        """Write orders as they come, and a heartbeat if there are none. An order is made when the previous
        one is written, so a value that changes several times meanwhile is sent once, with its latest
        value."""
        with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
            for piece in connection.welcome:
                await context.write(piece)
            while True:
                connection.wake.clear()
                order: bytes | Order | None
                order, connection.order = connection.order, None
                order = order or self.books.take_order(connection.agent, connection.session)
                if order is None:
                    connection.idle = True
                    with suppress(TimeoutError):
                        async with asyncio.timeout(service.HEARTBEAT_S):
                            await connection.wake.wait()
                        continue
                    order = Order()
                connection.idle = False
                await context.write(order)

    def _reported(self, agent: str, report: Report) -> None:
        # Telemetry that came earlier is decided on first.
        self._decide()
        self._guarded(lambda: self.books.reported(agent, report, time.monotonic()))

    def _ended(self, connection: _Connection, why: str) -> None:
        """Record that a call is over. The agent is lost, unless it has another call by now."""
        self._close(connection)
        if self._connections.get(connection.agent) is connection:
            del self._connections[connection.agent]
            self._guarded(lambda: self.books.lost(connection.agent, why, time.monotonic()))

    def _close(self, connection: _Connection) -> None:
        self.gate.close(connection.session)
        self.by_session.pop(connection.session, None)

    # --- orders ----------------------------------------------------------------------------------

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run an action, and then send the resulting orders. Its errors end the controller, but no container;
        RefusedError only ends the agent's call."""
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
        """Schedule one decision for the reports of this pass of the loop, not before the pause has ended."""
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
        """Hand the received telemetry to the books."""
        batches, self._batches = self._batches, []
        if batches:
            self._guarded(lambda: self.books.telemetry(batches, time.monotonic()))

    def _wake(self) -> None:
        """Send agents their pending orders. Orders for all idle connections are made together."""
        woken = [self._connections[agent] for agent in self.books.ready()]
        idle = [connection for connection in woken if connection.idle and connection.order is None]
        orders = self.books.take_orders([connection.agent for connection in idle])
        for connection, order in zip(idle, orders, strict=True):
            connection.order = order
        for connection in woken:
            connection.wake.set()

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(_ADMITTING_S if self.books.newcomers.admitting else _TICK_S)
            self._guarded(lambda: self.books.tick(time.monotonic()))
            self._door.tick()
            self._end_revoked()

    def _end_revoked(self) -> None:
        revoked = self._revoked()
        for connection in self._connections.values():
            if connection.certificate in revoked:
                connection.close(grpc.StatusCode.PERMISSION_DENIED, "the agent's certificate was revoked")
