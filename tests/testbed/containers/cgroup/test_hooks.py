"""Hook telemetry: what becomes of the kernel's records, and of the silence between them."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kernel.loader import Overhead, Reported
from kernel.records import PERIOD, PRESSURE
from testbed.containers.cgroup import hooks
from testbed.containers.cgroup.drivers import Group, GroupV2
from testbed.containers.cgroup.hooks import HookTelemetry
from testbed.containers.ports import Records, TelemetrySource
from tests.patience import PATIENCE_S
from tests.testbed.containers.fake_cgroups import FakeTree

MS = 1_000_000
MIB = 1 << 20
PERIOD_NS = 100 * MS


class FakeHooks:
    """The loader's side, told by the test what the kernel reports."""

    descriptor = 7

    def __init__(self) -> None:
        self.watched: set[int] = set()
        self.periods: list[tuple[int, ...]] = []

    def watch(self, ids: list[int]) -> None:
        self.watched |= {*ids}

    def unwatch(self, ids: list[int]) -> None:
        self.watched -= {*ids}

    def read(self) -> Reported:
        periods, self.periods = self.periods, []
        return Reported(np.array(periods, PERIOD), np.array([], PRESSURE))

    def lost(self) -> int:
        return 0

    def overhead(self) -> dict[str, Overhead]:
        return {}

    def close(self) -> None:
        self.watched.clear()


class Scene:
    """Two containers, 10 (quota 0.5 core) and 20 (no quota), added at time 0."""

    def __init__(self, tree: FakeTree, folder: Path) -> None:
        tree.group_v2(folder / "a", memory=5 * MIB)
        (folder / "a/cpu.max").write_text("50000 100000\n")
        tree.group_v2(folder / "b", memory=3 * MIB)
        self.groups = [GroupV2(folder / "a"), GroupV2(folder / "b")]
        self.a, self.b = ((folder / name).stat().st_ino for name in "ab")
        self.source = HookTelemetry(0.1, lambda: 0)
        fake = self.source._hooks
        assert isinstance(fake, FakeHooks)
        self.kernel = fake
        self.source.add(np.array([10, 20]), self.groups)

    def period(
        self, end_ns: int, unused_ms: int, used_ms: int, *, throttled: int = 0, elapsed: int = 1
    ) -> None:
        """Container 10's."""
        self.kernel.periods.append(
            (self.a, end_ns, 50 * MS, unused_ms * MS, used_ms * MS, 1, 0, throttled, elapsed)
        )

    def of(self, records: Records, number: int) -> dict[str, float]:
        row = records.ids.tolist().index(number)
        return {name: getattr(records, name)[row].item() for name in Records.__dataclass_fields__}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(hooks, "Hooks", FakeHooks)
    scene = Scene(FakeTree(tmp_path), tmp_path)
    yield scene
    scene.source.close()
    for group in scene.groups:
        group.close()


def test_it_is_what_the_control_loop_asks_for(scene: Scene) -> None:
    source: TelemetrySource = scene.source
    assert source.descriptor == 7
    assert scene.kernel.watched == {scene.a, scene.b}


def test_a_period_is_reported_as_the_kernel_had_it(scene: Scene) -> None:
    scene.period(60 * MS, unused_ms=30, used_ms=20)
    row = scene.of(scene.source.collect(61 * MS), 10)
    assert row["end_ns"] == 60 * MS
    assert (row["quota_cores"], row["unused_cores"], row["usage_cores"]) == (0.5, 0.3, 0.2)
    assert (row["throttled"], row["idle"], row["memory_bytes"]) == (False, False, 5 * MIB)


def test_a_throttled_period_has_nothing_left(scene: Scene) -> None:
    scene.period(60 * MS, unused_ms=1, used_ms=49, throttled=1)
    row = scene.of(scene.source.collect(61 * MS), 10)
    assert (row["throttled"], row["unused_cores"], row["usage_cores"]) == (True, 0.0, 0.49)


