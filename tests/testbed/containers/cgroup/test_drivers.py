"""The cgroup drivers: v1 on this kernel, v2 against files laid out as the kernel lays them out."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.containers import ownership
from testbed.containers.cgroup import tree as cgroup_tree
from testbed.containers.cgroup.drivers import V1, V2, Group, GroupV2, detect
from testbed.containers.ownership import end_run, lasting_run, new_run
from tests.testbed.containers.dead_runs import dead_run
from tests.testbed.containers.fake_cgroups import FakeTree
from tests.testbed.containers.real_groups import folders
from twinbed import BackendError

"""The start time of no process: tick 1 after boot is before the first of them."""


@pytest.fixture
def tree(tmp_path: Path) -> FakeTree:
    return FakeTree(tmp_path)


def inside(group: Group, program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program], preexec_fn=group.enter, stdout=subprocess.PIPE)


# --- detection ---------------------------------------------------------------------------------------


def test_v2_is_taken_where_it_has_the_controllers(tree: FakeTree) -> None:
    point = tree.unified("cpuset cpu io memory pids")
    assert detect(tree.proc) == V2(point)


def test_v1_is_taken_where_v2_has_no_controllers(tree: FakeTree) -> None:
    unified = tree.unified("hugetlb", "unified")
    pids = tree.hierarchy("pids")
    points = [tree.hierarchy(name) for name in ("cpu,cpuacct", "memory")]
    found = detect(tree.proc)
    assert found == V1(
        {"cpu": points[0], "cpuacct": points[0], "memory": points[1]}, (*points, pids, unified)
    )


def test_v1_groups_are_made_below_the_callers_own(tree: FakeTree) -> None:
    cpu, memory = tree.hierarchy("cpu,cpuacct"), tree.hierarchy("memory", own="/service/a")
    (memory / "service/a").mkdir(parents=True)
    found = detect(tree.proc)
    assert isinstance(found, V1)
    assert found.base == {"cpu": cpu, "cpuacct": cpu, "memory": memory / "service/a"}


def test_a_mount_that_does_not_show_the_callers_group_is_used_itself(tree: FakeTree) -> None:
    cpu, memory = tree.hierarchy("cpu,cpuacct"), tree.hierarchy("memory", own="/a", root="/docker/b")
    found = detect(tree.proc)
    assert isinstance(found, V1)
    assert found.base == {"cpu": cpu, "cpuacct": cpu, "memory": memory}


def test_of_several_mounts_the_first_is_taken(tree: FakeTree) -> None:
    first = tree.hierarchy("cpu,cpuacct,memory")
    tree.hierarchy("cpu,cpuacct,memory", name="seen-from-another-root")
    found = detect(tree.proc)
    assert isinstance(found, V1)
    assert set(found.base.values()) == {first}


def test_a_system_without_cgroups_is_told_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="not Linux; record on a Linux host or VM"):
        detect(tmp_path)


def test_missing_controllers_are_named(tree: FakeTree) -> None:
    tree.hierarchy("cpu")
    with pytest.raises(BackendError, match="controller cpuacct, memory is mounted"):
        detect(tree.proc)


def test_a_folder_without_permission_is_named_with_the_cure(
    tree: FakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = tree.unified("cpu memory")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(BackendError, match=f"{point}: no permission.*run it as root"):
        detect(tree.proc)


# --- v2 on files -------------------------------------------------------------------------------------


def test_v2_reads_usage_throttling_and_the_working_set(tree: FakeTree, tmp_path: Path) -> None:
    tree.group_v2(tmp_path / "g", usage_us=1_500, memory=10_000, inactive=4_000)
    group = GroupV2(tmp_path / "g")
    usage = group.read()
    group.close()
    # 1,500 µs of CPU; 250 µs throttled in 3 of 7 periods; 10,000 held of which 4,000 inactive file pages.
    assert usage == (1_500_000, 250_000, 7, 3, 6_000)


def test_v2_sees_what_the_kernel_writes_later_through_the_same_descriptors(
    tree: FakeTree, tmp_path: Path
) -> None:
    tree.group_v2(tmp_path / "g")
    group = GroupV2(tmp_path / "g")
    with (tmp_path / "g/cpu.stat").open("r+") as file:
        file.write("usage_usec 42\n")
    assert group.read().cpu_ns == 42_000
    group.close()


def test_v2_without_bandwidth_counters_reads_zero_throttling(tree: FakeTree, tmp_path: Path) -> None:
    tree.group_v2(tmp_path / "g")
    (tmp_path / "g/cpu.stat").write_text("usage_usec 5\n")
    group = GroupV2(tmp_path / "g")
    assert group.read() == (5_000, 0, 0, 0, 0)
    group.close()


def test_v2_writes_limits_and_members_as_the_kernel_wants_them(tree: FakeTree, tmp_path: Path) -> None:
    tree.group_v2(tmp_path / "g")
    group = GroupV2(tmp_path / "g")
    group.set_cpu_quota(0.25)
    assert group.set_memory_limit((1 << 20) + 1) == 1 << 20
    group.enter()
    group.close()
    assert (tmp_path / "g/cpu.max").read_text() == "25000 100000\n"
    assert (tmp_path / "g/memory.max").read_text() == "1048576\n"
    assert (tmp_path / "g/memory.swap.max").read_text().startswith("0\n")
    assert (tmp_path / "g/cgroup.procs").read_text() == "0"


def test_v2_passes_the_controllers_down_to_the_group(tree: FakeTree) -> None:
    point = tree.unified("cpu memory")
    directory = point / "twinbed" / "run-1-0123456789abcdef" / "web"
    # Plain folders do not fill themselves, so opening the group's files is as far as this goes.
    with pytest.raises(BackendError, match=r"web/cgroup\.procs"):
        V2(point).create("run-1-0123456789abcdef", "web")
    for above in (point, point / "twinbed", directory.parent):
        assert (above / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert not directory.exists()


def test_a_refusal_names_the_file_and_the_cure(
    tree: FakeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.group_v2(tmp_path / "g")
    group = GroupV2(tmp_path / "g")

    def deny(descriptor: int, data: bytes, offset: int) -> int:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "pwrite", deny)
    with pytest.raises(BackendError, match=r"g/cpu\.max: writing '1000 100000' was refused.*run it as root"):
        group.set_cpu_quota(0.0001)
    group.close()


def test_a_missing_control_file_is_named_and_nothing_stays_open(tree: FakeTree, tmp_path: Path) -> None:
    tree.group_v2(tmp_path / "g")
    (tmp_path / "g/memory.current").unlink()
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(BackendError, match=r"g/memory\.current: opening it .*group above, does not give"):
        GroupV2(tmp_path / "g")
    assert len(set(Path("/proc/self/fd").iterdir())) == len(before)


# --- leftovers ---------------------------------------------------------------------------------------


def test_sweeping_removes_dead_runs_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "RUN_ROOT", tmp_path / "run")
    alive, dead, unseen = new_run(), dead_run(), "run-4194300-0123456789abcdef"
    kept = [f"a/twinbed/{run}/web" for run in (alive, unseen, lasting_run("x"))]
    kept += ["a/twinbed/notes", f"other/{dead}/web"]
    for each in [*kept, f"a/twinbed/{dead}/web/nested", f"twinbed/{dead}"]:
        (tmp_path / each).mkdir(parents=True)
    assert cgroup_tree.sweep([tmp_path]) == [dead]
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert set(kept) <= left
    assert not any(each.startswith(("twinbed", f"a/twinbed/{dead}")) for each in left)


# --- the real kernel ---------------------------------------------------------------------------------


@pytest.mark.root
def test_a_new_group_has_used_nothing(group: Group) -> None:
    assert group.read() == (0, 0, 0, 0, 0)


@pytest.mark.slow
@pytest.mark.root
def test_cpu_time_agrees_with_the_process_own_account(group: Group) -> None:
    program = (
        "import resource, time\n"
        "while time.process_time() < 0.5: pass\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(used.ru_utime + used.ru_stime)"
    )
    with inside(group, program) as process:
        output, _ = process.communicate()
    # The group counts from before exec to after exit, the process only itself.
    assert 0.99 * float(output) <= group.read().cpu_ns / 1e9 <= float(output) + 0.1


@pytest.mark.root
def test_memory_follows_an_allocation(group: Group) -> None:
    program = "import sys; block = bytearray(b'x') * (64 << 20); print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        preexec_fn=group.enter,
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        held = group.read().memory_bytes
        process.communicate(b"")
    assert 64 << 20 <= held <= 96 << 20
    assert group.read().memory_bytes < 32 << 20


@pytest.mark.slow
@pytest.mark.root
def test_a_quota_throttles_and_is_counted(group: Group) -> None:
    group.set_cpu_quota(0.05)
    began = time.monotonic()
    with inside(group, "import time\nwhile time.process_time() < 0.05: pass"):
        pass
    elapsed_s = time.monotonic() - began
    usage = group.read()
    assert usage.nr_throttled > 0
    assert usage.throttled_ns > 0
    assert usage.nr_periods >= usage.nr_throttled
    # At 5 ms per period of 100 ms, 50 ms of work cannot be done in fewer than nine periods' starts.
    assert elapsed_s > 0.7


@pytest.mark.root
def test_a_memory_limit_is_enforced(group: Group) -> None:
    group.set_memory_limit(32 << 20)
    with inside(group, "block = bytearray(b'x') * (128 << 20)") as process:
        process.wait()
    assert process.returncode == -9


@pytest.mark.root
def test_removing_twice_is_harmless_and_leaves_no_directory(driver: V1 | V2) -> None:
    run = new_run()
    group = driver.create(run, "probe")
    group.remove()
    group.remove()
    driver.finish(run)
    assert not any(directory.parent.exists() for directory in group.directories)


@pytest.mark.root
def test_a_name_that_the_kernel_uses_itself_is_refused(driver: V1 | V2) -> None:
    run = new_run()
    with pytest.raises(BackendError, match="name the container otherwise"):
        driver.create(run, "tasks" if driver.version == 1 else "cgroup.procs")
    driver.finish(run)
    assert folders(run) == []


@pytest.mark.root
def test_emptying_and_removing_work_on_a_real_v2_tree_too() -> None:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(line.split()[4]) for line in lines if " - cgroup2 " in line]
    if not points or not os.access(points[0], os.W_OK):
        pytest.skip("no cgroup v2 hierarchy that can be written to")
    name = new_run()
    run = points[0] / "twinbed" / name
    nested = run / "web" / "nested"
    nested.mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"]) as process:
        (nested / "cgroup.procs").write_text(str(process.pid))
        assert cgroup_tree.pids([run / "web"]) == {process.pid}
        cgroup_tree.remove([run / "web"])
        assert process.wait() == -9
    cgroup_tree.remove_run(run)
    end_run(name)
    assert not run.exists()


@pytest.mark.root
def test_the_groups_of_a_dead_recorder_are_ended_and_removed(driver: V1 | V2) -> None:
    dead = dead_run()
    group = driver.create(dead, "orphan")
    with subprocess.Popen(["sleep", "60"], preexec_fn=group.enter) as process:
        assert dead in driver.sweep()
        assert process.wait() == -9
    group.close()
    assert not any(directory.exists() for directory in group.directories)
    ownership.forget_dead()
