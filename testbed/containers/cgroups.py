"""Control groups, v1 and v2, behind one small port: create, enter, read, limit, remove.

For: finding the controllers of this machine and accounting one container's CPU, throttling and memory
through descriptors that stay open. Not for: deciding limits (control) nor starting commands (recorder).
Everything made here lies under `twinbed/<run>/<name>`, and nothing else is ever changed or removed.
Sources: Documentation/admin-guide/cgroup-v1/{cpuacct,memory}.rst, cgroup-v2.rst and
scheduler/sched-bwc.rst of the kernel; the working set is cAdvisor's: usage less inactive file pages.
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from testbed.containers import cgroup_tree
from testbed.containers.ownership import MARK
from twinbed import BackendError

QUOTA_PERIOD_US = 100_000
"""CFS bandwidth period that a quota is set with: the kernel's own default."""

MIN_QUOTA_US = 1_000
"""The kernel refuses a smaller quota (kernel/sched/core.c, min_cfs_quota_period)."""

_MAX_FILE_BYTES = 16_384
_CONTROLLERS = ("cpu", "cpuacct", "memory")
_CURE = "run it as root: sudo twinbed record …"


class Usage(NamedTuple):
    """One container's counters at one moment: CPU and throttled time since creation (ns), CFS periods
    elapsed and throttled since creation, and the working set (bytes)."""

    cpu_ns: int
    throttled_ns: int
    nr_periods: int
    nr_throttled: int
    memory_bytes: int


NOTHING_USED = Usage(0, 0, 0, 0, 0)
"""The counters of a group that nothing ever ran in."""


