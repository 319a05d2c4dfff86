"""Which agents there are, which containers they have, and what is on its way to each.

For: the controller's records of hosts and containers. Not for: deciding about them (books.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from testbed.containers.remote.ledger import Change, Ledger
from testbed.containers.remote.messages_pb2 import Order, Report


@dataclass(slots=True)
class Member:
    """A container of a living or lost agent; the last record of it that counted, as counters and gauges.

    incarnation: tells its cgroup from another of the same name; end_ns: of that record, the agent's clock.
    """

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
    """One agent. live: its call is open; complete: it has said what it has since it last registered."""

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
        """Limits for the next order."""
        for change in changes:
            self.outbox.cpu.ids.append(change.id)
            self.outbox.cpu.cores.append(change.value)
            self.outbox.cpu.reasons.append(change.reason)
            self._changes.append((ledger, change))

    def put_memory(self, ledger: Ledger, changes: Iterable[Change]) -> None:
        """Limits for the next order."""
        for change in changes:
            self.outbox.memory.ids.append(change.id)
            self.outbox.memory.bytes.append(int(change.value))
            self.outbox.memory.reasons.append(change.reason)
            self._changes.append((ledger, change))

    def take(self) -> Order | None:
        """The order that has been gathered, numbered; None when there is nothing to say."""
        if not self.outbox.ByteSize():
            return None
        order, self.outbox = self.outbox, Order()
        self._number += 1
        order.number = self._number
        self._on_the_way.append(_Unacknowledged(self._number, self._changes))
        self._changes = []
        return order

    def acknowledge(self, report: Report) -> None:
        """What the agent carried out is in force: as ordered, or as it says."""
        actual = dict(zip(report.actual_ids, report.actual_bytes, strict=False))
        while self._on_the_way and self._on_the_way[0].number <= report.applied:
            for ledger, change in self._on_the_way.popleft().changes:
                value = change.value
                if isinstance(value, int):
                    value = max(actual.get(change.id, value), value)
                ledger.confirm(change.id, value)

    def begin(self, instance: int, host_cores: float, session: int) -> None:
        """It has (re)registered: numbering begins anew, what was on its way is forgotten."""
        self.instance, self.host_cores, self.session = instance, host_cores, session
        self.live, self.complete = True, False
        self.silence()
        self._number = 0

    def silence(self) -> None:
        """Nothing that was said so far will be heard."""
        self.outbox = Order()
        self._changes.clear()
        self._on_the_way.clear()
