"""An agent's cgroups and its notes about them. Both outlive the agent.

For: making groups that the next agent of the same name finds again after kill -9, and removing leftovers of
an agent that does not return. Not for: the processes in them (hosting.py). The groups' run is a lasting one,
so that clean-ups of other runs consider it alive; the agent's lock shows whether the agent itself is alive.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.containers.attach.finding import Finder, Found
from testbed.containers.attach.names import parse
from testbed.containers.cgroup.attached import UNIFIED, attach
from testbed.containers.cgroup.files import inode
from testbed.containers.cgroup.group import Group
from testbed.containers.cgroup.v1 import V1, GroupV1
from testbed.containers.cgroup.v2 import V2, GroupV2
from testbed.containers.host import oci
from testbed.containers.ownership import LOCK, MARK, RUN_ROOT, lasting_run
from testbed.containers.ports import GroupGoneError, HostGroup
from testbed.containers.remote.certificates import write_private
from testbed.containers.remote.origin import Origin
from twinbed import BackendError, TwinbedError
from twinbed.ownership import take

STATE = Path("/run/twinbed/agents")
"""Folder of the agents' notes. A reboot empties it, as it removes cgroups."""

_NOTES = "containers.json"


class CgroupPlace:
    """The groups of the agent `name`: groups that it made, found again after a crash, or attached to. driver:
    this machine's driver. state: folder for notes. Raises BackendError while another process is the agent of
    this name."""

    def __init__(self, name: str, driver: V1 | V2, state: Path = STATE) -> None:
        self._run = lasting_run(name)
        self._driver, self._finder = driver, Finder(driver)
        self._folder = state / name
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = take(self._folder / LOCK)
        except OSError as error:
            raise BackendError(f"{self._folder}: cannot be made ({error.strerror}); run as root") from error
        if self._lock is None:
            raise BackendError(f"{self._folder / LOCK}: an agent {name!r} runs here already; stop it first")

    @property
    def root(self) -> Path:
        """Directory below which the cgroups to watch or attach to are."""
        return self._driver.base if isinstance(self._driver, V2) else self._driver.mount_of("cpu")

    def create(self, name: str) -> Group:
        """Return a new, empty group for a command. Raises BackendError."""
        return self._driver.create(self._run, name)

    def adopt(self, name: str) -> Group | None:
        """Return the group that a former agent of this name left; None if there is none."""
        base = _noted(self._folder).get("base") or _base(self._driver)
        directories = {key: Path(directory) / MARK / self._run / name for key, directory in base.items()}
        if not all(directory.is_dir() for directory in directories.values()):
            return None
        return GroupV2(directories[UNIFIED]) if UNIFIED in directories else GroupV1(directories)

    def attach(self, paths: Mapping[str, str]) -> Group:
        """Return another system's group. paths: as in Origin.attach. Raises GroupGoneError if it does not
        exist, else BackendError."""
        return attach(paths.get("") or paths, self._driver, self._run)

    def leave(self, origin: Origin) -> None:
        """End a former agent's container. Our own group is removed; another system's group gets its original
        limits back. A missing group needs nothing. Raises TwinbedError."""
        with suppress(GroupGoneError):
            group = self.adopt(origin.name) if origin.command else self.attach(origin.attach)
            if group is not None:
                group.remove()

    def find(self, name: str) -> list[Found]:
        """Return the containers that a name means (attach.names). Raises as Finder.find does."""
        return self._finder.find(parse(name))

    def incarnation(self, group: HostGroup) -> int:
        """Return a number that other groups of the same name do not have: its first directory's inode.
        Raises GroupGoneError."""
        return inode(group.directories[0])

    def remember(self, origins: Iterable[Origin]) -> None:
        """Store the present containers, for an agent that restarts. Raises BackendError."""
        notes = {"base": _base(self._driver), "containers": [asdict(origin) for origin in origins]}
        write_private(self._folder / _NOTES, json.dumps(notes).encode())

    def recall(self) -> dict[str, Origin]:
        """Return the stored containers, by name. Notes that cannot be read count as none."""
        try:
            listed: list[dict[str, Any]] = _noted(self._folder)["containers"]
            origins = [Origin(**(origin | {"command": tuple(origin["command"])})) for origin in listed]
            return {origin.name: origin for origin in origins}
        except (KeyError, TypeError):
            return {}

    def finish(self) -> None:
        """Remove the notes after everything was removed."""
        self._driver.finish(self._run)
        oci.remove_run(self._run)
        # A file that a killed agent was writing is removed, too.
        for file in self._folder.iterdir() if self._folder.is_dir() else []:
            file.unlink(missing_ok=True)
        for folder in (self._folder, self._folder.parent, RUN_ROOT):
            with suppress(OSError):
                folder.rmdir()
        self.close()

    def close(self) -> None:
        """Let another agent of this name begin; everything else stays. Idempotent."""
        if self._lock is not None:
            self._lock.release()


def agents(state: Path = STATE) -> dict[str, Path]:
    """Return run → lock file of the agents that run here or left something. A living agent holds it."""
    locks = [folder / LOCK for folder in (sorted(state.iterdir()) if state.is_dir() else [])]
    return {lasting_run(lock.parent.name): lock for lock in locks if lock.exists()}


def sweep(driver: V1 | V2, state: Path = STATE) -> list[str]:
    """End and remove what dead agents left. Returns their names, sorted.

    Raises the first error, after all else was removed. The notes of that agent stay, for the next sweep.
    """
    swept: list[str] = []
    problems: list[TwinbedError] = []
    for folder in sorted(state.iterdir()) if state.is_dir() else []:
        try:
            place = CgroupPlace(folder.name, driver, state)
        except BackendError:
            continue
        before = len(problems)
        for origin in place.recall().values():
            try:
                place.leave(origin)
            except TwinbedError as error:
                problems.append(error)
        if len(problems) == before:
            place.finish()
            swept.append(folder.name)
        place.close()
    if problems:
        raise problems[0]
    return swept


def _base(driver: V1 | V2) -> dict[str, str]:
    """Return controller → directory below which the driver makes groups. It is stored, because a later agent
    may run in another cgroup."""
    if isinstance(driver, V2):
        return {UNIFIED: str(driver.base)}
    return {key: str(directory) for key, directory in driver.base.items()}


def _noted(folder: Path) -> dict[str, Any]:
    try:
        noted = json.loads((folder / _NOTES).read_text())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}
