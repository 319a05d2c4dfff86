"""Polling over files that a test writes, at a clock that it moves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from testbed.containers.cgroup.polling import PROBE_NS, SLOT_MOST_NS, Polling

PERIOD_NS = 100_000_000
MS = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.ns = 50 * PERIOD_NS

    def __call__(self) -> int:
        return self.ns


class FakeGroup:
    """A v2 cgroup's files, and a kernel that ends its periods at `phase_ns`."""

    def __init__(self, folder: Path, phase_ns: int, quota_cores: float = 0.5) -> None:
        folder.mkdir()
        self.directories = (folder,)
        self.quota_cores = quota_cores
        self.phase_ns = phase_ns
        self.nr_periods = self.nr_throttled = self.throttled_us = self.usage_us = 0
        self.memory, self.inactive = 8 << 20, 1 << 20
        self.active = True
        self.write()

    def write(self) -> None:
        folder = self.directories[0]
        (folder / "cpu.stat").write_text(
            f"usage_usec {self.usage_us}\nuser_usec 1\nsystem_usec 1\nnr_periods {self.nr_periods}\n"
            f"nr_throttled {self.nr_throttled}\nthrottled_usec {self.throttled_us}\n"
        )
        (folder / "memory.current").write_text(f"{self.memory}\n")
        (folder / "memory.stat").write_text(f"anon 4096\ninactive_file {self.inactive}\n")

    def pass_to(self, before_ns: int, now_ns: int) -> None:
        """Ends the periods between two moments."""
        ended = (now_ns - self.phase_ns) // PERIOD_NS - (before_ns - self.phase_ns) // PERIOD_NS
        if ended and self.active:
            self.nr_periods += ended
            self.write()


class World:
    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.polling = Polling(0.1, self.clock)
        self.groups: list[FakeGroup] = []
        self._folder = folder

    def add(self, phase_ms: float, quota_cores: float = 0.5) -> FakeGroup:
        number = len(self.groups)
        group = FakeGroup(self._folder / str(number), round(phase_ms * MS), quota_cores)
        self.groups.append(group)
        self.polling.add(np.array([number]), [group])
        return group

    def run(self, periods: float) -> list:
        """Wakes whenever polling wants to be woken; the records of each wake-up that had some."""
        collected = []
        end_ns = self.clock.ns + round(periods * PERIOD_NS)
        while (due_ns := self.polling.due_ns()) <= end_ns:
            self.sleep_until(max(due_ns, self.clock.ns))
            records = self.polling.collect(self.clock.ns)
            if records.ids.size:
                collected.append(records)
        self.sleep_until(end_ns)
        return collected

    def sleep_until(self, now_ns: int) -> None:
        before, self.clock.ns = self.clock.ns, now_ns
        for group in self.groups:
            group.pass_to(before, now_ns)


@pytest.fixture
def world(tmp_path: Path):
    made = World(tmp_path)
    yield made
    made.polling.close()


def test_the_phase_is_learnt_and_the_record_dated_with_it(world: World) -> None:
    world.add(37.3)
    world.run(1.5)

    assert world.polling.settled
    for records in world.run(5):
        late_ns = (records.end_ns[0] - 37_300_000) % PERIOD_NS
        assert late_ns <= PROBE_NS


def test_one_record_per_period_and_container(world: World) -> None:
    for phase in (3, 50, 52, 97):
        world.add(phase)
    world.run(2)
    ids = np.concatenate([records.ids for records in world.run(10)])

    assert np.bincount(ids).tolist() == [10] * 4
    assert world.polling.lost == 0


def test_groups_with_ends_close_together_share_a_wake_up(world: World) -> None:
    for number in range(100):
        world.add(number)
    world.run(2)

    wakes = world.run(1)
    assert len(wakes) <= PERIOD_NS // SLOT_MOST_NS
    assert sum(len(records.ids) for records in wakes) == 100


