"""Groups that others made: found or refused, driven, and left as they were."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.containers import ownership
from testbed.containers.cgroup import attached
from testbed.containers.cgroup.attached import attach
from testbed.containers.cgroup.drivers import V1, V2, Group, GroupV1, GroupV2
from testbed.containers.ownership import new_run
from testbed.containers.ports import GroupGoneError
from tests.testbed.containers.eater import MIB, Eater, readable
from tests.testbed.containers.fake_cgroups import FakeTree
from tests.testbed.containers.real_groups import kills, path_of
from twinbed import BackendError, ScenarioError


@pytest.fixture(autouse=True)
def run_root(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where limits to be restored are kept: not the machine's own place."""
    root = tmp_path_factory.mktemp("run") / "twinbed"
    monkeypatch.setattr(ownership, "RUN_ROOT", root)
    return root


@pytest.fixture
def v1(tmp_path: Path) -> V1:
    """Two v1 hierarchies, as plain files, with the group `/pods/a` in both."""
    return FakeTree(tmp_path).driver_v1("pods/a", limit=64 * MIB)


# --- which path --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/pods/a", "pods/a", "{memory}/pods/a", "{cpu}/pods/a/"])
def test_a_path_is_in_the_hierarchy_or_under_its_mount(v1: V1, path: str) -> None:
    cpu, memory = v1.mounts
    group = attach(path.format(cpu=cpu, memory=memory), v1)
    assert set(group.directories) == {cpu / "pods/a", memory / "pods/a"}
    assert group.limit_bytes == 64 * MIB
    group.restore()


