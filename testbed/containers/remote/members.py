"""Agents, their containers, the messages in transit to each, and pending answers.

For: the controller's records of hosts, containers, and reclaims that went to several hosts. Not for: deciding
about them (books.py), nor shrinking (host/executor.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Ids, slot
from testbed.containers.remote.ledger import Changes, Ledger
from testbed.containers.remote.messages_pb2 import Joined, Named, Order, Report
from testbed.containers.remote.refusals import RefusedError

MOST_PER_ORDER = 1_000
"""Largest number of names, and of limits of each resource, in one order. The order then stays well below a
message's largest size, and an agent is not busy with it for long."""

MOST_ON_THE_WAY = 64
"""Largest number of orders sent ahead of an agent's answers. Later messages are collected here."""

MOST_CONTAINERS = 100_000
"""Largest number of containers of one agent, and of names not yet sent to it. The controller closes the call
of an agent that has more."""

MOST_JOINED_BYTES = 64 << 20
"""Largest total size of an agent's report of its containers, bytes: about twice that of MOST_CONTAINERS with
the longest names."""

_NOBODY = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Member:
    """A container of an agent, live or lost. incarnation: number that distinguishes its cgroup from others of
    the same name. request_cores: its CPU request, cores; None: it has none."""

    id: int
    agent: str
    name: str
    app: int
    incarnation: int
    request_cores: float | None = None


class Sent(NamedTuple):
    """The limits in an order. number: the order's number. cpu, memory: limits; None: there are none."""

    number: int
    cpu: Changes | None
    memory: Changes | None


@dataclass(slots=True)
class Outbox:
    """Messages for an agent besides limits, in order and without duplicates. named: name → container's id and
    request. restart, kill: ids. reclaims: request → application. rejected: names. caused_ns: see Order."""

    named: dict[str, Named] = field(default_factory=dict)
    restart: dict[int, None] = field(default_factory=dict)
    kill: dict[int, None] = field(default_factory=dict)
    reclaims: dict[int, int] = field(default_factory=dict)
    rejected: dict[str, None] = field(default_factory=dict)
    caused_ns: int = 0


