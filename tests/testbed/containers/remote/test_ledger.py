"""Limits on their way: whatever hosts confirm, and when, what can be in force keeps to the global limit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from testbed.containers.remote.ledger import LARGE_CORES, Changes, Ledger

CAP = 100
MOST = 3


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def cores(*amounts: float) -> np.ndarray:
    return np.array(amounts, np.float64)


def join(ledger: Ledger, id_: int, in_force: float) -> None:
    ledger.join(ids(id_), ids(0), cores(in_force))


def decide(ledger: Ledger, id_: int, value: float, reason: int = 1) -> None:
    ledger.decide(ids(id_), cores(value), np.array([reason], np.uint8))


def sent(ledger: Ledger, *slots: int) -> list[tuple[int, float, int]]:
    """Return the limits that the host of these containers gets now."""
    ledger.settle()
    (changes,) = ledger.send([ids(*slots)], 100)
    return told(changes)


def told(changes: Changes | None) -> list[tuple[int, float, int]]:
    return [] if changes is None else list(zip(*(column.tolist() for column in changes), strict=True))


class SlowHosts(RuleBasedStateMachine):
    """An allocator that keeps to CAP in its own books, and hosts that read and write late, or are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger([CAP], 1 << 62)
        self.wanted: dict[int, int] = {}
        self.real: dict[int, int] = {}
        self.wire: list[Changes] = []
        self.away: set[int] = set()

    @initialize(count=st.integers(2, 4))
    def deploy(self, count: int) -> None:
        for id_ in range(count):
            join(self.ledger, id_, 0)
            self.wanted[id_] = self.real[id_] = 0

    @rule(data=st.data())
    def the_allocator_decides(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.wanted)))
        room = CAP - sum(self.wanted.values()) + self.wanted[id_]
        self.wanted[id_] = data.draw(st.integers(1, room)) if room else 0
        decide(self.ledger, id_, self.wanted[id_])

    @rule()
    def limits_are_cleared(self) -> None:
        self.ledger.settle()

    @rule(data=st.data())
    def an_order_is_sent(self, data: st.DataObject) -> None:
        slots = data.draw(st.sets(st.sampled_from(sorted(self.wanted)), min_size=1))
        (order,) = self.ledger.send([ids(*slots)], MOST)
        if order is not None:
            assert len(order.ids) <= MOST
            assert not self.away & {*order.ids.tolist()}
            on_the_way = {id_ for other in self.wire for id_ in other.ids.tolist()}
            assert not on_the_way & {*order.ids.tolist()}, "one limit per container is on its way"
            assert order.values.tolist() == [self.wanted[id_] for id_ in order.ids.tolist()], "the latest"
            self.wire.append(order)

    @rule()
    def everything_cleared_is_sent(self) -> None:
        self.ledger.settle()
        (order,) = self.ledger.send([ids(*self.wanted)], len(self.wanted))
        self.wire += [order] if order is not None else []

    @rule(data=st.data())
    def a_host_writes_an_order(self, data: st.DataObject) -> None:
        if self.wire:
            self.write(self.wire.pop(data.draw(st.integers(0, len(self.wire) - 1))))

    def write(self, order: Changes) -> None:
        for id_, value in zip(order.ids.tolist(), order.values.tolist(), strict=True):
            self.real[id_] = int(value)
        self.ledger.confirm(order.ids, order.values)

    @rule(data=st.data())
    def a_host_is_lost(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.wanted)))
        self.away.add(id_)
        self.ledger.part(ids(id_))
        kept = []
        for order in self.wire:
            mine = order.ids == id_
            if mine.any() and data.draw(st.booleans()):
                self.real[id_] = int(order.values[mine][0])  # written, but nobody hears of it
            kept.append(Changes(order.ids[~mine], order.values[~mine], order.reasons[~mine]))
        self.wire = [order for order in kept if order.ids.size]

    @rule(data=st.data())
    def a_host_comes_back(self, data: st.DataObject) -> None:
        if self.away:
            id_ = data.draw(st.sampled_from(sorted(self.away)))
            self.away.remove(id_)
            self.ledger.resume(ids(id_), cores(self.real[id_]))

    @rule(data=st.data())
    def a_host_shrinks_by_itself(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.wanted)))
        on_the_way = any(id_ in order.ids for order in self.wire)
        if self.real[id_] and not on_the_way and id_ not in self.away:
            lower = data.draw(st.integers(0, self.real[id_]))
            if self.ledger.report(ids(id_), cores(lower))[0]:
                self.wanted[id_] = lower
            self.real[id_] = lower

    @invariant()
    def what_is_in_force_keeps_to_the_global_limit(self) -> None:
        assert sum(self.real.values()) <= self.ledger.bounds()[0] <= CAP * (1 + 1e-9)

    @precondition(lambda self: self.wanted)
    @rule()
    def everything_arrives_in_the_end(self) -> None:
        for id_ in sorted(self.away):
            self.ledger.resume(ids(id_), cores(self.real[id_]))
        self.away.clear()
        while self.wire or self.ledger.settle().size or self.ledger.waiting():
            while self.wire:
                self.write(self.wire.pop(0))
            self.ledger.settle()
            (order,) = self.ledger.send([ids(*self.wanted)], len(self.wanted))
            assert order is not None or not self.ledger.waiting(), "something always fits"
            self.wire += [order] if order is not None else []


