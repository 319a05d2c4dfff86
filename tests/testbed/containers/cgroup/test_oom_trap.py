"""The trap on the real kernel, with cgroups of both versions: which task is held, runs on, or is killed."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from testbed.containers.cgroup.drivers import Group, GroupV1
from testbed.containers.cgroup.memory_v2 import HEADROOM_BYTES
from testbed.containers.ports import Trap
from tests.patience import PATIENCE_S
from tests.testbed.containers.eater import MIB, Eater, readable
from tests.testbed.containers.real_groups import kills
from tests.testbed.containers.waiting import until

pytestmark = pytest.mark.root

STEP = MIB


def grant(group: Group, trap: Trap, eater: Eater, timeout_s: float = 60.0) -> list[float]:
    """Raises the limit to one step above what there is (v2: that may be above the limit) whenever tasks are
    held, until the process has what it wants; how long each grant took from the event on, s."""
    took: list[float] = []
    deadline = time.monotonic() + timeout_s
    while not eater.done():
        assert time.monotonic() < deadline, f"still held after {len(took)} grants"
        if not readable(trap.descriptor, 0.05):
            continue
        began = time.perf_counter()
        if trap.held():
            group.set_memory_limit(max(group.limit_bytes, group.charged_bytes()) + STEP)
            took.append(time.perf_counter() - began)
    return took


def test_fifty_steps_through_the_trap_kill_nobody(group: Group) -> None:
    group.set_memory_limit(16 * MIB)
    with Eater(group) as eater:
        trap = group.trap()
        assert not trap.held()
        eater.take(64 * MIB)
        grants = grant(group, trap, eater)
        assert eater.process.poll() is None
    # Nearly 64 MiB beyond what was free, in steps of one MiB; v2 hands out what is above its limit besides.
    assert len(grants) >= (50 if isinstance(group, GroupV1) else 50 * MIB // (STEP + HEADROOM_BYTES))
    assert kills(group) == 0


@pytest.mark.slow
def test_a_held_task_waits_for_as_long_as_it_takes(group: Group) -> None:
    """Version 2 lets a task creep, but not to its death within seconds."""
    group.set_memory_limit(16 * MIB)
    with Eater(group) as eater:
        trap = group.trap()
        eater.take(32 * MIB)
        assert readable(trap.descriptor, 20.0)
        if isinstance(group, GroupV1):
            assert trap.held()
            assert not readable(trap.descriptor, 0.0)
        assert not eater.done(0.5 if isinstance(group, GroupV1) else 4.0)
        assert trap.held()
        group.set_memory_limit(64 * MIB)
        eater.finished_ns(20.0)
        assert not trap.held()
    assert kills(group) == 0


def test_surrender_hands_the_held_to_the_killer_and_holds_the_next(group: Group) -> None:
    group.set_memory_limit(16 * MIB)
    trap = group.trap()
    with Eater(group) as first:
        first.take(64 * MIB)
        assert readable(trap.descriptor, 20.0)
        trap.held()
        trap.surrender()
        assert first.process.wait(PATIENCE_S) == -9
    assert kills(group) == 1
    with Eater(group) as second:
        second.take(32 * MIB)
        until(lambda: readable(trap.descriptor, 0.0) and trap.held())
        group.set_memory_limit(64 * MIB)
        second.finished_ns(20.0)
    assert kills(group) == 1


def test_close_gives_the_group_back_to_the_killer(group: Group) -> None:
    group.set_memory_limit(16 * MIB)
    trap = group.trap()
    trap.close()
    trap.close()
    assert trap.descriptor == -1
    with Eater(group) as eater:
        eater.take(64 * MIB)
        assert eater.process.wait(PATIENCE_S) == -9
    assert kills(group) == 1


def test_removing_a_group_ends_what_the_trap_holds(group: Group) -> None:
    group.set_memory_limit(16 * MIB)
    trap = group.trap()
    with Eater(group) as eater:
        eater.take(64 * MIB)
        assert readable(trap.descriptor, 20.0)
        group.remove()
        assert eater.process.wait(PATIENCE_S) == -9
    assert trap.descriptor == -1
    assert not any(each.exists() for each in group.directories)


@pytest.mark.slow
def test_a_thousand_traps_in_a_row_kill_nobody(
    group: Group, record_property: Callable[[str, object], None]
) -> None:
    group.set_memory_limit(16 * MIB)
    taken_s: list[float] = []
    resumed_s: list[float] = []
    with Eater(group) as eater:
        trap = group.trap()
        while len(taken_s) < 1_000:
            # Each wish is half a step beyond the limit, so its end is the held task running again. An event
            # may be of a task that has gone on by now: raising the limit that covers swap wakes it first;
            # and v2 lets it go on above the limit.
            eater.take(max(group.limit_bytes - group.charged_bytes(), 0) + STEP // 2)
            written = 0
            while not eater.has_answered(or_readable=trap.descriptor):
                began = time.monotonic_ns()
                if trap.held():
                    group.set_memory_limit(group.limit_bytes + STEP)
                    written = time.monotonic_ns()
                    taken_s.append((written - began) / 1e9)
            finished = eater.finished_ns(60.0)
            if written:
                resumed_s.append((finished - written) / 1e9)
        assert eater.process.poll() is None
    assert kills(group) == 0
    for name, values in (("event_to_limit_ms", taken_s), ("limit_to_running_ms", resumed_s)):
        record_property(
            name, [round(float(value) * 1e3, 3) for value in np.percentile(values, (50, 99, 100))]
        )
        print(name, "p50, p99, max:", np.percentile(values, (50, 99, 100)) * 1e3)