@dataclass(slots=True)
class AgentState:
    """One agent.

    number: its index among the agents. instance: number that distinguishes its process from others of its
    name.
    session: session of its call and its telemetry; 0: none is open.
    complete: whether it has reported all containers since it last registered. joining, joining_bytes: pieces
        of its report so far, and their size.
    members: name → container. due: whether there may be an order for it.
    """

    name: str
    number: int
    instance: int = 0
    host_cores: float = 0.0
    session: int = 0
    complete: bool = False
    joining: Joined = field(default_factory=Joined)
    joining_bytes: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    outbox: Outbox = field(default_factory=Outbox)
    due: bool = False
    _slots: NDArray[np.int64] | None = None
    _on_the_way: deque[Sent] = field(default_factory=deque)
    _number: int = 0

    @property
    def live(self) -> bool:
        """Whether the agent's call is open."""
        return self.session != 0

    @property
    def crowded(self) -> bool:
        """Whether so many messages wait that the agent probably does not read them."""
        outbox = self.outbox
        return max(len(outbox.named), len(outbox.rejected), len(outbox.reclaims)) > MOST_CONTAINERS

    @property
    def ids(self) -> Ids:
        """Ids of its containers, int64[n]."""
        return np.array([member.id for member in self.members.values()], np.int64)

    def add(self, member: Member) -> None:
        """Record a container. The next order names it."""
        self.members[member.name] = member
        self._slots = None
        self.name_again(member)

    def name_again(self, member: Member) -> None:
        """Send the agent a container's id and CPU request."""
        self.outbox.named[member.name] = Named(
            name=member.name, id=member.id, app=member.app, request_cores=member.request_cores
        )

    def request(self, member: Member, cores: float) -> Member:
        """Record a container's CPU request, which is sent with its name again. Returns the container."""
        member = replace(member, request_cores=cores)
        self.add(member)
        return member

    def remove(self, member: Member) -> None:
        """Forget a container, and the messages about it."""
        del self.members[member.name]
        self._slots = None
        self.outbox.named.pop(member.name, None)
        self.outbox.restart.pop(member.id, None)
        self.outbox.kill.pop(member.id, None)

    @property
    def slots(self) -> NDArray[np.int64]:
        """Slots of its containers, int64[n]."""
        if self._slots is None:
            self._slots = slot(self.ids)
        return self._slots

    @property
    def listens(self) -> bool:
        """Whether an order may be sent to the agent: there may be one, and not too many answers are
        awaited."""
        return self.due and len(self._on_the_way) < MOST_ON_THE_WAY

    @property
    def nearly_named(self) -> bool:
        """Whether the next order has room for all names, so that limits may follow in it."""
        return len(self.outbox.named) <= MOST_PER_ORDER

    def write(self, order: Order, room: Order, cpu: Changes | None, memory: Changes | None) -> bytes | None:
        """Return the next order with these limits, serialised, which then counts as sent. None: there is
        nothing to send. order: empty message to fill. room: another empty message, for lists of numbers."""
        outbox = self.outbox
        if outbox.named or outbox.rejected:
            for name in list(islice(outbox.named, MOST_PER_ORDER)):
                order.named.append(outbox.named.pop(name))
            for name in list(islice(outbox.rejected, MOST_PER_ORDER)):
                order.rejected.append(name)
                del outbox.rejected[name]
        if not outbox.named:
            self._put_limits(order, room, cpu, memory)
        full = [changes for changes in (cpu, memory) if changes and len(changes.ids) == MOST_PER_ORDER]
        self.due = bool(full or outbox.named or outbox.rejected)
        if not order.ByteSize():
            return None
        order.caused_ns, outbox.caused_ns = outbox.caused_ns, 0
        self._number += 1
        order.number = self._number
        self._on_the_way.append(Sent(self._number, cpu, memory))
        return bytes(order.SerializeToString())

    def gather(self, piece: Joined) -> Joined | None:
        """Put the pieces of a `joined` together. Returns the whole after the last piece. Raises RefusedError
        if it has too many containers, or is too large."""
        joining = self.joining
        # The size counts fields that are unknown here, too.
        self.joining_bytes += piece.ByteSize()
        if self.joining_bytes > MOST_JOINED_BYTES:
            raise RefusedError(f"agent {self.name} reports more than {MOST_JOINED_BYTES} bytes at once")
        joining.MergeFrom(piece)
        if max(map(len, (joining.containers, joining.failed, self.members))) > MOST_CONTAINERS:
            raise RefusedError(f"agent {self.name} has more than {MOST_CONTAINERS} containers")
        if piece.more:
            return None
        self.joining, self.joining_bytes = Joined(), 0
        return joining

    def acknowledge(self, report: Report) -> list[Sent] | None:
        """Return the limits of the orders that the agent has carried out by now. They are in force as
        ordered, or as the agent reports. None, without any change: the report is about an order that was not
        sent."""
        if report.applied > self._number:
            return None
        done: list[Sent] = []
        while self._on_the_way and self._on_the_way[0].number <= report.applied:
            sent = self._on_the_way.popleft()
            cpu = _in_force(sent.cpu, report.actual_cpu_ids, report.actual_cores)
            memory = _in_force(sent.memory, report.actual_ids, report.actual_bytes)
            done.append(sent._replace(cpu=cpu, memory=memory))
        return done

    def begin(self, instance: int, host_cores: float, session: int) -> None:
        """Record that it has registered (again). Numbering restarts; messages in transit are forgotten."""
        self.silence()
        self.instance, self.host_cores, self.session = instance, host_cores, session

    def silence(self) -> None:
        """Record that the agent's call is over. Unconfirmed messages are forgotten."""
        self.session, self.complete, self._number = 0, False, 0
        self.outbox, self.joining, self.joining_bytes = Outbox(), Joined(), 0
        self._on_the_way.clear()

    def _put_limits(self, order: Order, room: Order, cpu: Changes | None, memory: Changes | None) -> None:
        """Add to the order everything that names containers by id."""
        outbox = self.outbox
        if outbox.restart or outbox.kill or outbox.reclaims:
            order.restart.extend(outbox.restart)
            order.kill.extend(outbox.kill)
            for request, app in outbox.reclaims.items():
                order.reclaim.add(request=request, app=app)
            for told in (outbox.restart, outbox.kill, outbox.reclaims):
                told.clear()
        if cpu is not None:
            _fill(room.cpu.ids, cpu.ids.tolist())
            _fill(room.cpu.cores, cpu.values.tolist())
            _fill(room.cpu.reasons, cpu.reasons.tolist())
            order.cpu.CopyFrom(room.cpu)
        if memory is not None:
            _fill(room.memory.ids, memory.ids.tolist())
            _fill(room.memory.bytes, map(int, memory.values.tolist()))
            _fill(room.memory.reasons, memory.reasons.tolist())
            order.memory.CopyFrom(room.memory)