def test_periods_read_late_are_one_record_and_counted(scene: Scene) -> None:
    scene.period(60 * MS, unused_ms=0, used_ms=50, throttled=1)
    scene.period(160 * MS, unused_ms=40, used_ms=10)
    row = scene.of(scene.source.collect(161 * MS), 10)
    assert (row["end_ns"], row["throttled"]) == (160 * MS, True)
    assert row["usage_cores"] == pytest.approx(0.3)
    assert scene.source.lost == 1


def test_a_timer_that_came_late_ended_several_periods(scene: Scene) -> None:
    scene.period(360 * MS, unused_ms=10, used_ms=40, elapsed=4)
    row = scene.of(scene.source.collect(361 * MS), 10)
    assert (row["usage_cores"], row["unused_cores"]) == pytest.approx((0.1, 0.4))
    assert scene.source.lost == 3


def test_silence_is_idleness_at_the_groups_own_phase(scene: Scene) -> None:
    scene.period(60 * MS, unused_ms=50, used_ms=0)
    scene.source.collect(61 * MS)
    assert scene.source.due_ns() == 150 * MS  # container 20, added at 0
    assert 10 not in scene.source.collect(150 * MS).ids
    row = scene.of(scene.source.collect(210 * MS), 10)
    assert row["end_ns"] == 160 * MS
    assert (row["unused_cores"], row["usage_cores"], row["idle"]) == (0.5, 0.0, True)


def test_without_a_quota_the_use_is_read_from_the_counters(scene: Scene) -> None:
    stat = scene.groups[1].directories[0] / "cpu.stat"
    stat.write_text(stat.read_text().replace("usage_usec 0", "usage_usec 75000"))
    row = scene.of(scene.source.collect(150 * MS), 20)
    assert (row["quota_cores"], row["unused_cores"]) == (math.inf, math.inf)
    assert row["usage_cores"] == pytest.approx(0.5)
    assert not row["idle"]


def test_removed_containers_are_watched_no_more(scene: Scene) -> None:
    scene.source.remove(np.array([10, 99]))
    assert scene.kernel.watched == {scene.b}
    scene.period(60 * MS, unused_ms=0, used_ms=50)
    assert 10 not in scene.source.collect(200 * MS).ids


def test_a_group_that_goes_while_it_is_added_is_reported_and_leaves_no_file_open(
    scene: Scene, tmp_path: Path
) -> None:
    (tmp_path / "more").mkdir()
    FakeTree(tmp_path / "more").group_v2(tmp_path / "c")
    group = GroupV2(tmp_path / "c")
    (tmp_path / "c/memory.current").unlink()
    (tmp_path / "c/memory.current").mkdir()  # can be opened and not read
    before = len(list(Path("/proc/self/fd").iterdir()))
    scene.source.add(np.array([30]), [group])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    scene.source.collect(MS)
    assert scene.source.gone.tolist() == [30]
    group.close()


def test_whether_hooks_can_be_had_is_said_in_one_line() -> None:
    there, reason = hooks.available()
    assert there or "poll cgroup files" in reason or "install" in reason
    assert "\n" not in reason


# --- on a kernel that allows tracing -----------------------------------------------------------------


@pytest.mark.root
def test_the_kernels_records_arrive(tracing: None, group: Group) -> None:
    group.set_cpu_quota(0.2)
    source = HookTelemetry(0.1)
    source.add(np.array([1]), [group])
    busy = subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"], preexec_fn=group.enter)
    records: list[Records] = []
    deadline = time.monotonic() + PATIENCE_S
    while (
        sum(len(record.ids) for record in records if not record.idle.any()) < 20
        and time.monotonic() < deadline
    ):
        time.sleep(0.02)
        records.append(source.collect(time.monotonic_ns()))
    busy.kill()
    busy.wait()
    source.collect(time.monotonic_ns())
    active = [record for record in records if len(record.ids) and not record.idle.any()]
    assert np.median([each.usage_cores[0] for each in active]) == pytest.approx(0.2, abs=0.02)
    assert sum(each.throttled[0] for each in active) >= len(active) - 3
    assert sum(each.throttled_s[0] for each in active) > 0
    while not (idle := source.collect(time.monotonic_ns())).idle.any() and time.monotonic() < deadline + 60:
        time.sleep(0.02)
    assert idle.usage_cores[0] == 0.0
    source.close()