class Group(ABC):
    """One container's cgroup: its directories (one per v1 hierarchy, one in v2) with files kept open."""

    def __init__(self, directories: tuple[Path, ...]) -> None:
        self.directories = directories
        self._descriptors: list[int] = []
        self._doors: list[int] = []
        for each in directories:
            self._doors.append(self._open(each / "cgroup.procs", os.O_WRONLY))

    def enter(self) -> None:
        """Moves the calling process in. Safe between fork and exec: it only writes to open descriptors."""
        for door in self._doors:
            os.write(door, b"0")

    @abstractmethod
    def read(self) -> Usage:
        """The counters now; the CPU time is read first."""

    @abstractmethod
    def set_cpu_quota(self, cores: float) -> None:
        """Limits CPU to `cores` per period of QUOTA_PERIOD_US (at least the kernel's minimum)."""

    @abstractmethod
    def set_memory_limit(self, limit_bytes: int) -> None:
        """Limits memory; what goes beyond is killed by the kernel."""

    def pids(self) -> set[int]:
        """Live processes in the group and in groups that they made below it."""
        return cgroup_tree.pids(self.directories)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to every process in the group."""
        cgroup_tree.send(self.directories, number)

    def remove(self) -> None:
        """Kills what is left inside, closes the files and removes the directories. Idempotent.

        Raises BackendError when the processes do not die.
        """
        self.close()
        cgroup_tree.remove(self.directories)

    def close(self) -> None:
        """Closes the files kept open and leaves the group as it is."""
        while self._descriptors:
            os.close(self._descriptors.pop())
        self._doors.clear()

    def _open(self, path: Path, flags: int = os.O_RDONLY) -> int:
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC)
        except OSError as error:
            self.close()
            raise _refused(path, "opening it", error) from error
        self._descriptors.append(descriptor)
        return descriptor


class GroupV1(Group):
    """A cgroup in the hierarchies cpu, cpuacct and memory, which may be mounted apart or together."""

    def __init__(self, by_controller: Mapping[str, Path]) -> None:
        super().__init__(tuple(dict.fromkeys(by_controller.values())))
        self._by_controller = by_controller
        self._usage = self._open(by_controller["cpuacct"] / "cpuacct.usage")
        self._stat = self._open(by_controller["cpu"] / "cpu.stat")
        self._memory = self._open(by_controller["memory"] / "memory.usage_in_bytes")
        self._memory_stat = self._open(by_controller["memory"] / "memory.stat")

    def read(self) -> Usage:
        """See Group.read."""
        cpu_ns = int(_pread(self._usage))
        stat = _pread(self._stat)
        memory_bytes = int(_pread(self._memory))
        return Usage(
            cpu_ns,
            _field(stat, b"throttled_time"),
            _field(stat, b"nr_periods"),
            _field(stat, b"nr_throttled"),
            max(0, memory_bytes - _field(_pread(self._memory_stat), b"total_inactive_file")),
        )

    def set_cpu_quota(self, cores: float) -> None:
        """See Group.set_cpu_quota."""
        directory = self._by_controller["cpu"]
        _write(directory / "cpu.cfs_period_us", str(QUOTA_PERIOD_US))
        _write(directory / "cpu.cfs_quota_us", str(_quota_us(cores)))

    def set_memory_limit(self, limit_bytes: int) -> None:
        """See Group.set_memory_limit."""
        _write(self._by_controller["memory"] / "memory.limit_in_bytes", str(limit_bytes))


class GroupV2(Group):
    """A cgroup of the unified hierarchy."""

    def __init__(self, directory: Path) -> None:
        super().__init__((directory,))
        self._directory = directory
        self._stat = self._open(directory / "cpu.stat")
        self._memory = self._open(directory / "memory.current")
        self._memory_stat = self._open(directory / "memory.stat")

    def read(self) -> Usage:
        """See Group.read."""
        stat = _pread(self._stat)
        memory_bytes = int(_pread(self._memory))
        return Usage(
            _field(stat, b"usage_usec") * 1_000,
            _field(stat, b"throttled_usec") * 1_000,
            _field(stat, b"nr_periods"),
            _field(stat, b"nr_throttled"),
            max(0, memory_bytes - _field(_pread(self._memory_stat), b"inactive_file")),
        )

    def set_cpu_quota(self, cores: float) -> None:
        """See Group.set_cpu_quota."""
        _write(self._directory / "cpu.max", f"{_quota_us(cores)} {QUOTA_PERIOD_US}")

    def set_memory_limit(self, limit_bytes: int) -> None:
        """See Group.set_memory_limit."""
        _write(self._directory / "memory.max", str(limit_bytes))


class Driver(Protocol):
    """Where groups are made."""

    @property
    def version(self) -> int:
        """1 or 2."""
        ...

    def create(self, run: str, name: str) -> Group:
        """An empty group `twinbed/<run>/<name>`. Raises BackendError when the kernel refuses."""
        ...

    def finish(self, run: str) -> None:
        """Removes the run's directory, once its groups are removed, and the mark's where it is empty."""
        ...

    def sweep(self) -> list[str]:
        """Ends and removes the groups of runs whose recorder is dead; the names of those runs."""
        ...


@dataclass(frozen=True, slots=True)
class V1:
    """Version 1. base: directory below which groups are made, by controller (cpu, cpuacct, memory);
    mounts: the hierarchies' mount points, searched for leftovers."""

    base: Mapping[str, Path]
    mounts: tuple[Path, ...]
    version: int = 1

    def create(self, run: str, name: str) -> Group:
        """See Driver.create."""
        directories = {controller: base / MARK / run / name for controller, base in self.base.items()}
        with _whole(directories.values()):
            for directory in dict.fromkeys(directories.values()):
                _make(directory)
            return GroupV1(directories)

    def finish(self, run: str) -> None:
        """See Driver.finish."""
        for base in dict.fromkeys(self.base.values()):
            cgroup_tree.remove_run(base / MARK / run)

    def sweep(self) -> list[str]:
        """See Driver.sweep."""
        return cgroup_tree.sweep(self.mounts)


@dataclass(frozen=True, slots=True)
class V2:
    """Version 2. base: directory below which groups are made, the mount point of the unified hierarchy."""

    base: Path
    version: int = 2

    def create(self, run: str, name: str) -> Group:
        """See Driver.create."""
        directory = self.base / MARK / run / name
        with _whole([directory]):
            _make(directory)
            # A controller reaches a group when every group above it passes the controller down.
            for above in (self.base, self.base / MARK, self.base / MARK / run):
                _write(above / "cgroup.subtree_control", "+cpu +memory")
            return GroupV2(directory)

    def finish(self, run: str) -> None:
        """See Driver.finish."""
        cgroup_tree.remove_run(self.base / MARK / run)

    def sweep(self) -> list[str]:
        """See Driver.sweep."""
        return cgroup_tree.sweep((self.base,))