TestSlowHosts = SlowHosts.TestCase
TestSlowHosts.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_raise_waits_for_the_cut_that_makes_room_on_another_host() -> None:
    ledger = Ledger([4.0], 1e9)
    for id_ in (1, 2):
        join(ledger, id_, 2.0)
        decide(ledger, id_, 2.0)
        assert sent(ledger, id_) == [(id_, 2.0, 1)]
        ledger.confirm(ids(id_), cores(2.0))
    decide(ledger, 1, 1.0, 5)
    decide(ledger, 2, 3.0, 4)
    assert sent(ledger, 1, 2) == [(1, 1.0, 5)]
    assert sent(ledger, 1, 2) == []
    ledger.confirm(ids(1), cores(1.0))
    assert sent(ledger, 1, 2) == [(2, 3.0, 4)]


def test_without_a_limit_nothing_waits() -> None:
    ledger = Ledger([4.0], 1e9)
    for id_ in (1, 2):
        join(ledger, id_, 0.0)
        decide(ledger, id_, float("inf"))
    assert [id_ for id_, _, _ in sent(ledger, 1, 2)] == [1, 2]


def test_what_left_is_forgotten_with_what_it_waited_for() -> None:
    ledger = Ledger([4.0], 1e9)
    join(ledger, 1, 0.0)
    decide(ledger, 1, 4.0)
    join(ledger, 2, 4.0)
    assert sent(ledger, 1) == []
    ledger.leave(ids(2))
    ledger.leave(ids(2))
    assert sent(ledger, 1) == [(1, 4.0, 1)]
    ledger.leave(ids(1))
    assert ledger.bounds()[0] == 0.0
    decide(ledger, 1, 1.0)
    assert sent(ledger, 1) == []


def test_of_many_decisions_the_latest_is_sent_when_the_host_has_answered() -> None:
    ledger = Ledger([4.0], 1e9)
    join(ledger, 1, 0.0)
    decide(ledger, 1, 1.0)
    assert sent(ledger, 1) == [(1, 1.0, 1)]
    for value in (2.0, 0.5, 3.0, 2.5):
        decide(ledger, 1, value)
        assert sent(ledger, 1) == []
    ledger.confirm(ids(1), cores(1.0))
    assert sent(ledger, 1) == [(1, 2.5, 1)]
    assert ledger.bounds()[0] == 2.5


def test_cuts_go_before_raises_where_an_order_cannot_have_all() -> None:
    ledger = Ledger([10.0], 1e9)
    for id_ in range(4):
        join(ledger, id_, 2.0)
    for id_, value in enumerate((2.5, 1.0, 2.5, 2.0)):
        decide(ledger, id_, value)
    ledger.settle()
    first, none = ledger.send([ids(0, 1, 2, 3), ids()], 2)
    assert none is None
    assert [id_ for id_, _, _ in told(first)] == [1, 3]


HOSTS = [[0, 1, 2], [], [5, 3], [4], [6, 9, 7, 8]]
DECIDED = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30), st.integers(0, 9)), max_size=15)


