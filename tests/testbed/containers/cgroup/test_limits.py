"""Limits on the open files of a group: what is in force, what the kernel does, what is left open."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.containers.cgroup import files
from testbed.containers.cgroup.drivers import (
    MIN_QUOTA_US,
    NO_LIMIT_BYTES,
    QUOTA_PERIOD_US,
    V1,
    V2,
    Group,
    GroupV1,
    GroupV2,
    detect,
)
from testbed.containers.ownership import new_run
from testbed.containers.ports import GroupGoneError, LimitedGroup
from tests.testbed.containers.eater import MIB, Eater
from tests.testbed.containers.fake_cgroups import FakeTree
from tests.testbed.containers.real_groups import kills
from tests.testbed.containers.waiting import until
from twinbed import BackendError

SPIN = "while True: pass"


@contextmanager
def spinning(group: Group) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-S", "-c", SPIN], preexec_fn=group.enter)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# --- on files laid out as the kernel lays them out ---------------------------------------------------


@pytest.fixture
def v2(tmp_path: Path) -> Iterator[GroupV2]:
    tree = FakeTree(tmp_path)
    tree.group_v2(tmp_path / "g", memory=5 * MIB)
    group = GroupV2(tmp_path / "g")
    yield group
    group.close()


def line(group: Group, name: str) -> str:
    """The value as the kernel would read it: up to the end of the line."""
    return (group.directories[0] / name).read_text().splitlines()[0]


def test_a_group_is_what_the_control_loop_asks_for(v2: GroupV2) -> None:
    group: LimitedGroup = v2
    assert group.quota_cores == math.inf
    assert group.limit_bytes == NO_LIMIT_BYTES
    assert group.charged_bytes() == 5 * MIB


def test_limits_that_were_found_are_in_force(tmp_path: Path) -> None:
    FakeTree(tmp_path).group_v2(tmp_path / "g")
    (tmp_path / "g/cpu.max").write_text("25000 50000\n")
    (tmp_path / "g/memory.max").write_text("8388608\n")
    group = GroupV2(tmp_path / "g")
    assert group.quota_cores == 0.5
    assert group.limit_bytes == 8 * MIB
    group.close()


def test_a_quota_below_the_kernels_least_is_the_least(v2: GroupV2) -> None:
    v2.set_cpu_quota(0.001)
    assert line(v2, "cpu.max") == "1000 100000"
    assert v2.quota_cores == MIN_QUOTA_US / QUOTA_PERIOD_US


def test_no_quota_is_written_as_none(v2: GroupV2) -> None:
    v2.set_cpu_quota(1.0)
    v2.set_cpu_quota(math.inf)
    assert line(v2, "cpu.max") == "max 100000"
    assert v2.quota_cores == math.inf


def test_limits_that_another_system_changed_are_set_again(v2: GroupV2) -> None:
    v2.set_cpu_quota(0.25)
    v2.set_memory_limit(8 * MIB)
    assert not v2.keep_limits()
    (v2.directories[0] / "cpu.max").write_text("70000 100000\n")
    assert v2.keep_limits()
    assert line(v2, "cpu.max") == "25000 100000"
    v2.trap()
    assert not v2.keep_limits()
    (v2.directories[0] / "memory.high").write_text("max\n")
    assert v2.keep_limits()
    assert (line(v2, "memory.high"), v2.limit_bytes) == (str(8 * MIB), 8 * MIB)
    assert not v2.keep_limits()


def test_a_cpu_request_is_written_as_kubernetes_weight(v2: GroupV2) -> None:
    v2.set_cpu_request(0.5)
    assert line(v2, "cpu.weight") == "20"


def test_v2_is_never_limited_below_what_it_holds(v2: GroupV2) -> None:
    # The kernel would kill: 5 MiB are charged, and these files reclaim nothing.
    assert v2.set_memory_limit(3 * MIB) == 5 * MIB
    assert line(v2, "memory.max") == str(5 * MIB)
    assert (v2.directories[0] / "memory.reclaim").read_text() == f"{2 * MIB}\n"


def test_v2_under_a_trap_has_room_above_its_limit_and_is_given_back_without(v2: GroupV2) -> None:
    v2.set_memory_limit(8 * MIB)
    trap = v2.trap()
    assert (line(v2, "memory.high"), line(v2, "memory.max")) == (str(8 * MIB), str(24 * MIB))
    assert v2.set_memory_limit(9 * MIB) == 9 * MIB
    assert (line(v2, "memory.high"), line(v2, "memory.max")) == (str(9 * MIB), str(25 * MIB))
    assert v2.trap() is trap
    trap.close()
    trap.close()
    assert (line(v2, "memory.high"), line(v2, "memory.max")) == ("max", str(9 * MIB))
    assert v2.trap() is not trap


def test_v2_kills_at_the_limit_from_a_surrender_until_it_has(v2: GroupV2) -> None:
    v2.set_memory_limit(8 * MIB)
    trap = v2.trap()
    trap.surrender()
    assert line(v2, "memory.max") == str(8 * MIB)
    assert not trap.held()
    assert line(v2, "memory.max") == str(8 * MIB)
    (v2.directories[0] / "memory.events").write_text("high 3\noom_kill 1\n")
    trap.held()
    assert (line(v2, "memory.high"), line(v2, "memory.max")) == (str(8 * MIB), str(24 * MIB))
    trap.surrender()
    v2.set_memory_limit(9 * MIB)
    assert line(v2, "memory.max") == str(25 * MIB)


def test_v1_moves_the_limit_that_covers_swap_in_the_order_that_the_kernel_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {name: tmp_path / name / "g" for name in ("cpu", "cpuacct", "memory")}
    FakeTree(tmp_path).group_v1(folders, limit=64 * MIB)
    group = GroupV1(folders)
    written: list[str] = []
    real = files.ControlFile.try_write

    def note(file: files.ControlFile, text: str) -> bool:
        written.append(file.path.name)
        return real(file, text)

    monkeypatch.setattr(files.ControlFile, "try_write", note)
    group.set_memory_limit(32 * MIB)
    group.set_memory_limit(48 * MIB)
    group.close()
    memory, with_swap = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
    assert written == [memory, with_swap, with_swap, memory]


def test_a_closed_group_writes_to_no_file(v2: GroupV2) -> None:
    v2.close()
    v2.close()
    with pytest.raises(BackendError, match=r"cpu\.max: writing .* was refused"):
        v2.set_cpu_quota(1.0)


def test_more_files_than_a_process_may_open_are_opened_all_the_same(tmp_path: Path) -> None:
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from testbed.containers.cgroup.drivers import GroupV2\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
        "groups = [GroupV2(Path(sys.argv[1])) for _ in range(10)]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))\n"
        "try:\n    [GroupV2(Path(sys.argv[1])) for _ in range(10)]\n"
        "except Exception as error:\n    print(error)"
    )
    FakeTree(tmp_path).group_v2(tmp_path / "g")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "g")], stdout=subprocess.PIPE, text=True, check=True
    )
    assert "was refused (Too many open files); raise the limit of open files (ulimit -n)" in done.stdout


def test_room_for_others_files_is_made_before_the_last_one_is_open(tmp_path: Path) -> None:
    """A trap's eventfd and a command's pidfd are opened by others, who do not raise the limit."""
    program = (
        "import os, resource, sys\n"
        "from pathlib import Path\n"
        "from testbed.containers.cgroup.drivers import GroupV2\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))\n"
        "few = GroupV2(Path(sys.argv[1]))\n"
        "kept = resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 128\n"
        "others = [os.open('/dev/null', os.O_RDONLY) for _ in range(60)]\n"
        "many = GroupV2(Path(sys.argv[1]))\n"
        "print(kept, resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard)"
    )
    FakeTree(tmp_path).group_v2(tmp_path / "g")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "g")], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout == "True True\n"


# --- the real kernel ---------------------------------------------------------------------------------


@pytest.mark.root
def test_limits_are_those_of_the_kernel(group: Group) -> None:
    assert (group.quota_cores, group.limit_bytes) == (math.inf, NO_LIMIT_BYTES)
    group.set_cpu_quota(0.35)
    assert group.set_memory_limit(100 * MIB + 1) == 100 * MIB
    texts = {
        path.name: path.read_text().split()[0]
        for directory in group.directories
        for path in directory.iterdir()
        if path.name in ("cpu.cfs_quota_us", "cpu.max", "memory.limit_in_bytes", "memory.max")
    }
    assert sorted(texts.values()) == ["104857600", "35000"]
    group.set_cpu_quota(math.inf)
    assert group.set_memory_limit(NO_LIMIT_BYTES) == NO_LIMIT_BYTES
    assert group.quota_cores == math.inf


@pytest.mark.root
def test_a_limit_below_what_is_held_gives_the_least_that_there_is(group: Group) -> None:
    group.set_memory_limit(256 * MIB)
    with Eater(group) as eater:
        eater.take(64 * MIB)
        eater.finished_ns(20.0)
        in_force = group.set_memory_limit(8 * MIB)
        assert 64 * MIB <= in_force < 128 * MIB
        assert group.limit_bytes == in_force
        assert eater.process.poll() is None
    assert kills(group) == 0


@pytest.mark.root
def test_page_cache_is_squeezed_out_by_a_smaller_limit(group: Group, tmp_path: Path) -> None:
    file = tmp_path / "cached"
    program = f"open({str(file)!r}, 'wb').write(bytes({32 * MIB}))\nimport os; os.sync()"
    subprocess.run([sys.executable, "-S", "-c", program], preexec_fn=group.enter, check=True)
    counted = next(each / "memory.stat" for each in group.directories if (each / "memory.stat").exists())
    if files.field(counted.read_bytes(), b"shmem") > 16 * MIB:
        pytest.skip("files of this test are in memory here, and there is no swap")
    assert group.charged_bytes() > 16 * MIB
    assert group.set_memory_limit(8 * MIB) < 16 * MIB
    assert group.charged_bytes() < 16 * MIB


@pytest.mark.slow
@pytest.mark.root
def test_a_quota_write_refills_a_group_that_is_throttled(group: Group) -> None:
    """With 2 ms of 100 the group is throttled nearly always, so each write of 2 ms is as much more to run."""
    group.set_cpu_quota(0.02)
    with spinning(group):
        until(lambda: group.read().nr_throttled > 2)
        before, periods = group.read().cpu_ns, group.read().nr_periods
        for _ in range(100):
            group.set_cpu_quota(0.02)
            time.sleep(0.004)
        used = group.read()
    granted_ns = (used.nr_periods - periods + 1) * 2_000_000
    assert used.cpu_ns - before > 2 * granted_ns


@pytest.mark.root
def test_a_group_that_was_removed_under_us_is_gone_and_nothing_else(driver: V1 | V2) -> None:
    run = new_run()
    group = driver.create(run, "probe")
    trap = group.trap()
    for directory in group.directories:
        directory.rmdir()
    for call in (
        group.read,
        group.charged_bytes,
        lambda: group.set_cpu_quota(1.0),
        lambda: group.set_memory_limit(MIB),
    ):
        with pytest.raises(GroupGoneError, match="probe: the cgroup is gone"):
            call()
    with pytest.raises(GroupGoneError):
        trap.held()
    trap.close()
    group.remove()
    driver.finish(run)


@pytest.mark.root
def test_an_invalid_value_says_which_file(group: Group) -> None:
    with pytest.raises(BackendError, match=r"cpu\.(cfs_quota_us|max): writing .* refused"):
        group.set_cpu_quota(1e12)


@pytest.mark.root
def test_groups_leave_no_descriptor_open(driver: V1 | V2) -> None:
    before, run = open_files(), new_run()
    for number in range(3):
        group = driver.create(run, f"g{number}")
        group.set_memory_limit(8 * MIB)
        group.trap()
        group.trap().close()
        group.trap()
        group.remove()
    driver.finish(run)
    assert open_files() == before


@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_containers_weigh_against_their_neighbours_as_if_they_lay_beside_them():
    driver = detect()
    run = new_run()
    groups = [driver.create(run, name) for name in ("a", "b", "c")]
    try:
        directory = groups[0].directories[0].parent
        file, each = ("cpu.shares", 1024) if driver.version == 1 else ("cpu.weight", 100)
        weights = [int((folder / file).read_text()) for folder in (directory, directory.parent)]
    finally:
        for group in groups:
            group.remove()
        driver.finish(run)
    assert weights[0] == 3 * each
    assert weights[1] >= 3 * each
