"""A cgroup that another system made (Docker, containerd, a Kubernetes pod), given by its path.

For: finding it in the mounted hierarchies, refusing paths that are not a container's cgroup, and restoring
its limits afterwards. Not for: groups of our own (drivers.py). An attached group is never removed, and its
processes never get a signal. The original limits are also stored in a file, so that they can be restored
after a kill (leftovers.py): a trap that no process serves would hold the container for ever.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from testbed.containers import ownership
from testbed.containers.cgroup import files, tree
from testbed.containers.cgroup.group import Group
from testbed.containers.cgroup.v1 import CONTROLLERS, V1, GroupV1
from testbed.containers.cgroup.v2 import V2, GroupV2
from testbed.containers.ports import GroupGoneError
from twinbed import BackendError, ScenarioError

Found = Sequence[tuple[Path, str]]
"""Control files and their original content, in the order in which they are restored."""

UNIFIED = "unified"
"""Key of the one directory that a group of version 2 has."""

_FOLDER = "attached"
_KILLER = "memory.oom_control"
_V1_FILES = {
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares"),
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", _KILLER),
}
_V2_FILES = ("cpu.max", "cpu.weight", "memory.max", "memory.high", "memory.swap.max")
_FILES = {*_V2_FILES, *(name for names in _V1_FILES.values() for name in names)}


class AttachedGroup(Group):
    """A group of another system. It gets limits and a trap like any other group, but nothing in it is
    started, ended or removed. keeper: object that holds the original limits."""

    keeper: _Keeper

    def enter(self) -> None:
        """Raise BackendError: no command is started in a group that is not ours."""
        raise BackendError(
            f"{self.directories[0]}: is attached; start commands in a group of our own instead"
        )

    def send(self, number: signal.Signals) -> None:
        """Do nothing: the processes are not ours."""

    def restore(self) -> None:
        """End the trap, restore the original limits, and close the files. Idempotent. A group that no longer
        exists needs nothing. Raises BackendError naming the file that could not be restored."""
        # Limits are put back before the trap ends. Otherwise held tasks would be killed, and in v2 the end of
        # the trap moves the limits.
        self.keeper.put_back()
        self.close()
        problems = self.keeper.put_back()
        self.keeper.forget()
        if problems:
            raise problems[0]

    def remove(self) -> None:
        """Restore the original limits. The group and its processes stay."""
        self.restore()

    def _open_doors(self) -> None:
        """Open nothing: no process enters."""


class AttachedV1(AttachedGroup, GroupV1):
    """An attached group of version 1."""


class AttachedV2(AttachedGroup, GroupV2):
    """An attached group of version 2."""


def attach(
    path: str | Path | Mapping[str, str | Path], driver: V1 | V2, run: str | None = None
) -> AttachedGroup:
    """Return the group at `path`, with its present limits stored.

    path: path in the hierarchy (`/kubepods/pod1/c1`) or under its mount point
    (`/sys/fs/cgroup/cpu/kubepods/…`). If it differs between v1 hierarchies, give one for `cpu` and one for
    `memory`; `cpuacct` is then as `cpu` unless given. run: name of the caller's run; None: a new run. If a
    group is attached again in a run, the limits found the first time are restored later.

    Raises ScenarioError for a path that leads outside the hierarchy or is its root, GroupGoneError where
    there is no such group (yet), BackendError for a group that lacks a controller, and for this process's own
    group, whose trap would hold it.
    """
    by_controller = directories_of(path, driver)
    kept = {UNIFIED: _V2_FILES} if isinstance(driver, V2) else _V1_FILES
    keeper = _Keeper(_read([by_controller[key] / name for key, names in kept.items() for name in names]), run)
    try:
        group = AttachedV2(by_controller[UNIFIED]) if isinstance(driver, V2) else AttachedV1(by_controller)
    except BaseException as error:
        # What a killed keeper noted must still be restored, unless the group is gone.
        if isinstance(error, GroupGoneError) or not keeper.inherited:
            keeper.forget()
        raise
    group.keeper = keeper
    return group


def directories_of(path: str | Path | Mapping[str, str | Path], driver: V1 | V2) -> dict[str, Path]:
    """Return controller (v2: UNIFIED) → the group's directory. Arguments and errors are as in `attach`."""
    if isinstance(driver, V1):
        return dict(_by_controller(path, driver))
    if isinstance(path, Mapping):
        raise ScenarioError("attach: version 2 has one hierarchy; give one path, not one per controller")
    directory = _directory(path, driver.base, (driver.base,), UNIFIED)
    _check_v2(directory)
    return {UNIFIED: directory}


def restore_run(run: str) -> list[BackendError]:
    """Restore the limits that a run's killed keeper stored. Return an error for each failure."""
    problems = []
    for file in files_of(run):
        problems += put_back(_load(file))
        file.unlink(missing_ok=True)
    ownership.forget_directory(run, _FOLDER)
    return problems


def files_of(run: str) -> list[Path]:
    """Return the files in which a run keeps the limits that it found."""
    return sorted((ownership.RUN_ROOT / run / _FOLDER).glob("*.json"))


