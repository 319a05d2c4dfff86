"""Orders, answers, reconnections and drops between the books and slow hosts, without a network: at every step
the limits that hosts have in force keep to the global limits."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from control.allocator import make
from testbed.containers.remote.books import AGAIN_S, ControllerBooks
from testbed.containers.remote.datagrams import Batch, _rows
from testbed.containers.remote.messages_pb2 import Hello, Joined, Order, Report
from testbed.containers.remote.refusals import Refusals
from tests.testbed.containers.remote.cluster import deployment
from tests.testbed.containers.remote.test_books import records

LOG = logging.getLogger("tests.orders")
LOG.propagate = False
CORES, BYTES = 4.0, 4 << 30
AGENTS, EACH = 3, 2


@dataclass
class Host:
    """One host. session: number of its call's session, 0 = none; applied: the last order that it carried out;
    wire: orders that it has not read; said: answers that the controller has not read; asked: reclaims that it
    has not answered; quotas, sizes: in force, by name."""

    name: str
    session: int = 0
    applied: int = 0
    wire: deque[Order] = field(default_factory=deque)
    said: deque[Report] = field(default_factory=deque)
    asked: deque[int] = field(default_factory=deque)
    names: dict[int, str] = field(default_factory=dict)
    quotas: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def say(self, report: Report) -> None:
        report.session, report.applied = self.session, self.applied
        self.said.append(report)


class Conversation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.books = ControllerBooks(deployment(AGENTS, EACH), make("escra", {}), Refusals(LOG), 0.0)
        self.hosts = [Host(f"a{number}") for number in range(AGENTS)]
        self.at_s = 0.0
        self.sessions = 0
        for host in self.hosts:
            self.connect(host)
        for host in self.hosts:
            self.hear(host)

    def connect(self, host: Host) -> None:
        """A new call, with what the host has; whatever was on the former one may still be read."""
        self.sessions += 1
        self.books.register(Hello(name=host.name, instance=1, host_cores=4), self.sessions, self.at_s)
        host.session, host.applied = self.sessions, 0
        host.wire.clear()
        host.asked.clear()
        host.names.clear()
        joined = Joined(complete=True)
        for index in range(EACH):
            name = f"{host.name}-c{index}"
            quota, size = host.quotas.get(name, 0.0), host.sizes.get(name, 0)
            joined.containers.add(
                name=name, incarnation=7, running=quota > 0, quota_cores=quota, limit_bytes=size
            )
        host.say(Report(joined=joined))

    def hear(self, host: Host) -> None:
        self.at_s += 0.01
        if host.said:
            self.books.reported(host.name, host.said.popleft(), self.at_s)

    @rule(number=st.integers(0, AGENTS - 1))
    def the_controller_reads_a_report(self, number: int) -> None:
        self.hear(self.hosts[number])

    @rule(number=st.integers(0, AGENTS - 1))
    def the_controller_writes_an_order(self, number: int) -> None:
        host = self.hosts[number]
        self.books.ready()
        order = self.books.take_order(host.name, host.session)
        if order is not None:
            host.wire.append(Order.FromString(order))

    @rule(number=st.integers(0, AGENTS - 1), answers=st.booleans(), full=st.booleans())
    def a_host_carries_an_order_out(self, number: int, answers: bool, full: bool) -> None:
        """full: the kernel lowers each limit half as far as ordered, which is answered."""
        host = self.hosts[number]
        if not host.wire:
            return
        order = host.wire.popleft()
        assert order.number == host.applied + 1, "no order is left out"
        host.applied = order.number
        host.names |= {named.id: named.name for named in order.named}
        report = Report()
        for id_, cores in zip(order.cpu.ids, order.cpu.cores, strict=True):
            name = host.names[id_]
            if full and cores < host.quotas.get(name, 0.0):
                cores += (host.quotas[name] - cores) / 2
                report.actual_cpu_ids.append(id_)
                report.actual_cores.append(cores)
            host.quotas[name] = cores
        for id_, size in zip(order.memory.ids, order.memory.bytes, strict=True):
            name = host.names[id_]
            if full and size < host.sizes.get(name, 0):
                size += (host.sizes[name] - size) // 2
                report.actual_ids.append(id_)
                report.actual_bytes.append(size)
            host.sizes[name] = size
        host.asked += [reclaim.request for reclaim in order.reclaim]
        if answers or report.actual_ids or report.actual_cpu_ids:
            host.say(report)

    @rule(number=st.integers(0, AGENTS - 1), index=st.integers(0, EACH - 1), mib=st.integers(1, 4096))
    def a_host_shrinks(self, number: int, index: int, mib: int) -> None:
        """By itself, or because it was asked. It answers also if there is nothing to shrink."""
        host = self.hosts[number]
        report = Report()
        for id_, name in host.names.items():
            if name == f"{host.name}-c{index}" and mib << 20 < host.sizes.get(name, 0):
                host.sizes[name] = mib << 20
                report.shrunk.ids.append(id_)
                report.shrunk.limit_bytes.append(mib << 20)
        if host.asked:
            report.shrunk.request = host.asked.popleft()
        if host.session and report.HasField("shrunk"):
            host.say(report)

    @rule()
    def what_did_not_go_is_tried_again(self) -> None:
        self.at_s += AGAIN_S
        self.books.tick(self.at_s)

    @rule(number=st.integers(0, AGENTS - 1))
    def a_host_connects_anew(self, number: int) -> None:
        self.connect(self.hosts[number])

    @rule(number=st.integers(0, AGENTS - 1))
    def a_call_is_lost(self, number: int) -> None:
        host = self.hosts[number]
        if self.books.agents[host.name].live:
            self.books.lost(host.name, "the test says so", self.at_s)
            host.session = 0
            host.wire.clear()

    @rule(number=st.integers(0, AGENTS - 1), busy=st.lists(st.booleans(), min_size=EACH, max_size=EACH))
    def a_period_ends(self, number: int, busy: list[bool]) -> None:
        host = self.hosts[number]
        self.at_s += 0.1
        mine = {name: id_ for id_, name in host.names.items()}
        for index, throttled in enumerate(busy):
            name = f"{host.name}-c{index}"
            if name in mine and host.quotas.get(name) and self.books.agents[host.name].live:
                said = records([mine[name]], int(self.at_s * 1e9), throttled, host.quotas[name])
                self.books.telemetry([(host.name, Batch(1, 1, _rows(said).tobytes()))], self.at_s)

    @rule(number=st.integers(0, AGENTS - 1), index=st.integers(0, EACH - 1), mib=st.integers(1, 4096))
    def a_container_is_held(self, number: int, index: int, mib: int) -> None:
        host = self.hosts[number]
        for id_, name in host.names.items():
            if name == f"{host.name}-c{index}" and host.session:
                report = Report()
                report.held.ids.append(id_)
                report.held.needed_bytes.append(mib << 20)
                host.say(report)

    @invariant()
    def limits_in_force_keep_to_the_global_limits(self) -> None:
        quotas = sum(sum(host.quotas.values()) for host in self.hosts)
        sizes = sum(sum(host.sizes.values()) for host in self.hosts)
        assert quotas <= self.books.cpu.bounds()[0] * (1 + 1e-9) <= CORES * (1 + 1e-8)
        assert sizes <= self.books.memory.bounds()[0] <= BYTES * (1 + 1e-8)


TestConversation = Conversation.TestCase
TestConversation.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
