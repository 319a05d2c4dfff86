"""The control loop on groups that only remember: decisions that break the port, and groups that go."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import pytest

from control.allocator.model import NO_IDS, Application, Decision
from testbed.containers.host.fleet import AttachedSpec, Fleet, Managed
from testbed.containers.host.records import RunRecord
from testbed.containers.host.run import ControlLoop
from testbed.containers.ports import GroupGoneError
from tests.contract.scripted_allocator import Scripted, cpu, memory
from tests.testbed.containers.remote.fake_host import FakeGroup
from twinbed import BackendError, InvariantError

LIMIT = 64 << 20


class Silent:
    """A telemetry source that never has anything to report."""

    descriptor, gone = -1, NO_IDS

    def add(self, ids, groups) -> None: ...

    def remove(self, ids) -> None: ...

    def due_ns(self) -> int:
        return 1 << 62


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda event: Decision(memory=memory(event.ids, LIMIT)), "a, which is held, and raised nothing"),
        (lambda event: Decision(reclaim=np.array([0])), "no rule"),
        (lambda event: Decision(cpu=cpu(event.ids, 0.0)), "quota of 0 cores"),
        (lambda event: Decision(memory=memory(event.ids + 1, -1), cpu=cpu(event.ids, -1)), "quota of -1"),
    ],
    ids=["no raise", "no rule", "no quota", "who left does not matter"],
)
def test_an_answer_that_cannot_be_is_the_allocators_error(answer, words: str) -> None:
    group = FakeGroup("a", 1)
    fleet = Fleet([Managed(AttachedSpec("a", lambda: group))], [None], 2.0)
    allocator = Scripted(quota=1.0, limit=LIMIT, oom=answer)
    loop = ControlLoop(
        fleet, (Application("app", 2.0, 1 << 30),), allocator, Silent(), RunRecord(fleet, 0.1), None
    )
    try:
        loop.deploy()
        loop.begin(time.monotonic_ns())
        group.armed.hold()
        with pytest.raises(InvariantError, match=words):
            loop.run(time.monotonic_ns() + 5_000_000_000, lambda: True)
    finally:
        loop.close()


def loop_of(*groups: FakeGroup) -> ControlLoop:
    managed = [Managed(AttachedSpec(group.name, partial(_itself, group))) for group in groups]
    fleet = Fleet(managed, [None] * len(groups), 2.0)
    application = Application("app", 2.0, 1 << 30)
    record = RunRecord(fleet, 0.1)
    return ControlLoop(fleet, (application,), Scripted(quota=1.0, limit=LIMIT), Silent(), record, None)


def _itself(group: FakeGroup) -> FakeGroup:
    return group


class Going(FakeGroup):
    """A group that is removed after its first limits were written."""

    def trap(self):
        raise GroupGoneError("a: gone")


def test_a_group_that_goes_while_it_joins_leaves_after_it_joined() -> None:
    loop = loop_of(Going("a", 1), FakeGroup("b", 2))
    try:
        loop.deploy()
        events = loop._record.events
        assert list(zip(events.container, events.kind, strict=True)) == [
            (0, "join"),
            (0, "leave"),
            (1, "join"),
        ]
    finally:
        loop.close()


class Contested(FakeGroup):
    """A group whose limits another system changes all the time. Its memory limit cannot be lowered again."""

    kept = 0

    def keep_limits(self) -> bool:
        super().keep_limits()
        self.kept += 1
        self.set_memory_limit(LIMIT)
        return True

    def set_memory_limit(self, limit_bytes: int) -> int:
        return super().set_memory_limit(limit_bytes + 4096 if self.kept else limit_bytes)


def test_an_attached_group_has_its_limits_kept_and_leaves_once_it_is_gone() -> None:
    group = Contested("a", 1)
    loop = loop_of(group)
    try:
        loop.deploy()
        loop.begin(time.monotonic_ns())
        loop.run(time.monotonic_ns() + 250_000_000, lambda: True)
        assert group.kept
        assert loop.executor.containers["a"].limit_bytes == LIMIT + 4096
        assert loop.executor.containers["a"].wanted_bytes == LIMIT
        group.gone = True
        loop.run(time.monotonic_ns() + 5_000_000_000, lambda: loop.executor.containers["a"].id is not None)
        assert loop._record.events.kind[:2] == ["join", "leave"]
    finally:
        loop.close()


class Stuck(FakeGroup):
    """A group whose limits cannot be restored."""

    def remove(self) -> None:
        super().remove()
        raise BackendError(f"{self.name}: cannot be restored")


def test_limits_that_cannot_be_restored_do_not_keep_those_of_others() -> None:
    groups = Stuck("a", 1), FakeGroup("b", 2), Stuck("c", 3)
    loop = loop_of(*groups)
    loop.deploy()
    with pytest.raises(BackendError, match="cannot be restored"):
        loop.close()
    assert all(group.removed for group in groups)