def test_usage_throttling_and_what_is_left(world: World) -> None:
    group = world.add(10, quota_cores=0.5)
    world.run(2)
    group.usage_us += 20_000
    (first,) = world.run(1)
    group.usage_us += 30_000
    group.nr_throttled += 1
    group.throttled_us += 4_000
    (second,) = world.run(1)

    assert first.usage_cores == pytest.approx([0.2])
    assert first.unused_cores == pytest.approx([0.3])
    assert not first.throttled[0]
    assert second.throttled[0]
    assert second.unused_cores[0] == 0.0, "throttled wins"
    assert second.throttled_s == pytest.approx([0.004])
    assert second.memory_bytes.tolist() == [7 << 20]


def test_unused_is_never_negative(world: World) -> None:
    group = world.add(10, quota_cores=0.1)
    world.run(2)
    group.usage_us += 15_000
    (records,) = world.run(1)

    assert records.usage_cores == pytest.approx([0.15])
    assert records.unused_cores.tolist() == [0.0]


def test_idle_containers_get_records_that_are_made_up(world: World) -> None:
    group = world.add(10)
    world.run(2)
    group.active = False
    idle = world.run(3)

    assert [records.idle.tolist() for records in idle] == [[True]] * 3
    assert all(records.unused_cores[0] == records.quota_cores[0] for records in idle)


def test_a_group_that_was_idle_at_first_is_learnt_once_it_is_active(world: World) -> None:
    group = world.add(60)
    group.active = False
    idle = world.run(4)
    group.active = True
    world.run(3)

    assert all(records.idle.all() for records in idle)
    (records,) = world.run(1)
    assert (records.end_ns[0] - 60 * MS) % PERIOD_NS <= PROBE_NS


def test_without_a_quota_there_is_usage_all_the_same(world: World) -> None:
    group = world.add(0, quota_cores=np.inf)
    group.active = False
    world.run(2)
    group.usage_us += 70_000
    group.write()
    (records,) = world.run(1)

    assert records.usage_cores == pytest.approx([0.7])
    assert records.unused_cores[0] == np.inf
    assert not records.idle[0]


def test_a_record_that_comes_late_is_the_mean_of_its_periods(world: World) -> None:
    group = world.add(10)
    world.run(2)
    group.usage_us += 30_000
    world.sleep_until(world.polling.due_ns() + 2 * PERIOD_NS)
    records = world.polling.collect(world.clock.ns)

    assert records.usage_cores == pytest.approx([0.1])
    assert world.polling.lost == 2


def test_a_group_that_was_removed_is_reported_and_the_others_go_on(world: World) -> None:
    for phase in (10, 11):
        world.add(phase)
    world.run(2)
    gone = world.polling.watched[0]
    gone.meter.close()  # what the files of a removed cgroup do to a reader: EBADF here, ENODEV there
    gone.meter.stat = -1
    ids, seen = [], []
    for _ in range(3):
        world.sleep_until(world.polling.due_ns())
        records = world.polling.collect(world.clock.ns)
        ids += records.ids.tolist()
        seen += world.polling.gone.tolist()

    assert set(ids) == {1}
    assert seen == [0]


def test_a_group_that_is_gone_before_it_is_added_is_reported(world: World, tmp_path: Path) -> None:
    group = FakeGroup(tmp_path / "left", 0)
    for each in group.directories[0].iterdir():
        each.unlink()
    world.polling.add(np.array([9]), [group])
    world.polling.collect(world.clock.ns)

    assert world.polling.gone.tolist() == [9]


def test_removed_containers_report_no_more(world: World) -> None:
    for phase in (10, 40):
        world.add(phase)
    world.run(2)
    world.polling.remove(np.array([0, 77]))

    assert {number for records in world.run(3) for number in records.ids.tolist()} == {1}


def test_the_ids_of_a_slot_are_one_array_that_nobody_writes_to(world: World) -> None:
    for phase in (10, 10):
        world.add(phase)
    world.run(2)
    first, second = world.run(2)

    assert first.ids is second.ids
    assert not first.ids.flags.writeable
