"""The control loop on a group that only remembers: decisions that break the port end the run."""

from __future__ import annotations

import time

import numpy as np
import pytest

from control.allocator.model import NO_IDS, Application, Decision
from testbed.containers.host.fleet import AttachedSpec, Fleet, Managed
from testbed.containers.host.records import RunRecord
from testbed.containers.host.run import ControlLoop
from tests.contract.scripted_allocator import Scripted, cpu, memory
from tests.testbed.containers.remote.fake_host import FakeGroup
from twinbed import InvariantError

LIMIT = 64 << 20


class Silent:
    """A telemetry source that never has anything to report."""

    descriptor, gone = -1, NO_IDS

    def add(self, ids, groups) -> None: ...

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
