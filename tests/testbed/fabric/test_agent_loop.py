"""Events that an agent gives its controller: incomplete and failed dumps, messages meanwhile, and timers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from control.reconciler.model import NO_RULES, Table
from control.reconciler.ports import (
    ALL_TABLES,
    ArmTimer,
    Cause,
    Changed,
    Dump,
    Dumped,
    DumpFailed,
    Reason,
    Started,
    Timer,
    TimerFired,
)
from testbed.fabric import agent as module
from testbed.fabric.agent import Agent
from testbed.fabric.rules.port import FoundRules
from tests.testbed.fabric.small_host import bridge, small_host

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")]

MANY = [
    f"fdb append 02:00:00:00:{number >> 8:02x}:{number & 255:02x} dev vx0 dst 10.0.0.1"
    for number in range(900)
]
CAUSE = Cause(Reason.STARTED, 0.0)


class Rules:
    """An applier without rules. broken: the error that reading raises."""

    ports = frozenset[int]()
    broken: OSError | None = None

    def read(self) -> FoundRules:
        if self.broken is not None:
            raise self.broken
        return FoundRules(NO_RULES)

    def carry_out(self, change):
        raise AssertionError(change)

    def measures(self):
        return {}

    def close(self) -> None: ...


class Listener:
    """A controller that requests a dump when it starts, and keeps the events."""

    def __init__(self) -> None:
        self.told = []

    def handle(self, event):
        self.told.append(event)
        return [Dump(1, ALL_TABLES, CAUSE)] if isinstance(event, Started) else []


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def agent(listener: Listener) -> Iterator[Agent]:
    with small_host(), Agent(listener, Rules()) as made:
        yield made


def changing(monkeypatch: pytest.MonkeyPatch, *, interrupted: frozenset[Table] = frozenset()) -> None:
    """An entry comes while the tables are read."""
    read = module.read_tables

    def read_and_change(netlink):
        tables = replace(read(netlink), interrupted=interrupted)
        bridge("fdb append 02:00:00:00:ff:01 dev vx0 dst 10.0.0.1")
        return tables

    monkeypatch.setattr(module, "read_tables", read_and_change)


def dumped(agent: Agent, listener: Listener) -> Dumped:
    agent.start()
    agent.step(0.0)
    return next(event for event in listener.told if isinstance(event, Dumped))


def test_a_table_that_changed_while_it_came_in_parts_may_lack_entries(
    agent: Agent, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge(*MANY)
    changing(monkeypatch)

    answer = dumped(agent, listener)

    assert answer.incomplete == {Table.EVPN_FDB}
    after = listener.told[listener.told.index(answer) + 1 :]
    assert [event.tables for event in after if isinstance(event, Changed)] == [{Table.EVPN_FDB}]
    assert all(event.at_s >= answer.at_s for event in after)


def test_one_that_came_in_one_piece_lacks_none(
    agent: Agent, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing(monkeypatch)
    assert dumped(agent, listener).incomplete == frozenset()


def test_what_the_kernel_calls_interrupted_is(
    agent: Agent, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing(monkeypatch, interrupted=frozenset({Table.ROUTES}))
    assert dumped(agent, listener).incomplete == {Table.ROUTES}


def test_a_dump_that_fails_is_said(agent: Agent, listener: Listener) -> None:
    agent.applier.broken = OSError(12, "no memory")
    agent.start()
    agent.step(0.0)
    (said,) = (event for event in listener.told if isinstance(event, DumpFailed))
    assert (said.request, said.why) == (1, "[Errno 12] no memory")


def test_a_timer_that_is_armed_again_is_moved(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    class Arming:
        def handle(self, event):
            told.append(event)
            arm = (5.0, 0.01) if isinstance(event, Started) else ()
            return [ArmTimer(Timer.RETRY, after_s, CAUSE) for after_s in arm]

    with Agent(Arming(), Rules()) as other:
        other.start()
        for _ in range(100):
            other.step(0.02)
            if any(isinstance(event, TimerFired) for event in told):
                break
    assert [event.timer for event in told if isinstance(event, TimerFired)] == [Timer.RETRY]