def detect(proc: Path = Path("/proc/self")) -> V1 | V2:
    """The driver for this machine: v2 where it has the cpu and memory controllers, else v1.

    v1 groups are made below the caller's own, so that limits on the caller hold for what it starts. v2
    groups are made at the mount point, because a v2 group with processes cannot have groups with
    controllers below it. Raises BackendError that says what is missing and how to get it.
    """
    if not (proc / "mountinfo").exists():
        raise BackendError(
            f"{proc / 'mountinfo'}: missing, so this is not Linux; record on a Linux host or VM"
        )
    hierarchies, unified = _mounted((proc / "mountinfo").read_text())
    own = _membership((proc / "cgroup").read_text())
    if unified is not None and {"cpu", "memory"} <= _controllers(unified):
        _check_writable(unified)
        return V2(unified)
    missing = [name for name in _CONTROLLERS if name not in hierarchies]
    if missing:
        raise BackendError(
            f"no cgroup controller {', '.join(missing)} is mounted here (neither v1 nor v2), so usage "
            "cannot be accounted; record on a Linux host or VM with cgroups, or in a privileged container"
        )
    base = {name: _below_own(*hierarchies[name], own.get(name, "/")) for name in _CONTROLLERS}
    for directory in base.values():
        _check_writable(directory)
    return V1(base, tuple(dict.fromkeys(hierarchies[name][0] for name in _CONTROLLERS)))


def _mounted(mountinfo: str) -> tuple[dict[str, tuple[Path, str]], Path | None]:
    """v1: controller → (mount point, root of the mount inside the hierarchy); v2: its mount point.

    Of several mounts of a hierarchy the first is meant: later ones are another root's (a chroot), or hidden.
    """
    hierarchies: dict[str, tuple[Path, str]] = {}
    unified: Path | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split(maxsplit=2)
        place = Path(point.replace("\\040", " "))
        if kind == "cgroup2":
            unified = unified or place
        elif kind == "cgroup":
            for name in set(options.split(",")) & set(_CONTROLLERS):
                hierarchies.setdefault(name, (place, root))
    return hierarchies, unified


def _membership(cgroup: str) -> dict[str, str]:
    """Controller → the caller's path in its v1 hierarchy (proc(5), /proc/PID/cgroup)."""
    paths: dict[str, str] = {}
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    return paths


def _below_own(mount: Path, root: str, own: str) -> Path:
    """The caller's own directory, or the mount point where the mount does not show it (a namespace)."""
    directory = mount / os.path.relpath(own, root)
    return directory if ".." not in directory.parts and directory.is_dir() else mount


def _controllers(directory: Path) -> set[str]:
    try:
        return set((directory / "cgroup.controllers").read_text().split())
    except OSError:
        return set()


def _check_writable(directory: Path) -> None:
    if not os.access(directory, os.W_OK):
        raise BackendError(f"{directory}: no permission to make a cgroup for the command; {_CURE}")


@contextmanager
def _whole(directories: Iterable[Path]) -> Iterator[None]:
    """Removes the directories of a group that could not be made as a whole."""
    try:
        yield
    except BaseException:
        cgroup_tree.remove(tuple(directories))
        raise


def _make(directory: Path) -> None:
    """Makes the directory; another run that ends right now may remove the mark's directory under us."""
    for _ in range(3):
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            directory.mkdir()
        except FileNotFoundError:
            continue
        except FileExistsError as error:
            raise BackendError(
                f"{directory}: the kernel keeps a file of this name; name the container otherwise"
            ) from error
        except OSError as error:
            raise _refused(directory, "making the cgroup", error) from error
        return
    raise BackendError(
        f"{directory}: cannot be made, other runs remove its parent at the same time; try again"
    )


def _quota_us(cores: float) -> int:
    return max(MIN_QUOTA_US, round(cores * QUOTA_PERIOD_US))


def _pread(descriptor: int) -> bytes:
    return os.pread(descriptor, _MAX_FILE_BYTES, 0)


def _field(text: bytes, key: bytes) -> int:
    """The number after `key` in a file of `key number` lines; 0 where the kernel does not count it."""
    start = (b"\n" + text).find(b"\n" + key + b" ")
    if start < 0:
        return 0
    return int(text[start + len(key) + 1 :].split(b"\n", 1)[0])


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise _refused(path, f"writing {text!r}", error) from error


def _refused(path: Path, what: str, error: OSError) -> BackendError:
    return BackendError(f"{path}: {what} was refused ({error.strerror}); {_CURE}")
