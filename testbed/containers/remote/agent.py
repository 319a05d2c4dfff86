"""The agent of a host. It registers with the controller, reports to it, and carries its orders out.

For: the conversation with the controller, and the times of actions. Not for: the actions on containers
(hosting.py). It is one asyncio loop, in which nothing waits for the controller. Without a controller every
container keeps its limits, and held containers stay held. An agent never grants memory or kills a container
by itself. It reconnects after 0.2 s, then after increasing waits up to 5 s, and registers its containers
again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import grpc
import numpy as np

from testbed.containers.cgroup.group import QUOTA_PERIOD_US
from testbed.containers.host.hosted import HostedContainer
from testbed.containers.ports import TelemetrySource
from testbed.containers.remote import service
from testbed.containers.remote.certificates import Identity
from testbed.containers.remote.datagrams import Sealer
from testbed.containers.remote.figures import Figures
from testbed.containers.remote.hosting import Hosting
from testbed.containers.remote.messages_pb2 import Hello, Joined, Order, Report, Welcome
from testbed.containers.remote.origin import Watcher

RECONNECT_FIRST_S = 0.2
RECONNECT_MOST_S = 5.0
"""First and longest wait between two attempts to connect, s. A random part of up to half is left out, so that
many agents do not connect at once."""

_SUPERVISE_S = 0.1
_HELD_AGAIN_S = 1.0
_GOODBYE_S = 1.0
_DUE_S = 1.0
_NS = 1_000_000_000
_PERIOD_NS = QUOTA_PERIOD_US * 1000
_ROUND_TRIPS = 10_000
_log = logging.getLogger("twinbed.agent")


class _LostError(Exception):
    """The connection to the controller is lost. The text says how that was noticed."""


class Agent:
    """One host's agent.

    address: the controller's HOST:PORT.
    hosting: its containers.
    source: function that makes the telemetry source.
    watcher: object that finds cgroups that appear.
    host_cores: cores of the host; None: those of this machine.
    round_trips_ns: latest times from sending a record to writing the resulting limits, ns.
    connected: whether the controller has welcomed it.
    figures: its counters.
    """

    def __init__(
        self,
        address: str,
        identity: Identity,
        hosting: Hosting,
        source: Callable[[], TelemetrySource],
        watcher: Watcher,
        *,
        host_cores: float | None = None,
    ) -> None:
        self.round_trips_ns: deque[int] = deque(maxlen=_ROUND_TRIPS)
        self.connected = False
        self.figures = Figures()
        self._address = address
        self._identity = identity
        self.hosting = hosting
        self.source = source()
        self._watcher = watcher
        self._host_cores = float(host_cores or os.cpu_count() or 1)
        self._instance = random.SystemRandom().getrandbits(63)
        self._reports: asyncio.Queue[Report | None] = asyncio.Queue()
        self._welcome: Welcome | None = None
        self._conversation: asyncio.Task[tuple[str, bool]] | None = None
        self._wake = asyncio.Event()
        self._watching = asyncio.Lock()
        self._asked: dict[str, tuple[float, int]] = {}
        """Name of each container that asked for memory → time, s, and limit, bytes, at which it did so."""
        self._trapped: dict[str, int] = {}
        hosting.on_ids, hosting.on_gone, hosting.on_trap = self._named, self._gone, self._armed
        hosting.on_killed = self._killed

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set. Then end the containers started here, and restore the original limits of
        attached cgroups. An agent that fails leaves everything unchanged for its successor."""
        chores = asyncio.create_task(self._chores())
        stopping = asyncio.create_task(stop.wait())
        tasks: set[asyncio.Task[Any]] = {chores, stopping}
        try:
            wait_s, said = RECONNECT_FIRST_S, ""
            while not stop.is_set():
                session = self._conversation = asyncio.create_task(self._session())
                tasks = {chores, stopping, session}
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if chores.done():
                    chores.result()
                if not session.done():
                    if stop.is_set():
                        await self._say_goodbye(session)
                    session.cancel()
                with suppress(asyncio.CancelledError):
                    problem, was_connected = await session
                    if was_connected:
                        wait_s = RECONNECT_FIRST_S
                    if problem != said and not stop.is_set():
                        _log.warning("controller %s: %s; limits stay unchanged", self._address, problem)
                        said = "" if was_connected else problem
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s * random.uniform(0.5, 1.0)):
                        await stop.wait()
                wait_s = min(2 * wait_s, RECONNECT_MOST_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if stop.is_set():
                self.hosting.close()
            self.source.close()

    @property
    def name(self) -> str:
        """The agent's name."""
        return self._identity.name

    def rotate(self, identity: Identity) -> None:
        """Reconnect with another certificate of the same name. Containers keep their limits meanwhile."""
        self._identity = identity
        if self._conversation is not None:
            self._conversation.cancel()

    async def _say_goodbye(self, session: asyncio.Task[Any]) -> None:
        """End all containers in good order, and report to the controller which ones left."""
        self.hosting.close()
        # A container without an id was not reported as leaving.
        self._reports.put_nowait(Report(joined=Joined(complete=True)))
        self._reports.put_nowait(None)
        await asyncio.wait({session}, timeout=_GOODBYE_S)

    # --- the conversation ------------------------------------------------------------------------

    async def _session(self) -> tuple[str, bool]:
        """Hold a connection from Hello to its end. Returns why it ended, and whether it was welcomed."""
        connection = service.channel(self._address, self._identity)
        call = service.attend(connection)
        tasks: list[asyncio.Task[None]] = []
        try:
            welcome = await self._greet(call)
            self._reports = asyncio.Queue()
            self._welcome, self.connected = welcome, True
            self.figures.sessions += 1
            self._asked.clear()
            _log.info("registered with %s", self._address)
            self._tell_joined(await self._converge(welcome))
            tasks = [
                asyncio.create_task(task)
                for task in (
                    self._speak(call, welcome.session),
                    self._listen(call),
                    self._report_periods(welcome),
                )
            ]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        except _LostError as error:
            return str(error), self.connected
        except grpc.aio.AioRpcError as error:
            said = error.details() or "no reason given"
            if "CERTIFICATE_VERIFY_FAILED" in said:
                said = "its certificate is not valid here: enroll this agent at this controller"
            return f"{error.code().name.lower()}, {said}", self.connected
        except asyncio.InvalidStateError:
            # A write to a call that has just ended raises this error without a reason. The call itself has
            # the reason.
            return await _reason(call), self.connected
        finally:
            self.connected, self._welcome = False, None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await connection.close()
        return "the connection ended", True

    async def _greet(self, call: Any) -> Welcome:
        hello = Hello(
            version=service.PROTOCOL_VERSION,
            name=self._identity.name,
            instance=self._instance,
            host_cores=self._host_cores,
        )
        await call.write(Report(hello=hello))
        welcome = Welcome(more=True)
        while welcome.more:
            order = await _read(call)
            if not order.HasField("welcome"):
                raise _LostError("it did not welcome us; is it of the same version?")
            welcome.more = False
            welcome.MergeFrom(order.welcome)
        return welcome

    async def _converge(self, welcome: Welcome) -> Joined:
        self.source.remove(np.array(self.hosting.executor.forget_ids(), np.int64))
        self.hosting.traps_oom = welcome.traps_oom
        watches = [(watch.parent, watch.pattern) for watch in welcome.watches]
        # The look-up of a name at an engine may take time.
        async with self._watching:
            watched = await asyncio.to_thread(self._watcher.begin, watches, self.hosting.noted())
        return self.hosting.converge(welcome.containers, watched)

    def _tell_joined(self, joined: Joined) -> None:
        """Report the joined containers in pieces. The last piece marks the list as complete."""
        told = [Joined(containers=piece, more=True) for piece in service.pieces(joined.containers)]
        told += [Joined(failed=piece, more=True) for piece in service.pieces(joined.failed)]
        for piece in (*told, Joined(complete=joined.complete)):
            self._reports.put_nowait(Report(joined=piece))

    async def _speak(self, call: Any, session: int) -> None:
        """Write reports as they come, and a heartbeat when there is none, until a report is None."""
        applied = 0
        while True:
            try:
                async with asyncio.timeout(service.HEARTBEAT_S):
                    report = await self._reports.get()
            except TimeoutError:
                report = Report()
            if report is None:
                # Cancelling the call would drop messages that were written and not read yet.
                await call.done_writing()
                await call.code()
                return
            # A later order may have been carried out already. Its own report states the limits in force.
            applied = report.applied = max(report.applied, applied)
            report.session = session
            await call.write(report)

    async def _listen(self, call: Any) -> None:
        while True:
            order = await _read(call)
            if order.number:
                self.carry_out(order)

    def carry_out(self, order: Order) -> None:
        """Carry out a controller's order, and send the report of it."""
        report, began_ns = Report(applied=order.number), time.monotonic_ns()
        self.hosting.carry_out(order, report)
        self.figures.orders += 1
        self.figures.on_order((time.monotonic_ns() - began_ns) / _NS)
        if order.caused_ns:
            report.round_trip_ns = time.monotonic_ns() - order.caused_ns
            self.round_trips_ns.append(report.round_trip_ns)
        self._reports.put_nowait(report)
        for reclaim in order.reclaim:
            self._shrink(reclaim.request, reclaim.app)

    # --- telemetry -------------------------------------------------------------------------------

    async def _report_periods(self, welcome: Welcome) -> None:
        """Send each record once, as soon as its period is over."""
        host = self._address.rpartition(":")[0].strip("[]")
        loop, kind = asyncio.get_running_loop(), socket.SOCK_DGRAM
        sealer = Sealer(welcome.session, welcome.key)
        with ExitStack() as ending:
            try:
                found = await loop.getaddrinfo(host, welcome.telemetry_port, type=kind)
                wire = ending.enter_context(socket.socket(found[0][0], kind | socket.SOCK_NONBLOCK))
                wire.connect(found[0][4])
            except OSError as error:
                raise _LostError(f"telemetry cannot be sent to it ({error.strerror})") from None
            while True:
                await self._due()
                now_ns = time.monotonic_ns()
                self.figures.late += now_ns - self.source.due_ns() > _PERIOD_NS
                records = self.source.collect(now_ns)
                self.figures.records += len(records.ids)
                for datagram in sealer.seal(records, time.monotonic_ns()):
                    self._send(wire, datagram)
                self._lose(self.source.gone.tolist())

    def _send(self, wire: socket.socket, datagram: bytes) -> None:
        """Send a datagram. A datagram that the network does not accept is lost, like one that it drops."""
        try:
            wire.send(datagram)
        except OSError:
            self.figures.dropped += 1
        else:
            self.figures.datagrams += 1
            self.figures.telemetry_bytes += len(datagram)

    async def _due(self) -> None:
        """Wait until the source is due or readable, or until its containers have changed."""
        loop = asyncio.get_running_loop()
        timer = loop.call_at(min(self.source.due_ns() / _NS, loop.time() + _DUE_S), self._wake.set)
        if self.source.descriptor >= 0:
            loop.add_reader(self.source.descriptor, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
            if self.source.descriptor >= 0:
                loop.remove_reader(self.source.descriptor)
        self._wake.clear()

    def _lose(self, gone: Sequence[int]) -> None:
        for container in [
            container for container in self.hosting.containers.values() if container.id in gone
        ]:
            self.hosting.gone(container, "its cgroup was removed")

    def _named(self, containers: Sequence[HostedContainer]) -> None:
        groups = [container.group for container in containers if container.group is not None]
        self.source.add(np.array([container.id for container in containers], np.int64), groups)
        self._wake.set()

    def _gone(self, container: HostedContainer, why: str) -> None:
        self._asked.pop(container.name, None)
        descriptor = self._trapped.pop(container.name, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
        if container.id is not None:
            self.source.remove(np.array([container.id], np.int64))
            report = Report()
            report.left.ids.append(container.id)
            report.left.reason = why
            self._reports.put_nowait(report)

    # --- memory ----------------------------------------------------------------------------------

    def _armed(self, container: HostedContainer) -> None:
        assert container.trap is not None
        self._trapped[container.name] = container.trap.descriptor
        asyncio.get_running_loop().add_reader(container.trap.descriptor, self._look, container)

    def _look(self, container: HostedContainer) -> None:
        """Read a trap that may have an event, and ask for memory if tasks are held. It asks once for each
        limit, and again if no answer comes: the regular look and the trap's event may see the same hold."""
        if not self.hosting.executor.look(container):
            self._asked.pop(container.name, None)
            return
        asked_s, limit_bytes = self._asked.get(container.name, (-_HELD_AGAIN_S, 0))
        if container.limit_bytes != limit_bytes or time.monotonic() - asked_s >= _HELD_AGAIN_S:
            self._ask([container])

    def _killed(self, container: HostedContainer) -> None:
        """Record that the OOM killer killed a process. An allocator without traps is called now."""
        if not self.hosting.traps_oom:
            self._ask([container])

    def _ask(self, held: Sequence[HostedContainer]) -> None:
        if not self.connected:
            return
        report = Report()
        for container in held:
            if container.id is None:
                continue
            self._asked[container.name] = time.monotonic(), container.limit_bytes
            report.held.ids.append(container.id)
            report.held.needed_bytes.append(self.hosting.executor.needed_bytes(container))
        if report.held.ids:
            self._reports.put_nowait(report)

    def _shrink(self, request: int, app: int | None) -> None:
        if self._welcome is None:
            return
        apps = None if app is None else {app}
        lowered = self.hosting.executor.shrink(self._welcome.reclaim_margin_bytes, apps)
        self._tell_shrunk(request, lowered)

    def _tell_shrunk(self, request: int, lowered: Sequence[HostedContainer]) -> None:
        report = Report()
        report.shrunk.request = request
        for container in lowered:
            if container.id is not None:
                report.shrunk.ids.append(container.id)
                report.shrunk.limit_bytes.append(container.limit_bytes)
        if request or report.shrunk.ids:
            self._reports.put_nowait(report)

    # --- by itself -------------------------------------------------------------------------------

    async def _chores(self) -> None:
        """Do periodic work, with and without a controller."""
        swept_s = watched_s = time.monotonic()
        while True:
            await asyncio.sleep(_SUPERVISE_S)
            now_s = time.monotonic()
            self.hosting.supervise(now_s)
            for container in list(self.hosting.containers.values()):
                asked_s, _ = self._asked.get(container.name, (-_HELD_AGAIN_S, 0))
                if now_s - asked_s >= _HELD_AGAIN_S and self.connected:
                    self._look(container)
            if self._welcome is None:
                continue
            interval_s = self._welcome.reclaim_interval_s
            if interval_s and now_s - swept_s >= interval_s:
                swept_s = now_s
                self._shrink(0, None)
            if now_s - watched_s >= self._watcher.interval_s:
                watched_s = now_s
                await self._watch()
                self._tell_shrunk(0, self.hosting.executor.try_again())

    async def _watch(self) -> None:
        async with self._watching:
            appeared, vanished = await asyncio.to_thread(self._watcher.look)
        for name in vanished:
            self.hosting.vanished(name)
        for origin in appeared:
            self._tell_joined(self.hosting.appeared(origin))
        if (joined := self.hosting.again()).containers:
            self._tell_joined(joined)


async def _read(call: Any) -> Order:
    """Return the next order or heartbeat. Raises _LostError if none comes, or the call has ended."""
    try:
        async with asyncio.timeout(service.SILENCE_S):
            order = await call.read()
    except TimeoutError:
        raise _LostError(f"silent for {service.SILENCE_S:g} s") from None
    if order is grpc.aio.EOF:
        raise _LostError(await _reason(call))
    if order is None:
        raise _LostError("it sent something that is no order; is it of the same version?")
    return order  # type: ignore[no-any-return]


async def _reason(call: Any) -> str:
    """Return why a call has ended."""
    code, details = await call.code(), await call.details()
    return f"{code.name.lower()}, {details or 'it ended the call'}"