class _Keeper:
    """The original limits, kept in memory and in a file of the run's directory.

    inherited: whether a keeper that was killed had written the file. Then its content is restored.
    """

    def __init__(self, limits: Found, run: str | None) -> None:
        directory = limits[0][0].parent
        inode = files.inode(directory)
        self._own_run = run is None
        self._run = run = run or ownership.new_run()
        name = hashlib.blake2s(os.fsencode(directory), digest_size=8).hexdigest()
        self._file = ownership.make_directory(run, _FOLDER) / f"{name}.json"
        former = _load(self._file, inode)
        self._found: Found = former or limits
        self.inherited = bool(former)
        if self.inherited:
            return
        entries = [[str(path), text] for path, text in limits]
        try:
            self._file.write_text(json.dumps({"inode": inode, "files": entries}))
        except OSError as error:
            self.forget()
            raise BackendError(
                f"{self._file}: cannot be written ({error.strerror}); make space in /run"
            ) from error

    def put_back(self) -> list[BackendError]:
        return put_back(self._found)

    def forget(self) -> None:
        self._found = ()
        self._file.unlink(missing_ok=True)
        ownership.forget_directory(self._run, _FOLDER)
        if self._own_run:
            ownership.end_run(self._run)


def _by_controller(path: str | Path | Mapping[str, str | Path], driver: V1) -> Iterator[tuple[str, Path]]:
    paths = dict(path) if isinstance(path, Mapping) else dict.fromkeys(CONTROLLERS, path)
    if "cpu" in paths:
        paths.setdefault("cpuacct", paths["cpu"])
    for controller in CONTROLLERS:
        if controller not in paths:
            raise ScenarioError(f"attach: no path for the controller {controller}; give cpu and memory")
        yield (
            controller,
            _directory(paths[controller], driver.mount_of(controller), driver.mounts, controller),
        )


def _directory(path: str | Path, mount: Path, mounts: Sequence[Path], controller: str) -> Path:
    """Return the group's directory in one hierarchy. Raises an error for everything that is not a container's
    group."""
    below = _below(path, mounts)
    directory = mount / below
    try:
        resolved = directory.resolve(strict=True)
        device = resolved.stat().st_dev
    except (OSError, RuntimeError):
        raise GroupGoneError(
            f"{directory}: no such cgroup (controller {controller}); /proc/PID/cgroup of a process in the "
            "container has it; give a path per controller where they differ"
        ) from None
    if not resolved.is_relative_to(mount.resolve()) or resolved == mount.resolve():
        raise ScenarioError(f"{path}: leads outside the hierarchy at {mount}; give a path below it")
    if not resolved.is_dir() or device != mount.stat().st_dev:
        raise BackendError(f"{directory}: is no cgroup but another file system; give a container's group")
    if os.getpid() in tree.pids([resolved]):
        raise BackendError(f"{directory}: this process runs in it itself; give a group that it is not in")
    return resolved


def _below(path: str | Path, mounts: Sequence[Path]) -> Path:
    """Return the path inside the hierarchy. For a path under a mount point this is the part after it."""
    text = str(path)
    path_given = Path(text)
    if not text or not text.isprintable():
        raise ScenarioError(f"cgroup path {text!r}: expected a path such as /kubepods/pod1/c1")
    if ".." in path_given.parts:
        raise ScenarioError(f"cgroup path {text}: '..' is not allowed; give the path without it")
    for mount in mounts:
        if path_given.is_relative_to(mount):
            below = path_given.relative_to(mount)
            break
    else:
        below = path_given.relative_to("/") if path_given.is_absolute() else path_given
    if not below.parts:
        raise ScenarioError(f"cgroup path {text}: is the root of the hierarchy; give a container's group")
    return below


def _check_v2(directory: Path) -> None:
    controllers = files.read(directory / "cgroup.controllers").split()
    missing = sorted({"cpu", "memory"} - set(controllers))
    if missing:
        wanted = " ".join(f"+{name}" for name in missing)
        raise BackendError(
            f"{directory}: lacks the controllers {', '.join(missing)}; pass them down: "
            f"echo '{wanted}' > {directory.parent / 'cgroup.subtree_control'}"
        )


def _read(paths: Sequence[Path]) -> Found:
    """Return the content of the files that this kernel has."""
    limits = [(path, _value(path)) for path in paths if path.exists()]
    if not limits:
        raise BackendError(f"{paths[0].parent}: has none of the files of a cgroup; give a container's group")
    return limits


def _value(path: Path) -> str:
    text = files.read(path)
    return str(files.field(text.encode(), b"oom_kill_disable")) if path.name == _KILLER else text


def put_back(limits: Found) -> list[BackendError]:
    """Write limits back and return the errors. There are two attempts, because a limit may have to wait for
    the one that bounds it. The OOM killer is switched back last, when the tasks held by a trap have
    continued."""
    left = [entry for entry in limits if entry[0].name != _KILLER]
    problems: list[BackendError] = []
    for _ in range(2):
        problems = []
        for path, text in list(left):
            problem = _write_back(path, text)
            if problem is None:
                left.remove((path, text))
            else:
                problems.append(problem)
    killers = [_write_back(path, text) for path, text in limits if path.name == _KILLER]
    return problems + [entry for entry in killers if entry is not None]


def _write_back(path: Path, text: str) -> BackendError | None:
    try:
        if path.name == "memory.max" and text != "max":
            # The kernel would kill processes to make the group fit.
            held = int((path.parent / "memory.current").read_text())
            if held > int(text):
                return BackendError(f"{path}: was {text}, but {held} bytes are held now; write it back later")
        path.write_text(text)
    except OSError as error:
        if error.errno == errno.ENODEV or not path.parent.exists():
            return None
        return files.refused(path, f"putting back {text!r}", error)
    return None


def _load(file: Path, inode: int | None = None) -> Found:
    """Return the valid limits that a dead keeper stored. inode: if given, only those of its group."""
    try:
        notes = json.loads(file.read_text())
        limits = [(Path(path), str(text)) for path, text in notes["files"]]
        same = inode is None or notes["inode"] == inode
    except (OSError, ValueError, TypeError, KeyError):
        return []
    return [(path, text) for path, text in limits if path.name in _FILES] if same else []