def test_hierarchies_may_have_the_container_in_different_places(v1: V1) -> None:
    cpu, memory = v1.mounts
    (memory / "pods/a").rename(memory / "pods/elsewhere")
    with pytest.raises(BackendError, match=r"memory/pods/a: no such cgroup \(controller memory\)"):
        attach("/pods/a", v1)
    group = attach({"cpu": "/pods/a", "memory": "/pods/elsewhere"}, v1)
    assert set(group.directories) == {cpu / "pods/a", memory / "pods/elsewhere"}
    group.restore()
    with pytest.raises(ScenarioError, match="no path for the controller memory"):
        attach({"cpu": "/pods/a"}, v1)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/pods/../../etc", r"cgroup path /pods/\.\./\.\./etc: '\.\.' is not allowed"),
        ("../pods/a", r"'\.\.' is not allowed"),
        ("/", "cgroup path /: is the root of the hierarchy"),
        (".", "is the root of the hierarchy"),
        ("{cpu}", "is the root of the hierarchy"),
        ("", "cgroup path '': expected a path"),
        ("/pods/a\n", r"cgroup path '/pods/a\\n': expected a path"),
        ("/pods/a\0", "expected a path"),
    ],
)
def test_a_path_that_is_no_containers_is_refused(v1: V1, path: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        attach(path.format(cpu=v1.mounts[0]), v1)


@pytest.mark.parametrize("path", ["/etc", "/tmp", "/pods/nobody", "/pods/" + "x" * 300])
def test_a_path_outside_is_no_cgroup(v1: V1, path: str) -> None:
    with pytest.raises(GroupGoneError, match=r"no such cgroup \(controller cpu\)"):
        attach(path, v1)


def test_a_symbolic_link_that_leads_outside_is_refused(v1: V1, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (v1.mounts[0] / "pods/link").symlink_to(outside)
    with pytest.raises(ScenarioError, match="pods/link: leads outside the hierarchy"):
        attach("/pods/link", v1)
    (v1.mounts[0] / "pods/self").symlink_to(v1.mounts[0])
    with pytest.raises(ScenarioError, match="pods/self: leads outside"):
        attach("/pods/self", v1)
    (v1.mounts[0] / "pods/loop").symlink_to("loop")
    with pytest.raises(BackendError, match="no such cgroup"):
        attach("/pods/loop", v1)


def test_another_file_system_below_the_hierarchy_is_refused(v1: V1) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    point = v1.mounts[0] / "pods/mounted"
    point.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", point], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(BackendError, match="pods/mounted: is no cgroup but another file system"):
            attach("/pods/mounted", v1)
    finally:
        subprocess.run(["umount", point], check=True)


def test_a_file_and_a_plain_folder_are_refused(v1: V1) -> None:
    (v1.mounts[0] / "pods/file").touch()
    with pytest.raises(BackendError, match="pods/file: is no cgroup"):
        attach("/pods/file", v1)
    for mount in v1.mounts:
        (mount / "pods/empty").mkdir()
    with pytest.raises(BackendError, match="pods/empty: has none of the files of a cgroup"):
        attach("/pods/empty", v1)


def test_the_group_of_this_process_itself_is_refused(v1: V1) -> None:
    (v1.mounts[1] / "pods/a/cgroup.procs").write_text(f"{os.getpid()}\n")
    with pytest.raises(BackendError, match="memory/pods/a: this process runs in it itself"):
        attach("/pods/a", v1)


def test_v2_says_how_to_pass_a_missing_controller_down(tmp_path: Path) -> None:
    tree = FakeTree(tmp_path)
    point = tree.unified("cpu memory")
    tree.group_v2(point / "pods/a")
    (point / "pods/a/cgroup.controllers").write_text("cpu pids\n")
    with pytest.raises(
        BackendError, match=r"lacks the controllers memory; .*echo '\+memory' > .*/pods/cgroup"
    ):
        attach("/pods/a", V2(point))
    with pytest.raises(ScenarioError, match="version 2 has one hierarchy"):
        attach({"cpu": "/pods/a", "memory": "/pods/a"}, V2(point))


# --- what it does ------------------------------------------------------------------------------------


def test_an_attached_group_takes_no_command_and_no_signal(v1: V1) -> None:
    group = attach("/pods/a", v1)
    with pytest.raises(BackendError, match="is attached; start commands in a group of our own"):
        group.enter()
    with subprocess.Popen(["sleep", "60"]) as process:
        (v1.mounts[0] / "pods/a/cgroup.procs").write_text(f"{process.pid}\n")
        group.send(9)  # type: ignore[arg-type]
        group.remove()
        assert process.poll() is None
        process.kill()
    assert (v1.mounts[0] / "pods/a").is_dir()


def test_attached_again_after_its_keeper_was_killed_it_gets_what_was_found_first(
    tmp_path: Path, run_root: Path
) -> None:
    tree = FakeTree(tmp_path)
    point = tree.unified("cpu memory")
    tree.group_v2(point / "pods/a")
    (point / "pods/a/cgroup.controllers").write_text("cpu memory\n")
    run = new_run()
    attach("/pods/a", V2(point), run).set_cpu_quota(0.5)
    again = attach("/pods/a", V2(point), run)
    assert again.quota_cores == 0.5
    again.restore()
    again.restore()
    ownership.end_run(run)
    assert (point / "pods/a/cpu.max").read_text().startswith("max 100000\n"[:10])
    assert not run_root.exists()


def test_a_new_group_at_the_same_path_is_not_given_the_old_ones_limits(v1: V1, run_root: Path) -> None:
    run = new_run()
    attach("/pods/a", v1, run).close()
    [file] = attached.files_of(run)
    file.write_text(file.read_text().replace('"inode": ', '"inode": 1').replace("67108864", "4096"))
    group = attach("/pods/a", v1, run)
    group.restore()
    assert group.limit_bytes == 64 * MIB
    assert (v1.mounts[1] / "pods/a/memory.limit_in_bytes").read_text() == str(64 * MIB)


def test_of_a_group_that_goes_while_it_is_attached_nothing_is_kept(
    v1: V1, run_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(_group: GroupV1) -> None:
        raise GroupGoneError("it was removed")

    monkeypatch.setattr(GroupV1, "_open_files", vanish)
    with pytest.raises(GroupGoneError):
        attach("/pods/a", v1)
    assert not run_root.exists()


def test_the_note_of_a_killed_keeper_stays_until_its_limits_are_back(
    v1: V1, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def too_many(_group: GroupV1) -> None:
        raise BackendError("too many open files")

    run = new_run()
    attach("/pods/a", v1, run).close()
    [note] = attached.files_of(run)
    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", refuse)
        attach("/pods/a", v1, run).close()
    with monkeypatch.context() as busy:
        busy.setattr(GroupV1, "_open_files", too_many)
        with pytest.raises(BackendError, match="too many open files"):
            attach("/pods/a", v1, run)
    assert attached.files_of(run) == [note]
    attach("/pods/a", v1, run).restore()
    assert attached.files_of(run) == []


def test_an_attachment_that_fails_leaves_no_note(
    v1: V1, run_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(_group: GroupV1) -> None:
        raise BackendError("too many open files")

    monkeypatch.setattr(GroupV1, "_open_files", too_many)
    with pytest.raises(BackendError, match="too many open files"):
        attach("/pods/a", v1)
    assert not run_root.exists()


def test_a_trap_that_cannot_be_ended_leaves_no_file_open(v1: V1) -> None:
    class Stuck:
        descriptor = 7

        def close(self) -> None:
            raise BackendError("the trap is stuck")

    before = len(list(Path("/proc/self/fd").iterdir()))
    group = GroupV1({name: v1.base[name] / "pods/a" for name in v1.base})
    group._armed = Stuck()  # type: ignore[assignment]
    with pytest.raises(BackendError, match="the trap is stuck"):
        group.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_v2_is_not_put_back_below_what_is_held(tmp_path: Path) -> None:
    tree = FakeTree(tmp_path)
    point = tree.unified("cpu memory")
    tree.group_v2(point / "pods/a", memory=MIB)
    (point / "pods/a/cgroup.controllers").write_text("cpu memory\n")
    (point / "pods/a/memory.max").write_text(f"{4 * MIB}\n")
    group = attach("/pods/a", V2(point))
    assert isinstance(group, GroupV2)
    group.set_memory_limit(8 * MIB)
    (point / "pods/a/memory.current").write_text(f"{6 * MIB}\n")
    with pytest.raises(BackendError, match=r"memory\.max: was 4194304, but 6291456 bytes are held now"):
        group.restore()


def test_without_space_to_remember_limits_a_group_is_not_attached(v1: V1, run_root: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    run_root.mkdir()
    full = ["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(run_root)]
    if subprocess.run(full, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (run_root / "filler").write_bytes(bytes(4096))
        with pytest.raises(BackendError, match=r"\.json: cannot be written \(No space left on device\)"):
            attach("/pods/a", v1)
        assert [path.name for path in run_root.iterdir()] == ["filler"]
    finally:
        subprocess.run(["umount", str(run_root)], check=True)


# --- the real kernel ---------------------------------------------------------------------------------


@pytest.fixture
def container(group: Group) -> Group:
    """A container of somebody else's: the limits are theirs."""
    group.set_cpu_quota(0.5)
    group.set_memory_limit(256 * MIB)
    return group


@pytest.mark.root
def test_limits_are_driven_and_put_back(container: Group, driver: V1 | V2) -> None:
    before, runs = contents(container), ownership.runs_with_directory()
    group = attach(path_of(container, driver), driver)
    assert (group.quota_cores, group.limit_bytes) == (0.5, 256 * MIB)
    with Eater(container) as eater:
        group.set_cpu_quota(1.5)
        group.set_cpu_request(0.25)
        group.set_memory_limit(16 * MIB)
        trap = group.trap()
        eater.take(32 * MIB)
        assert readable(trap.descriptor, 20.0)
        assert trap.held()
        assert contents(container) != before
        group.restore()
        eater.finished_ns(20.0)
        assert eater.process.poll() is None
    assert contents(container) == before
    assert kills(container) == 0
    assert ownership.runs_with_directory() == runs


@pytest.mark.slow
@pytest.mark.root
def test_a_keeper_that_was_killed_leaves_no_container_held(
    container: Group, driver: V1 | V2, run_root: Path
) -> None:
    before = contents(container)
    program = (
        "import os, signal\nfrom pathlib import Path\n"
        "from testbed.containers import ownership\n"
        f"ownership.RUN_ROOT = Path({str(run_root)!r})\n"
        "from testbed.containers.cgroup.attached import attach\n"
        "from testbed.containers.cgroup.drivers import GroupV1, detect\n"
        f"group = attach({path_of(container, driver)!r}, detect())\n"
        f"group.set_memory_limit({16 * MIB}); group.trap(); group.set_cpu_quota(0.9)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    with Eater(container) as eater:
        eater.take(32 * MIB)
        assert not eater.done(0.3)
        [run] = [name for name in ownership.runs_with_directory() if attached.files_of(name)]
        assert len(attached.files_of(run)) == 1
        assert attached.restore_run(run) == []
        ownership.forget_dead()
        eater.finished_ns(20.0)
    assert contents(container) == before
    assert kills(container) == 0
    assert not (run_root / run).exists()


@pytest.mark.root
def test_restoring_a_group_that_is_gone_is_no_error(driver: V1 | V2) -> None:
    run = new_run()
    made = driver.create(run, "probe")
    group = attach(path_of(made, driver), driver)
    made.remove()
    driver.finish(run)
    group.restore()


def contents(group: Group) -> dict[str, str]:
    """Return the contents of the files that hold limits."""
    names = {*attached._FILES} - {"memory.oom_control"}
    texts = {
        str(path): path.read_text()
        for directory in group.directories
        for path in directory.iterdir()
        if path.name in names
    }
    for directory in group.directories:
        if (directory / "memory.oom_control").exists():
            texts["killer"] = (directory / "memory.oom_control").read_text().splitlines()[0]
    return texts
