"""Limits on their way: whatever hosts confirm, and when, what can be in force keeps to the global limit."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from testbed.containers.remote.ledger import Change, Ledger

CAP = 100


class SlowHosts(RuleBasedStateMachine):
    """An allocator that keeps to CAP in its own books, and hosts that write limits late, or lose them."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger([CAP], 1 << 62)
        self.wanted: dict[int, int] = {}
        self.real: dict[int, int] = {}
        self.wire: dict[int, deque[int]] = {}

    @initialize(count=st.integers(1, 6))
    def deploy(self, count: int) -> None:
        for id_ in range(count):
            self.ledger.join(id_, 0, 0)
            self.wanted[id_] = self.real[id_] = 0
            self.wire[id_] = deque()

    def send(self, changes: list[Change]) -> None:
        for each in changes:
            self.wire[each.id].append(int(each.value))

    @rule(data=st.data())
    def the_allocator_decides(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.wanted)))
        room = CAP - sum(self.wanted.values()) + self.wanted[id_]
        self.wanted[id_] = data.draw(st.integers(1, room)) if room else 0
        change = self.ledger.decide(id_, self.wanted[id_], 1)
        self.send([change] if change else [])
        self.send(self.ledger.released())

    @rule(data=st.data())
    def a_host_writes(self, data: st.DataObject) -> None:
        busy = sorted(id_ for id_, queue in self.wire.items() if queue)
        if busy:
            id_ = data.draw(st.sampled_from(busy))
            self.real[id_] = self.wire[id_].popleft()
            self.ledger.confirm(id_, self.real[id_])
            self.send(self.ledger.released())

    @rule(data=st.data())
    def a_host_is_lost_and_comes_back(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.wanted)))
        for _ in range(data.draw(st.integers(0, len(self.wire[id_])))):
            self.real[id_] = self.wire[id_].popleft()
        self.wire[id_].clear()
        self.send(self.ledger.resume([id_], [self.real[id_]]))
        self.send(self.ledger.released())

    @rule(data=st.data())
    def a_host_shrinks_by_itself(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.wanted)))
        if self.real[id_] and not self.wire[id_]:
            lower = data.draw(st.integers(0, self.real[id_]))
            if self.ledger.report(id_, lower):
                self.wanted[id_] = lower
            self.real[id_] = lower
            self.send(self.ledger.released())

    @invariant()
    def what_is_in_force_keeps_to_the_global_limit(self) -> None:
        assert sum(self.real.values()) <= self.ledger.bound(0) <= CAP

    @precondition(lambda self: self.wanted)
    @rule()
    def everything_arrives_in_the_end(self) -> None:
        while any(self.wire.values()):
            for id_, queue in self.wire.items():
                while queue:
                    self.real[id_] = queue.popleft()
                    self.ledger.confirm(id_, self.real[id_])
            self.send(self.ledger.released())
        assert self.ledger.waiting() == 0


TestSlowHosts = SlowHosts.TestCase
TestSlowHosts.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_a_raise_waits_for_the_cut_that_makes_room_on_another_host() -> None:
    ledger = Ledger([4.0], 1e9)
    for id_ in (1, 2):
        ledger.join(id_, 0, 2.0)
        ledger.decide(id_, 2.0, 1)
        ledger.confirm(id_, 2.0)
    cut = ledger.decide(1, 1.0, 5)
    assert cut == Change(1, 1.0, 5)
    assert ledger.decide(2, 3.0, 4) is None
    assert ledger.released() == []
    ledger.confirm(1, 1.0)
    assert ledger.released() == [Change(2, 3.0, 4)]


def test_without_a_limit_nothing_waits() -> None:
    ledger = Ledger([4.0], 1e9)
    for id_ in (1, 2):
        ledger.join(id_, 0, 0.0)
        ledger.decide(id_, float("inf"), 1)
    assert [each.id for each in ledger.released()] == [1, 2]


def test_what_left_is_forgotten_with_what_it_waited_for() -> None:
    ledger = Ledger([4.0], 1e9)
    ledger.join(1, 0, 0.0)
    ledger.decide(1, 4.0, 1)
    ledger.join(2, 0, 4.0)
    assert ledger.released() == []
    ledger.leave(2)
    ledger.leave(2)
    assert ledger.released() == [Change(1, 4.0, 1)]
    ledger.leave(1)
    assert ledger.bound(0) == 0.0
    assert ledger.decide(1, 1.0, 1) is None
