"""Looks at real cgroups from outside of the code under test."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from testbed.containers.cgroup.drivers import V2, Driver, Group

CGROUPS = Path("/sys/fs/cgroup")


def folders(beginning: str) -> list[str]:
    """The directories, in all hierarchies, whose names begin so."""
    return [folder for folder, _, _ in os.walk(CGROUPS) if Path(folder).name.startswith(beginning)]


def path_of(group: Group, driver: Driver) -> str | Mapping[str, str]:
    """Where a group is, as `attach` takes it: hierarchies of v1 may have their caller in different places."""
    if isinstance(driver, V2):
        return str(group.directories[0])
    return {
        controller: str(next(place for place in group.directories if place.is_relative_to(base)))
        for controller, base in driver.base.items()
    }


def quota_of(directory: Path) -> float:
    """The CPU quota in a group's control file, cores; inf for none."""
    if (directory / "cpu.max").exists():
        quota, period = (directory / "cpu.max").read_text().split()
        return float("inf") if quota == "max" else int(quota) / int(period)
    quota_us = int((directory / "cpu.cfs_quota_us").read_text())
    return float("inf") if quota_us < 0 else quota_us / 100_000


def kills(group: Group) -> int:
    """OOM kills that the kernel counts in the group."""
    for place in group.directories:
        for name in ("memory.oom_control", "memory.events"):
            if (place / name).exists():
                words = (place / name).read_text().split()
                return int(words[words.index("oom_kill") + 1])
    raise AssertionError("the kernel counts no OOM kills here")