@given(rounds=st.lists(DECIDED, max_size=4))
def test_hosts_that_are_sent_to_together_get_what_each_would_get_alone(
    rounds: list[list[tuple[int, int, int]]],
) -> None:
    together, alone = Ledger([CAP], LARGE_CORES), Ledger([CAP], LARGE_CORES)
    for ledger in (together, alone):
        ledger.join(np.arange(10), np.zeros(10, np.int64), np.full(10, 10.0))
    hosts = [ids(*host) for host in HOSTS]
    for decided in rounds:
        for ledger in (together, alone):
            for decision in decided:
                decide(ledger, *decision)
            ledger.settle()
        for first in (0, 2):
            at_once = together.send(hosts[first:], 2)
            assert [*map(told, at_once)] == [told(*alone.send([host], 2)) for host in hosts[first:]]
            for changes in at_once[::2]:
                for ledger in (together, alone):
                    if changes is not None:
                        ledger.confirm(changes.ids, changes.values)
        assert together.bounds().tolist() == alone.bounds().tolist()


def test_an_agent_cannot_confirm_more_than_was_ever_in_force() -> None:
    ledger = Ledger([100.0], 1 << 62)
    join(ledger, 1, 30.0)
    decide(ledger, 1, 20.0)
    sent(ledger, 1)
    ledger.confirm(ids(1), cores(float(1 << 62)))
    assert ledger.bounds()[0] == 30.0


def test_a_container_that_comes_back_without_a_limit_gets_its_own_at_once() -> None:
    ledger = Ledger([4.0], LARGE_CORES)
    join(ledger, 1, 0.0)
    decide(ledger, 1, 3.0)
    sent(ledger, 1)
    ledger.part(ids(1))
    ledger.resume(ids(1), cores(LARGE_CORES))
    assert sent(ledger, 1) == [(1, 3.0, 1)]
    assert ledger.bounds()[0] == 3.0
    ledger.confirm(ids(1), cores(3.0))
    assert sent(ledger, 1) == []
    decide(ledger, 1, 2.0)
    assert sent(ledger, 1) == [(1, 2.0, 1)]
    # A limit that is in force already needs no more room.
    join(ledger, 2, 3.0)
    decide(ledger, 2, 3.0)
    assert sent(ledger, 2) == [(2, 3.0, 1)]


def test_applications_share_no_room() -> None:
    ledger = Ledger([4.0, 4.0], LARGE_CORES)
    ledger.join(ids(0, 1, 2, 3, 4), ids(0, 0, 1, 1, 0), cores(0.0, 0.0, 0.0, 0.0, 2.0))
    for id_, value in enumerate((3.0, 1.0, 3.0, 1.0)):
        decide(ledger, id_, value)
    assert [id_ for id_, _, _ in sent(ledger, 0, 1, 2, 3)] == [1, 2, 3]
    assert ledger.bounds().tolist() == [3.0, 4.0]


def test_a_limit_that_a_host_lowered_by_itself_is_the_decided_one_from_then_on() -> None:
    ledger = Ledger([CAP], 1 << 62)
    for id_ in range(4):
        join(ledger, id_, 10.0)
    # To nothing, to the same, to more, and of a container that is not there.
    noted = ledger.report(ids(0, 1, 2, 9), cores(0.0, 10.0, 11.0, 1.0))
    assert noted.tolist() == [True, True, False, False]
    assert ledger.report(ids(3), cores(-1.0)).tolist() == [False]
    assert ledger.bounds().tolist() == [30.0]
    decide(ledger, 0, 5.0)
    for step in (lambda: None, ledger.settle, lambda: ledger.send([ids(0)], 1)):
        step()  # it is open, cleared and on its way
        assert ledger.report(ids(0), cores(0.0)).tolist() == [False]
        assert not ledger.in_force(ids(0))[0]


def test_a_host_that_cannot_lower_a_limit_as_far_as_decided_makes_no_room_for_others() -> None:
    ledger = Ledger([CAP], 1 << 62)
    for id_, value in ((1, 70.0), (2, 30.0)):
        join(ledger, id_, 0.0)
        decide(ledger, id_, value)
    sent(ledger, 1, 2)
    ledger.confirm(ids(1, 2), cores(70.0, 30.0))
    decide(ledger, 1, 40.0)
    assert sent(ledger, 1) == [(1, 40.0, 1)]
    ledger.confirm(ids(1), cores(60.0))  # the kernel's page cache, for example
    decide(ledger, 2, 60.0)
    assert ledger.report(ids(1), cores(50.0)).tolist() == [True]
    assert sent(ledger, 1, 2) == [(1, 40.0, 1)], "it is told again, and the raise waits"
    assert ledger.bounds()[0] == 80.0
    ledger.confirm(ids(1), cores(45.0))
    assert ledger.report(ids(1), cores(40.0)).tolist() == [True]
    assert sent(ledger, 1, 2) == [(2, 60.0, 1)]
