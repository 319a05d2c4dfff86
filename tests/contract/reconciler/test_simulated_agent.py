"""The host's side of the reconciler's port: what arrives, when, and what is carried out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import simpy

from control.reconciler.model import Rules, Table
from control.reconciler.ports import (
    ALL_TABLES,
    Add,
    ArmTimer,
    Cause,
    Changed,
    Delete,
    Dump,
    Dumped,
    Installed,
    InstallFailed,
    Overflowed,
    Reason,
    Replace,
    Started,
    Timer,
    TimerFired,
)
from tests.contract.reconciler.kernel_tables import KernelTables
from tests.contract.reconciler.simulated_agent import Host, Netlink

LINK = Netlink(message_s=1e-3, read_s=1e-4, buffer_messages=4, dump_s=0.01, dump_entry_s=1e-3, rule_s=0.1)
CAUSE = Cause(Reason.STARTED, 0.0)
EVPN = frozenset({Table.EVPN_FDB})


class Scripted:
    """A controller that answers the first event of each kind as given, and remembers all events."""

    def __init__(self, answers) -> None:
        self._answers, self.events = dict(answers), []

    def handle(self, event):
        self.events.append(event)
        return self._answers.pop(type(event), [])

    def seen(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def host(answers=(), link=LINK, max_rules=100):
    env, tables = simpy.Environment(), KernelTables(max_rules)
    agent = Host(env, tables, link, np.random.SeedSequence(3))
    controller = Scripted(answers)
    agent.start(controller)
    return env, tables, agent, controller


def rows(*remotes, handle=0) -> Rules:
    count = len(remotes)
    return Rules(
        np.full(count, 10),
        np.arange(count) + 1,
        np.full(count, 100),
        np.array(remotes),
        np.array(remotes) + 1000,
        np.full(count, handle),
        np.full(count, 7),
    )


def add(rules, request=1):
    return Add(request, rules, np.zeros(len(rules.mac), np.uint8), CAUSE)


def test_a_change_arrives_after_its_way_and_its_reading():
    env, tables, _, controller = host()
    tables.put(Table.EVPN_FDB, 5, 6, 7, 8)
    env.run()

    (message,) = controller.seen(Changed)
    assert message.at_s == pytest.approx(1.1e-3)
    assert message.tables == EVPN


def test_a_burst_beyond_the_buffer_is_lost_and_said_once():
    env, tables, agent, controller = host()
    for number in range(20):
        tables.put(Table.EVPN_FDB, number, 6, 7, 8)
    env.run()

    assert len(controller.seen(Overflowed)) == 1
    assert len(controller.seen(Changed)) == 4
    assert agent.messages_lost == 16


def test_messages_are_lost_doubled_and_overtaken_as_often_as_said():
    def mean_messages(**trouble):
        env, tables, _, controller = host(link=replace(LINK, buffer_messages=10**6, **trouble))
        for number in range(1000):
            tables.put(Table.ROUTES if number % 2 else Table.EVPN_FDB, number, 6, 7, 8)
        env.run()
        order = [message.tables == EVPN for message in controller.seen(Changed)]
        return len(order) / 1000, sum(np.diff(order) == 0) / 1000

    assert mean_messages(loss=0.3)[0] == pytest.approx(0.7, abs=0.05)
    assert mean_messages(duplication=0.3)[0] == pytest.approx(1.3, abs=0.05)
    assert mean_messages(reordering=0.3, overtaken_s=1.0)[1] > 0
    assert mean_messages() == (1.0, 0.0)


def test_a_dump_takes_its_time_and_shows_everything():
    env, tables, _, controller = host({Started: [Dump(9, ALL_TABLES, CAUSE)]})
    for number in range(5):
        tables.put(Table.ROUTES, number, 32, 1, 2)
    env.run()

    (dump,) = controller.seen(Dumped)
    assert dump.at_s == pytest.approx(0.015)
    assert dump.request == 9
    assert sorted(dump.state.routes.prefix.tolist()) == list(range(5))
    assert not dump.incomplete


def test_a_table_that_changes_while_it_is_read_is_reported_as_interrupted():
    env, tables, _, controller = host({Started: [Dump(9, ALL_TABLES, CAUSE)]})
    for number in range(10):
        tables.put(Table.ROUTES, number, 32, 1, 2)
    env.run(until=0.0105)
    tables.remove(Table.ROUTES, 0, 32, 1, 2)
    env.run()

    (dump,) = controller.seen(Dumped)
    assert dump.incomplete == {Table.ROUTES}


def test_rule_changes_are_made_one_after_the_other_and_answered_whole():
    env, tables, _, controller = host({Started: [add(rows(1, 2, 2))]})
    env.run(until=0.25)
    assert tables.size(Table.RULES) == 2
    env.run()

    (answer,) = controller.seen(Installed)
    assert answer.at_s == pytest.approx(0.3)
    # An agent is not notified of its own changes.
    assert not controller.seen(Changed)


def test_a_crash_stops_a_rule_change_midway_and_silences_everything():
    env, tables, agent, controller = host(
        {Started: [add(rows(1, 2, 3)), Dump(2, ALL_TABLES, CAUSE), ArmTimer(Timer.RETRY, 0.2, CAUSE)]}
    )
    env.run(until=0.005)
    tables.put(Table.ROUTES, 1, 32, 1, 2)
    agent.crash()
    env.run(until=0.006)
    successor = Scripted({})
    agent.start(successor)
    env.run()

    assert [type(event) for event in controller.events] == [Started]
    assert [type(event) for event in successor.events] == [Started]
    assert tables.size(Table.RULES) == 0


def test_arming_a_timer_again_moves_it():
    env, _, _, controller = host(
        {Started: [ArmTimer(Timer.RETRY, 0.2, CAUSE), ArmTimer(Timer.RETRY, 0.5, CAUSE)]}
    )
    env.run()

    assert controller.seen(TimerFired) == [TimerFired(0.5, Timer.RETRY)]


def test_rules_beyond_the_kernels_room_and_contradicting_actions_are_refused():
    bad = rows(1, 2, 3)
    bad.action[1] = bad.action[0]
    env, tables, _, controller = host({Started: [add(bad)]}, max_rules=1)
    env.run()

    (answer,) = controller.seen(InstallFailed)
    assert answer.rows.tolist() == [1, 2]
    assert "ENOSPC" in answer.why
    tables.max_rules = 100
    assert "EEXIST" in (tables.add_rule((10, 9, 100, 2, bad.action[0], 0, 7)) or "")


def test_a_rule_is_replaced_and_deleted_by_handle_or_by_what_it_matches():
    env, tables, agent, _ = host({Started: [add(rows(1, 2))]})
    env.run()
    steps = {
        Started: [
            Replace(1, rows(5, handle=1), np.zeros(1, np.uint8), CAUSE),
            Replace(2, rows(6), np.zeros(1, np.uint8), CAUSE),
            Delete(3, rows(0, handle=2), np.zeros(1, np.uint8), CAUSE),
            Delete(4, rows(0, handle=2), np.zeros(1, np.uint8), CAUSE),
            Replace(5, rows(5, handle=77), np.zeros(1, np.uint8), CAUSE),
        ]
    }
    second = Scripted(steps)
    agent.start(second)
    env.run()

    assert [row[3:6] for row in tables.rules()] == [(6, 1006, 1)]
    assert [answer.request for answer in second.seen(Installed)] == [1, 2, 3, 4]
    assert "ENOENT" in second.seen(InstallFailed)[0].why


def test_the_last_rule_takes_its_action_along():
    tables = KernelTables()
    row = (10, 1, 100, 2, 55, 0, 7)
    assert tables.add_rule(row) is None
    assert tables.delete_rule(row) is None

    assert tables.add_rule((10, 1, 100, 3, 55, 0, 7)) is None


def test_others_changes_of_rules_are_news():
    env, tables, _, controller = host()
    tables.add_rule((10, 1, 100, 2, 55, 0, 99))
    env.run()

    assert [message.tables for message in controller.seen(Changed)] == [frozenset({Table.RULES})]


def test_a_dump_after_many_changes_is_what_a_dict_would_say():
    random, tables, said = np.random.default_rng(5), KernelTables(), {}
    for _ in range(3000):
        address, host_, there = (int(value) for value in random.integers((0, 0, 0), (40, 9, 3)))
        if there:
            tables.put(Table.BRIDGE_FDB, address, host_, 0, 0)
            said[address] = host_
        else:
            tables.remove(Table.BRIDGE_FDB, address, 0)
            said.pop(address, None)

    dump = tables.dump(Table.BRIDGE_FDB)
    assert dict(zip(dump.mac.tolist(), dump.ifindex.tolist(), strict=True)) == said
