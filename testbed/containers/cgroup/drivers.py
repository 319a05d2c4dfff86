"""Find the cgroup driver of this machine, v1 or v2, and export the package's public names.

For: choosing the version that has the controllers. Not for: the files of a group (v1.py, v2.py), deciding
limits (control), nor starting commands (host/). Everything made here is under `twinbed/<run>/<name>`, and
nothing else is ever changed or removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from testbed.containers.cgroup.files import CURE
from testbed.containers.cgroup.group import (
    MIN_QUOTA_US,
    NO_LIMIT_BYTES,
    NOTHING_USED,
    QUOTA_PERIOD_US,
    Group,
    Usage,
)
from testbed.containers.cgroup.v1 import CONTROLLERS, V1, GroupV1
from testbed.containers.cgroup.v2 import V2, GroupV2
from twinbed import BackendError

__all__ = [
    "MIN_QUOTA_US",
    "NOTHING_USED",
    "NO_LIMIT_BYTES",
    "QUOTA_PERIOD_US",
    "V1",
    "V2",
    "Driver",
    "Group",
    "GroupV1",
    "GroupV2",
    "Usage",
    "detect",
    "membership",
    "own_directories",
]


Driver = V1 | V2
"""A driver, which makes groups on this machine."""


def detect(proc: Path = Path("/proc/self")) -> Driver:
    """Return the driver for this machine: v2 if it has the cpu and memory controllers, else v1.

    v1 groups are made below the caller's own group, so that limits on the caller also apply to them. v2
    groups are made at the mount point, because a v2 group with processes cannot have groups with controllers
    below it. Raises BackendError that says what is missing and how to get it.
    """
    if not (proc / "mountinfo").exists():
        raise BackendError(
            f"{proc / 'mountinfo'}: missing, so this is not Linux; record on a Linux host or VM"
        )
    hierarchies, others, unified = _mounted((proc / "mountinfo").read_text())
    own = membership((proc / "cgroup").read_text())
    if unified is not None and {"cpu", "memory"} <= _controllers(unified):
        _check_writable(unified)
        return V2(unified)
    missing = [name for name in CONTROLLERS if name not in hierarchies]
    if missing:
        raise BackendError(
            f"no cgroup controller {', '.join(missing)} is mounted here (neither v1 nor v2), so usage "
            "cannot be accounted; record on a Linux host or VM with cgroups, or in a privileged container"
        )
    base = {name: _below_own(*hierarchies[name], own.get(name, "/")) for name in CONTROLLERS}
    for directory in base.values():
        _check_writable(directory)
    mounts = [*(hierarchies[name][0] for name in CONTROLLERS), *others, *([unified] if unified else [])]
    return V1(base, tuple(dict.fromkeys(mounts)))


def own_directories() -> set[Path]:
    """Return the caller's own group in every mounted hierarchy, also in those that we do not use."""
    proc = Path("/proc/self")
    own = membership((proc / "cgroup").read_text())
    return {
        _below_own(place, root, own[name])
        for kind, place, root, options in _mounts((proc / "mountinfo").read_text())
        if kind in ("cgroup", "cgroup2")
        for name in ({""} if kind == "cgroup2" else options) & own.keys()
    }


def _mounted(mountinfo: str) -> tuple[dict[str, tuple[Path, str]], list[Path], Path | None]:
    """Read the mounts of cgroup hierarchies.

    Returns, for v1: controller → (mount point, root of the mount inside the hierarchy); the mount points of
    controllers that we do not use (runc makes groups there, too); and v2's mount point. The first of several
    mounts of a hierarchy counts: later ones have another root (a chroot) or are hidden.
    """
    hierarchies: dict[str, tuple[Path, str]] = {}
    others: list[Path] = []
    unified: Path | None = None
    for kind, place, root, options in _mounts(mountinfo):
        if kind == "cgroup2":
            unified = unified or place
        elif kind == "cgroup":
            wanted = options & set(CONTROLLERS)
            for name in wanted:
                hierarchies.setdefault(name, (place, root))
            if not wanted:
                others.append(place)
    return hierarchies, others, unified


def _mounts(mountinfo: str) -> Iterator[tuple[str, Path, str, set[str]]]:
    """Yield each mount: its kind, its place, its root inside the file system, and its options (proc(5))."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split(maxsplit=2)
        yield kind, Path(point.replace("\\040", " ")), root, set(options.split(","))


def membership(cgroup: str) -> dict[str, str]:
    """Return controller → path in its v1 hierarchy, "" → path in v2 (proc(5), /proc/PID/cgroup)."""
    paths: dict[str, str] = {}
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    return paths


def _below_own(mount: Path, root: str, own: str) -> Path:
    """Return the caller's own directory, or the mount point where the mount does not show it (a
    namespace)."""
    directory = mount / os.path.relpath(own, root)
    return directory if ".." not in directory.parts and directory.is_dir() else mount


def _controllers(directory: Path) -> set[str]:
    try:
        return set((directory / "cgroup.controllers").read_text().split())
    except OSError:
        return set()


def _check_writable(directory: Path) -> None:
    if not os.access(directory, os.W_OK):
        raise BackendError(f"{directory}: no permission to make a cgroup; {CURE}")
