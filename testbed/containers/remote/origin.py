"""Where an agent's containers come from: commands of its deployment, cgroups to attach to, watched
directories.

For: what an agent notes, compares and finds again, and cgroups that something else makes (Docker,
Kubernetes). Not for: the containers themselves (host/hosted.py), nor attaching to a cgroup
(cgroup/attached.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from testbed.containers.host.container import ContainerSpec, RuntimeName
from testbed.containers.remote.messages_pb2 import Wanted


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of one container. name: as in the deployment; command, environment: empty for an attached
    cgroup; attach: path by controller, or under "" one for all; watch: the watch that found it, counted from
    1, 0 = the deployment itself; runtime: what a command is run as, see ContainerSpec."""

    name: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    attach: Mapping[str, str] = field(default_factory=dict)
    watch: int = 0
    runtime: RuntimeName = "process"

    @classmethod
    def of(cls, wanted: Wanted) -> Origin:
        """Return the origin that the controller asks for."""
        return cls(
            wanted.name,
            tuple(wanted.command),
            dict(wanted.environment),
            dict(wanted.attach),
            # Checked with the name by `spec`: it came over the network, too.
            runtime=wanted.runtime or "process",  # type: ignore[arg-type]
        )

    @property
    def spec(self) -> ContainerSpec | None:
        """The command, None for an attached cgroup. Raises ScenarioError for a name or command that cannot
        be."""
        if not self.command:
            return None
        return ContainerSpec(self.name, self.command, env=self.environment, runtime=self.runtime)


class Watcher:
    """Finds cgroups that appear and disappear: once a second, with one listing per watched directory. root:
    the directory below which watched parents are, e.g. the mount point of a hierarchy."""

    interval_s = 1.0

    def __init__(self, root: Path) -> None:
        self._root = root
        self._watches: list[tuple[str, str]] = []
        self._known: dict[str, Origin] = {}

    def begin(self, watches: Sequence[tuple[str, str]]) -> list[Origin]:
        """Watch these (parent, pattern) from now on; return what is there now."""
        self._watches = list(watches)
        self._known = self._there()
        return list(self._known.values())

    def look(self) -> tuple[list[Origin], set[str]]:
        """Return what appeared since the last look, and the names of what vanished."""
        present = self._there()
        appeared = [origin for name, origin in present.items() if name not in self._known]
        vanished = self._known.keys() - present.keys()
        self._known = present
        return appeared, vanished

    def _there(self) -> dict[str, Origin]:
        origins = {}
        for number, (parent, pattern) in enumerate(self._watches, 1):
            with suppress(OSError), os.scandir(self._root / parent.strip("/")) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False) and fnmatchcase(entry.name, pattern):
                        path = f"{parent.rstrip('/')}/{entry.name}"
                        name = f"{number}:{entry.name}"
                        origins[name] = Origin(name, attach={"": path}, watch=number)
        return dict(sorted(origins.items()))