def _in_force(sent: Changes | None, ids: Sequence[int], actual: Sequence[float]) -> Changes | None:
    """Return the limits that were sent, with the larger ones that an agent reports for `ids` instead."""
    if sent is None or not ids:
        return sent
    larger = dict(zip(ids, actual, strict=False))
    said = np.array([larger.get(id_, 0.0) for id_ in sent.ids.tolist()], np.float64)
    return sent._replace(values=np.fmax(sent.values, said))


def _fill(column: Any, numbers: Iterable[float]) -> None:
    """Replace the numbers in a repeated field, which keeps its memory."""
    del column[:]
    column.extend(numbers)


def next_orders(states: Sequence[AgentState], cpu: Ledger, memory: Ledger) -> list[bytes | None]:
    """Return each agent's next order, serialised. Names come before limits, and no limit comes before its
    container is named. None: there is no message to send, or the agent must answer first.

    All orders are made in the same two messages. After each 10,000 blocks that protobuf frees, of which a new
    order takes seven, it returns all free memory of the process to the kernel. Getting that memory again cost
    a controller of 1,000 agents a third of its time.
    """
    listening = [state for state in states if state.listens]
    hosts = [state.slots if state.nearly_named else _NOBODY for state in listening]
    limits = zip(cpu.send(hosts, MOST_PER_ORDER), memory.send(hosts, MOST_PER_ORDER), strict=True)
    written, order, room = {}, Order(), Order()
    for state, told in zip(listening, limits, strict=True):
        written[state.number] = state.write(order, room, *told)
        order.Clear()
    return [written.get(state.number) for state in states]


@dataclass(slots=True)
class Reclaim:
    """A reclaim of one application. awaited: agents that have not answered."""

    app: int
    awaited: set[str]


class Reclaims:
    """The reclaims that wait for answers. Requests are numbered from 1."""

    def __init__(self) -> None:
        self._open: dict[int, Reclaim] = {}
        self._numbers = 0

    def ask(self, app: int, agents: set[str]) -> int:
        """Return a new request's number. Without agents, no answer is awaited."""
        self._numbers += 1
        if agents:
            self._open[self._numbers] = Reclaim(app, set(agents))
        return self._numbers

    def answer(self, request: int, agent: str) -> list[int]:
        """Record an agent's answer. Returns the application in a list if it was the last answer, else []."""
        reclaim = self._open.get(request)
        if reclaim is None or agent not in reclaim.awaited:
            return []
        reclaim.awaited.remove(agent)
        return [] if reclaim.awaited else [self._open.pop(request).app]

    def without(self, agent: str) -> list[int]:
        """Record that an agent is lost and will not answer. Returns the applications of the reclaims that
        waited for it alone."""
        return [app for request in list(self._open) for app in self.answer(request, agent)]
