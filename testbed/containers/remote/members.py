"""Which agents there are, which containers they have, what is on its way to each, and who must still answer.

For: the controller's records of hosts, containers, and reclaims that went to several hosts. Not for: deciding
about them (books.py), nor shrinking (host/executor.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from control.allocator.model import Shrunk
from testbed.containers.remote.ledger import Change, Ledger
from testbed.containers.remote.messages_pb2 import Order, Report


@dataclass(slots=True)
class Member:
    """A container of an agent, live or lost, with its last record that counted. incarnation: tells its cgroup
    from another of the same name; end_ns: end of the record's period, by the agent's clock; usage_cores,
    memory_bytes: of that record; throttled_periods, throttled_s: since it joined."""

    id: int
    agent: str
    name: str
    app: int
    incarnation: int
    end_ns: int = -1
    usage_cores: float = 0.0
    memory_bytes: int = 0
    throttled_periods: int = 0
    throttled_s: float = 0.0


@dataclass(slots=True)
class _Unacknowledged:
    number: int
    changes: list[tuple[Ledger, Change]]


@dataclass(slots=True)
class AgentState:
    """One agent. instance: tells its process from another of its name; session: of its telemetry; live:
    whether its call is open; complete: whether it has said what it has since it last registered; outbox: the
    next order."""

    name: str
    instance: int
    host_cores: float
    session: int
    live: bool = True
    complete: bool = False
    members: dict[str, Member] = field(default_factory=dict)
    outbox: Order = field(default_factory=Order)
    _changes: list[tuple[Ledger, Change]] = field(default_factory=list)
    _on_the_way: deque[_Unacknowledged] = field(default_factory=deque)
    _number: int = 0

    def put_cpu(self, ledger: Ledger, changes: Iterable[Change]) -> None:
        """Add CPU limits to the next order."""
        for change in changes:
            self.outbox.cpu.ids.append(change.id)
            self.outbox.cpu.cores.append(change.value)
            self.outbox.cpu.reasons.append(change.reason)
            self._changes.append((ledger, change))

    def put_memory(self, ledger: Ledger, changes: Iterable[Change]) -> None:
        """Add memory limits to the next order."""
        for change in changes:
            self.outbox.memory.ids.append(change.id)
            self.outbox.memory.bytes.append(int(change.value))
            self.outbox.memory.reasons.append(change.reason)
            self._changes.append((ledger, change))

    def take(self) -> Order | None:
        """Return the order that was gathered, numbered; None when there is nothing to say."""
        if not self.outbox.ByteSize():
            return None
        order, self.outbox = self.outbox, Order()
        self._number += 1
        order.number = self._number
        self._on_the_way.append(_Unacknowledged(self._number, self._changes))
        self._changes = []
        return order

    def acknowledge(self, report: Report) -> None:
        """Note what the agent carried out: it is in force as ordered, or as the agent says."""
        actual = dict(zip(report.actual_ids, report.actual_bytes, strict=False))
        while self._on_the_way and self._on_the_way[0].number <= report.applied:
            for ledger, change in self._on_the_way.popleft().changes:
                value = change.value
                if isinstance(value, int):
                    value = max(actual.get(change.id, value), value)
                ledger.confirm(change.id, value)

    def begin(self, instance: int, host_cores: float, session: int) -> None:
        """Note that it has (re)registered: numbering begins anew, and what was on its way is forgotten."""
        self.instance, self.host_cores, self.session = instance, host_cores, session
        self.live, self.complete = True, False
        self.silence()
        self._number = 0

    def silence(self) -> None:
        """Forget everything that was said and not confirmed: it will not be heard."""
        self.outbox = Order()
        self._changes.clear()
        self._on_the_way.clear()


@dataclass(slots=True)
class Reclaim:
    """One application's reclaim. awaited: agents that have not answered; limits: new limits by container,
    bytes."""

    app: int
    awaited: set[str]
    limits: dict[int, int] = field(default_factory=dict)

    def shrunk(self, at_s: float) -> Shrunk:
        """Return all answers as one report."""
        ids, limits = list(self.limits), list(self.limits.values())
        return Shrunk(np.array([self.app]), np.array(ids, np.int64), np.array(limits, np.int64), at_s)


class Reclaims:
    """The reclaims that wait for answers. Requests are numbered from 1."""

    def __init__(self) -> None:
        self._open: dict[int, Reclaim] = {}
        self._numbers = 0

    def ask(self, app: int, agents: set[str]) -> int:
        """Return a new request's number. With nobody to ask there is nothing to wait for."""
        self._numbers += 1
        if agents:
            self._open[self._numbers] = Reclaim(app, set(agents))
        return self._numbers

    def answer(self, request: int, agent: str, limits: dict[int, int]) -> Reclaim | None:
        """Note an agent's answer; return the reclaim when it was the last. Unknown requests are ignored."""
        reclaim = self._open.get(request)
        if reclaim is None or agent not in reclaim.awaited:
            return None
        reclaim.limits |= limits
        return self._done(request, agent)

    def without(self, agent: str) -> list[Reclaim]:
        """Note that an agent is lost and will not answer; return the reclaims that waited for it alone."""
        done = [self._done(number, agent) for number in list(self._open)]
        return [reclaim for reclaim in done if reclaim is not None]

    def _done(self, request: int, agent: str) -> Reclaim | None:
        self._open[request].awaited.discard(agent)
        return None if self._open[request].awaited else self._open.pop(request)
