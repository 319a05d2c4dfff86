"""The executor on groups and commands that only remember: what is written and sent, and in which order."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from control.allocator.model import PAGE_BYTES, CpuLimits, CpuRequests, Decision, MemoryLimits, Reason
from testbed.containers.host.container import TERMINATION_GRACE_S, ContainerSpec
from testbed.containers.host.executor import HostExecutor, whole_us
from testbed.containers.host.hosted import HostedContainer
from testbed.containers.host.life import NEVER_NS, NS, Event, State
from testbed.containers.ports import GroupGoneError
from twinbed import BackendError, InvariantError

MIB = 1 << 20


class FakeTrap:
    def __init__(self) -> None:
        self.is_held, self.surrendered = False, 0

    def held(self) -> bool:
        return self.is_held

    def surrender(self) -> None:
        self.surrendered += 1


class FakeGroup:
    """least: the kernel cannot shrink the group below this; refuses, gone: every write fails so."""

    def __init__(self, name: str, log: list) -> None:
        self.name, self.log, self.directories = name, log, ()
        self.charged, self.least = 10 * MIB, 0
        self.gone = self.refuses = False

    def set_cpu_quota(self, cores: float) -> None:
        self._check()
        self.log.append((self.name, cores))

    def set_cpu_request(self, cores: float) -> None:
        self._check()
        self.log.append((self.name, f"weight of {cores}"))

    def set_memory_limit(self, limit: int) -> int:
        self._check()
        self.log.append((self.name, limit))
        return max(limit, self.least)

    def charged_bytes(self) -> int:
        self._check()
        return self.charged

    def send(self, number: signal.Signals) -> None:
        self.log.append((self.name, number.name))

    def _check(self) -> None:
        if self.gone:
            raise GroupGoneError(f"{self.name}: gone")
        if self.refuses:
            raise BackendError(f"{self.name}: refused")


class FakeCommand:
    """A command that ends when the test says so (`code`); `broken` keeps it from being started."""

    def __init__(self, log: list, name: str) -> None:
        self.process, self.code, self.broken = None, None, False
        self._log, self._name = log, name

    @property
    def running(self) -> bool:
        return self.process is not None

    def start(self, peers, logs, stdout, *, lasting) -> None:
        if self.broken:
            raise BackendError("no place for its log")
        self.process = SimpleNamespace(pid=os.getpid(), send_signal=lambda _: None, wait=lambda: -9)
        self.code = None
        self._log.append((self._name, "start"))

    def poll(self) -> int | None:
        return self.code

    def note_end(self, code: int | None) -> None:
        self.process = None

    def end(self, code: int) -> None:
        self.code = code


class World:
    """An executor of containers a, b and c with ids 10, 11 and 12, 0.5 core and 100 MiB each, all up."""

    def __init__(self, *, attached: bool = False) -> None:
        self.log: list = []
        self.events: list[tuple[str, str]] = []
        self.errors: list[Exception] = []
        self.executor = HostExecutor(self, None, lasting=False)
        self.groups = [FakeGroup(name, self.log) for name in "abc"]
        for id_, group in enumerate(self.groups, 10):
            spec = None if attached else ContainerSpec(group.name, ("true",))
            container = HostedContainer(group.name, None, group)
            if spec is not None:
                container.spec, container.command = spec, FakeCommand(self.log, group.name)
            container.trap = FakeTrap()
            container.quota_cores, container.limit_bytes = 0.5, 100 * MIB
            self.executor.containers[group.name] = container
            self.executor.admit(container, id_)
            self.executor.start(container)
        self.a, self.b, self.c = self.executor.containers.values()
        self.log.clear()

    def changed(self, container) -> None:
        pass

    def happened(self, kind: str, container) -> None:
        self.events.append((container.name, kind))

    def quota_written(self, container, reason: int, took_ns: int) -> None:
        pass

    def started(self, container) -> None:
        container.close_pidfd()

    def oom_killed(self, container) -> None:
        self.events.append((container.name, "told"))

    def gone(self, container, why: str) -> None:
        self.events.append((container.name, "gone"))
        self.executor.dismiss(container)

    def refused(self, container, error: Exception) -> None:
        self.errors.append(error)

    def end(self, container, code: int) -> None:
        container.command.end(code)
        self.executor.see_end(container)


@pytest.fixture
def world() -> World:
    return World()


def cpu(ids, cores) -> CpuLimits:
    return CpuLimits(np.array(ids), np.array(cores, np.float64), np.full(len(ids), Reason.UNUSED, np.uint8))


def ram(ids, limits) -> MemoryLimits:
    return MemoryLimits(
        np.array(ids), np.array(limits, np.int64), np.full(len(ids), Reason.OOM_GRANT, np.uint8)
    )


# --- limits ------------------------------------------------------------------------------------------


def test_cuts_come_before_raises_and_memory_before_cpu(world: World) -> None:
    cores, sizes = [0.9, 0.1, 0.6], [120 * MIB, 90 * MIB, 80 * MIB]
    world.executor.carry_out(Decision(cpu=cpu([10, 11, 12], cores), memory=ram([10, 11, 12], sizes)))

    memory = [("c", 80 * MIB), ("b", 90 * MIB), ("a", 120 * MIB)]
    assert world.log == [*memory, ("b", 0.1), ("c", 0.6), ("a", 0.9)]
    assert world.executor.limit_changes == 6
    assert [container.quota_cores for container in (world.a, world.b, world.c)] == cores


def test_no_sum_of_limits_in_force_exceeds_the_pool_at_any_write(world: World) -> None:
    in_force, sums = dict.fromkeys("abc", 0.5), []
    world.executor.carry_out(Decision(cpu=cpu([10, 11, 12], [1.0, 0.2, 0.3])))
    for name, cores in world.log:
        in_force[name] = cores
        sums.append(sum(in_force.values()))

    assert max(sums) <= 1.5 + 1e-9


def test_the_first_limits_of_a_newcomer_are_no_changes_and_take_room(world: World) -> None:
    world.a.quota_cores = 0.0
    world.executor.carry_out(Decision(cpu=cpu([10, 11], [0.4, 0.1])))

    assert world.log == [("b", 0.1), ("a", 0.4)]
    assert world.executor.limit_changes == 1


def test_a_quota_that_is_the_same_in_microseconds_is_not_written(world: World) -> None:
    world.executor.carry_out(Decision(cpu=cpu([10, 11], [0.5 + 4e-6, 0.50002])))

    assert world.log == [("b", 0.50002)]
    assert (world.executor.skipped, world.executor.limit_changes) == (1, 1)


@pytest.mark.parametrize(
    ("cores", "written"),
    [(0.5, 0.5), (0.123456, 0.12345), (1e-6, 0.01), (float("inf"), float("inf")), (0.29, 0.29)],
)
def test_quotas_are_rounded_down_to_what_the_kernel_holds(cores: float, written: float) -> None:
    assert whole_us(cores) == written


def test_who_left_vanished_or_is_refused_stops_nobody(world: World) -> None:
    world.groups[0].gone, world.groups[1].refuses = True, True
    world.executor.carry_out(
        Decision(
            cpu=cpu([10, 11, 99, 12], [0.1] * 4),
            memory=ram([10, 11, 99, 12], [MIB, MIB, MIB, 50 * MIB]),
            kill=np.array([99]),
        )
    )

    assert world.events == [("a", "gone")]
    assert world.log == [("c", 50 * MIB), ("c", 0.1)]
    assert [str(error) for error in world.errors] == ["b: refused"] * 2
    assert (world.b.quota_cores, world.b.limit_bytes) == (0.5, 100 * MIB)


@pytest.mark.parametrize(
    "decision", [Decision(cpu=cpu([10], [0.0])), Decision(memory=ram([10], [-1]))], ids=["quota", "memory"]
)
def test_a_limit_that_cannot_be_is_refused_and_not_written(world: World, decision: Decision) -> None:
    world.executor.carry_out(decision)

    assert world.log == []
    assert [type(error) for error in world.errors] == [InvariantError]


# --- memory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("excess", "needed"), [(-20 * MIB, PAGE_BYTES), (0, PAGE_BYTES), (3 * MIB, 3 * MIB + PAGE_BYTES)]
)
def test_a_held_container_needs_its_excess_and_one_page(world: World, excess: int, needed: int) -> None:
    world.groups[1].charged = 100 * MIB + excess

    assert world.executor.needed_bytes(world.b) == needed


def test_a_held_container_goes_on_when_its_limit_is_raised_and_not_before(world: World) -> None:
    world.b.trap.is_held = True
    assert world.executor.look(world.b)
    world.executor.carry_out(Decision(memory=ram([11], [90 * MIB])), answer=True)
    assert world.b.state is State.HELD
    world.executor.carry_out(Decision(memory=ram([11], [150 * MIB])), answer=True)

    assert world.b.state is State.UP
    assert world.events == [("b", "grant")]


def test_only_what_is_up_is_shrunk_as_far_as_the_kernel_goes(world: World) -> None:
    world.a.life.on(Event.HOLD)
    world.groups[1].least = 40 * MIB
    world.groups[2].charged = 90 * MIB

    assert world.executor.shrink(20 * MIB, {0}) == [world.b]
    assert world.b.limit_bytes == 40 * MIB
    assert world.events == [("b", "reclaim")]
    assert world.executor.shrink(20 * MIB, {1}) == []
    assert world.executor.try_again() == [], "a shrink is not tried again"


def test_a_limit_that_the_kernel_could_not_lower_yet_is_tried_again(world: World) -> None:
    world.groups[0].least = 70 * MIB
    world.executor.carry_out(Decision(memory=ram([10], [60 * MIB])))
    assert world.a.limit_bytes == 70 * MIB

    world.groups[0].least = 0
    assert world.executor.try_again() == [world.a]
    assert world.executor.try_again() == []
    assert world.a.limit_bytes == 60 * MIB
    assert world.log == [("a", 60 * MIB)] * 2


# --- lives -------------------------------------------------------------------------------------------


def test_a_restart_asks_first_and_kills_after_the_grace(world: World) -> None:
    before = time.monotonic_ns()
    world.executor.carry_out(Decision(restart=np.array([11])))
    assert world.log == [("b", "SIGTERM")]
    assert world.b.state is State.ENDING

    world.executor.serve(before + round((TERMINATION_GRACE_S + 1) * NS))
    assert world.log[1:] == [("b", "SIGKILL")]
    world.end(world.b, -9)
    world.executor.serve(time.monotonic_ns())
    assert world.log[2:] == [("b", "start")]
    assert world.events == [("b", "restart")], "no kill is noted"
    assert world.b.kill_ns == NEVER_NS, "the new command has nothing of the old one's deadline"


def test_who_is_held_is_killed_for_a_restart(world: World) -> None:
    world.b.life.on(Event.HOLD)
    world.executor.carry_out(Decision(restart=np.array([11])))

    assert world.log == [("b", "SIGKILL")]


def test_who_is_down_already_is_neither_killed_nor_restarted(world: World) -> None:
    world.executor.carry_out(Decision(kill=np.array([12])))
    world.executor.carry_out(Decision(restart=np.array([12]), kill=np.array([12])))
    assert world.log == [("c", "SIGKILL")]
    assert world.events == [("c", "kill")]
    world.end(world.c, -9)
    world.executor.carry_out(Decision(restart=np.array([12])))

    assert world.c.kill_ns == NEVER_NS
    assert world.log == [("c", "SIGKILL")]


@pytest.mark.parametrize(("how", "wait_s"), [("restart", 0.0), ("kill", 1.0)])
def test_a_container_that_is_killed_backs_off_and_one_that_is_restarted_does_not(
    world: World, how: str, wait_s: float
) -> None:
    for _ in range(2):
        world.executor.take_down(world.a, how)
        ended_ns = time.monotonic_ns()
        world.end(world.a, -9)
        waited_s = (world.a.starts_ns - ended_ns) / NS
        world.executor.serve(world.a.starts_ns)

    assert waited_s == pytest.approx(wait_s, abs=0.1)


def test_what_cannot_be_started_again_now_is_tried_again_later(world: World) -> None:
    world.end(world.a, 1)
    world.a.command.broken = True
    world.executor.serve(time.monotonic_ns())
    assert world.a.state is State.DOWN
    world.a.command.broken = False
    world.executor.serve(world.a.starts_ns)

    assert world.a.state is State.UP
    assert len(world.executor.restarts_s) == 1


def test_a_command_that_is_done_leaves_and_a_killed_one_comes_back(world: World) -> None:
    world.end(world.a, 0)
    world.end(world.b, -9)
    world.end(world.c, 3)

    assert world.events == [("a", "gone"), ("b", "kill")]
    assert [one.state for one in (world.a, world.b, world.c)] == [State.ABSENT, State.DOWN, State.DOWN]


def test_an_attached_container_is_left_to_the_kernel_and_can_be_held_again() -> None:
    world = World(attached=True)
    world.b.trap.is_held = True
    world.executor.look(world.b)
    world.executor.carry_out(Decision(restart=np.array([10, 11]), kill=np.array([11])))

    assert world.b.trap.surrendered == 1
    assert world.log == []
    assert world.events == [("b", "kill")]
    assert world.b.state is State.UP
    assert world.executor.look(world.b), "who still needs memory is held anew"


def test_a_kill_of_an_attached_container_whose_cgroup_goes_stops_nobody() -> None:
    def vanish() -> None:
        raise GroupGoneError("a: gone")

    def refuse() -> None:
        raise BackendError("b: refused")

    world = World(attached=True)
    world.a.trap.surrender, world.b.trap.surrender = vanish, refuse
    world.executor.carry_out(Decision(kill=np.array([10, 11, 12])))

    assert world.events == [("a", "kill"), ("a", "gone"), ("b", "kill"), ("c", "kill")]
    assert [str(error) for error in world.errors] == ["b: refused"]
    assert world.c.trap.surrendered == 1


def test_a_command_that_cannot_be_watched_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> int:
        raise OSError(24, "Too many open files")

    log: list = []
    container = HostedContainer("a", None, FakeGroup("a", log))
    container.spec, container.command = ContainerSpec("a", ("true",)), FakeCommand(log, "a")
    monkeypatch.setattr(os, "pidfd_open", full)
    with pytest.raises(BackendError, match=r"container a: its command cannot be watched .*ulimit -n"):
        container.start((), None, 0, lasting=False)

    assert log == [("a", "start"), ("a", "SIGKILL")]
    assert not container.command.running
    assert container.state is State.ABSENT


def test_an_adopted_command_is_seen_to_end_by_its_empty_group(world: World, tmp_path: Path) -> None:
    group = FakeGroup("d", world.log)
    group.quota_cores, group.limit_bytes, group.pids = 0.25, MIB, lambda: {7}
    adopted = HostedContainer("d", None, group, adopted=True)
    adopted.spec, adopted.command = ContainerSpec("d", ("true",)), FakeCommand(world.log, "d")
    assert adopted.limited
    world.executor.see_end(adopted)
    assert adopted.state is State.UP
    group.pids = set
    world.executor.see_end(adopted)

    assert adopted.state is State.DOWN


def test_a_request_is_written_once_and_no_limit_with_it() -> None:
    world = World()
    asked = Decision(requests=CpuRequests(np.array([10, 11, 99]), np.array([0.25, 0.75, 1.0])))
    world.executor.carry_out(asked)
    world.executor.carry_out(asked)
    assert world.log == [("a", "weight of 0.25"), ("b", "weight of 0.75")]
    assert (world.a.request_cores, world.executor.limit_changes) == (0.25, 0)
