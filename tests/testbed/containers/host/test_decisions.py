"""Decisions on groups that only remember: what is written, in which order, and what becomes of the rest."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from control.allocator.model import (
    NOTHING,
    PAGE_BYTES,
    CpuLimits,
    Decision,
    MemoryLimits,
    OomEvents,
    Reason,
    Shrunk,
)
from control.allocator.ports import ReclaimRule
from testbed.containers.host.container import ContainerSpec
from testbed.containers.host.decisions import Hands, whole_us
from testbed.containers.host.fleet import Fleet
from testbed.containers.host.records import Books
from testbed.containers.host.supervised import Managed, Status, Supervised
from testbed.containers.ports import GroupGoneError
from twinbed import InvariantError

MIB = 1 << 20


class FakeGroup:
    def __init__(self, name: str, log: list) -> None:
        self.name, self.log = name, log
        self.charged, self.least, self.gone = 10 * MIB, 0, False

    def set_cpu_quota(self, cores: float) -> None:
        self._there()
        self.log.append((self.name, cores))

    def set_memory_limit(self, limit: int) -> int:
        self._there()
        self.log.append((self.name, limit))
        return max(limit, self.least)

    def charged_bytes(self) -> int:
        self._there()
        return self.charged

    def _there(self) -> None:
        if self.gone:
            raise GroupGoneError(f"{self.name}: gone")


@dataclass
class Asked:
    """An allocator that answers what it is given to answer."""

    name = "asked"
    traps_oom: bool = True
    reclaim: ReclaimRule | None = None
    oom: Decision = NOTHING
    reclaimed: Decision = NOTHING
    events: list[OomEvents] = field(default_factory=list)
    shrunk: list[Shrunk] = field(default_factory=list)

    def on_oom(self, event: OomEvents) -> Decision:
        self.events.append(event)
        return self.oom

    def on_reclaimed(self, shrunk: Shrunk) -> Decision:
        self.shrunk.append(shrunk)
        return self.reclaimed


class World:
    """Containers a, b and c with ids 10, 11 and 12, 0.5 core and 100 MiB each, all up."""

    def __init__(self, allocator: Asked) -> None:
        self.log: list = []
        self.groups = [FakeGroup(name, self.log) for name in "abc"]
        managed = [Managed(ContainerSpec(name, ("true",))) for name in "abc"]
        self.containers = [Supervised(each, i, self.groups[i]) for i, each in enumerate(managed)]
        self.fleet = Fleet(self.containers, 2.0)
        self.books = Books(self.fleet, 0.1)
        self.gone: list[str] = []
        self.down: list[tuple[str, str]] = []
        self.hands = Hands(
            self.fleet,
            allocator,
            self.books,
            gone=lambda each: self.gone.append(each.name),
            take_down=lambda each, why: self.down.append((each.name, why)),
        )
        self.fleet.add([0, 1, 2], np.array([10, 11, 12]))
        self.fleet.quota_cores[:] = 0.5
        self.fleet.limit_bytes[:] = 100 * MIB
        for each in self.containers:
            self.fleet.set_status(each, Status.UP)


def cpu(ids, cores) -> CpuLimits:
    return CpuLimits(np.array(ids), np.array(cores, np.float64), np.full(len(ids), Reason.UNUSED, np.uint8))


def ram(ids, limits) -> MemoryLimits:
    return MemoryLimits(
        np.array(ids), np.array(limits, np.int64), np.full(len(ids), Reason.OOM_GRANT, np.uint8)
    )


def test_decreases_come_before_increases_and_memory_before_cpu() -> None:
    world = World(Asked())
    world.hands.carry_out(
        Decision(
            cpu=cpu([10, 11, 12], [0.9, 0.1, 0.6]), memory=ram([10, 11, 12], [120 * MIB, 90 * MIB, 80 * MIB])
        )
    )

    assert world.log == [
        ("c", 80 * MIB),
        ("b", 90 * MIB),
        ("a", 120 * MIB),
        ("b", 0.1),
        ("c", 0.6),
        ("a", 0.9),
    ]
    assert world.books.limit_changes == 6
    assert world.fleet.quota_cores.tolist() == [0.9, 0.1, 0.6]


def test_a_quota_that_is_the_same_in_microseconds_is_not_written() -> None:
    world = World(Asked())
    world.hands.carry_out(Decision(cpu=cpu([10, 11], [0.5 + 4e-6, 0.50002])))

    assert world.log == [("b", 0.50002)]
    assert world.books.skipped == 1
    assert world.books.limit_changes == 1


@pytest.mark.parametrize(
    ("cores", "written"),
    [(0.5, 0.5), (0.123456, 0.12345), (1e-6, 0.01), (float("inf"), float("inf")), (0.29, 0.29)],
)
def test_quotas_are_rounded_down_to_what_the_kernel_holds(cores: float, written: float) -> None:
    assert whole_us(cores) == written


def test_who_left_or_vanished_stops_nobody() -> None:
    world = World(Asked())
    world.groups[0].gone = True
    world.hands.carry_out(
        Decision(
            cpu=cpu([10, 99, 12], [0.1, 0.1, 0.1]),
            memory=ram([10, 99, 12], [MIB, MIB, 50 * MIB]),
            kill=np.array([99]),
        )
    )

    assert world.gone == ["a", "a"]
    assert world.log == [("c", 50 * MIB), ("c", 0.1)]
    assert world.down == []


def test_restarts_and_kills_are_handed_on() -> None:
    world = World(Asked())
    world.hands.carry_out(Decision(restart=np.array([11]), kill=np.array([12])))

    assert world.down == [("b", "restart"), ("c", "kill")]


def test_a_held_container_is_asked_about_and_granted() -> None:
    allocator = Asked(oom=Decision(memory=ram([11], [150 * MIB])))
    world = World(allocator)
    world.groups[1].charged = 100 * MIB + 3
    world.fleet.hold(world.containers[1])
    world.hands.out_of_memory([world.containers[1]])

    assert allocator.events[0].ids.tolist() == [11]
    assert allocator.events[0].needed_bytes.tolist() == [PAGE_BYTES]
    assert world.containers[1].status is Status.UP
    assert world.books.events.kind == ["grant"]
    assert world.books.events.limit_bytes == [150 * MIB]


def test_an_answer_that_raises_nothing_is_the_allocators_error() -> None:
    world = World(Asked(oom=Decision(memory=ram([11], [100 * MIB]))))
    world.fleet.hold(world.containers[1])

    with pytest.raises(InvariantError, match="b, which is held"):
        world.hands.out_of_memory([world.containers[1]])


def test_a_reclaim_shrinks_what_runs_and_reports_what_was_reached() -> None:
    allocator = Asked(reclaim=ReclaimRule(5.0, 20 * MIB))
    world = World(allocator)
    world.fleet.hold(world.containers[0])
    world.groups[1].least = 40 * MIB
    world.groups[2].charged = 90 * MIB
    world.hands.reclaim(np.array([0]))

    (shrunk,) = allocator.shrunk
    assert shrunk.apps.tolist() == [0]
    assert shrunk.ids.tolist() == [11]
    assert shrunk.limit_bytes.tolist() == [40 * MIB], "as far as the kernel went"
    assert world.books.events.kind == ["reclaim"]


def test_a_limit_that_the_kernel_could_not_lower_yet_is_tried_again() -> None:
    world = World(Asked())
    world.groups[0].least = 70 * MIB
    world.hands.carry_out(Decision(memory=ram([10], [60 * MIB])))
    assert world.fleet.limit_bytes[0] == 70 * MIB

    world.groups[0].least = 0
    world.hands.try_again()
    world.hands.try_again()
    assert world.fleet.limit_bytes[0] == 60 * MIB
    assert world.log == [("a", 60 * MIB)] * 2


def test_a_reclaim_without_a_rule_is_the_allocators_error() -> None:
    with pytest.raises(InvariantError, match="no rule"):
        World(Asked()).hands.carry_out(Decision(reclaim=np.array([0])))


@pytest.mark.parametrize(
    "decision", [Decision(cpu=cpu([10], [0.0])), Decision(memory=ram([10], [-1]))], ids=["quota", "memory"]
)
def test_limits_that_are_none_are_the_allocators_error(decision: Decision) -> None:
    with pytest.raises(InvariantError, match="asked decided"):
        World(Asked()).hands.carry_out(decision)
