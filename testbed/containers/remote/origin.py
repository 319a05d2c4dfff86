"""Origins of an agent's containers: commands of its deployment, cgroups to attach to, watched directories and
names.

For: comparing and finding an agent's containers again, and cgroups of other systems (Docker, Kubernetes). Not
for: the containers themselves (host/hosted.py), nor attaching to a cgroup (cgroup/attached.py).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from testbed.containers.attach.finding import Found
from testbed.containers.attach.names import is_name
from testbed.containers.host.container import ContainerSpec, RuntimeName
from testbed.containers.ports import GroupGoneError
from testbed.containers.remote.messages_pb2 import Wanted
from twinbed import TwinbedError

_log = logging.getLogger("twinbed.agent")
_Present = tuple[str, Mapping[str, str], str]
"""Last part of a container's name, its paths as in Origin.attach, and a text for each incarnation."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of one container.

    name: its name in the deployment. command, environment: empty for an attached cgroup. attach: controller →
    path of the cgroup; the key "" stands for all controllers. watch: number of the watch that found it, from
    1; 0: the deployment itself. runtime: runtime of a command, see ContainerSpec.
    """

    name: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    attach: Mapping[str, str] = field(default_factory=dict)
    watch: int = 0
    runtime: RuntimeName = "process"

    @classmethod
    def of(cls, wanted: Wanted) -> Origin:
        """Return the origin of a container that the controller wants."""
        return cls(
            wanted.name,
            tuple(wanted.command),
            dict(wanted.environment),
            dict(wanted.attach),
            # `spec` checks the command together with the name, because both came over the network.
            runtime=wanted.runtime or "process",  # type: ignore[arg-type]
        )

    @property
    def spec(self) -> ContainerSpec | None:
        """The command; None: an attached cgroup. Raises ScenarioError if name or command is bad."""
        if not self.command:
            return None
        return ContainerSpec(self.name, self.command, env=self.environment, runtime=self.runtime)


class Watcher:
    """Finds cgroups that appear and disappear. A look takes one listing per watched directory or name.

    root: directory below which watched parents are, such as the mount point of a hierarchy. find: function
    that returns the containers that a name means. A container with another incarnation under the same name
    has disappeared and appeared. While an engine does not answer, and while a directory cannot be
    listed, its containers count as unchanged.
    """

    interval_s = 1.0

    def __init__(self, root: Path, find: Callable[[str], Sequence[Found]] = lambda _name: ()) -> None:
        self._root, self._find = root, find
        self._watches: list[tuple[str, str]] = []
        self._known: dict[str, tuple[Origin, str]] = {}
        self._said: dict[str, str] = {}

    def begin(self, watches: Sequence[tuple[str, str]], former: Iterable[Origin] = ()) -> list[Origin]:
        """Watch these (parent, pattern) from now on. Returns the containers that exist now.

        former: containers of the former agent. They count while an engine does not answer.
        """
        self._watches = list(watches)
        self._known = {origin.name: (origin, "") for origin in former if origin.watch} | self._known
        self._known = self._there()
        return [origin for origin, _ in self._known.values()]

    def look(self) -> tuple[list[Origin], set[str]]:
        """Return containers that appeared since the last call, and names of those that disappeared."""
        present = self._there()
        appeared = [origin for name, (origin, key) in present.items() if self._key(name) != key]
        vanished = {name for name, (_, key) in self._known.items() if present.get(name, (None, ""))[1] != key}
        self._known = present
        return appeared, vanished

    def _key(self, name: str) -> str | None:
        return self._known[name][1] if name in self._known else None

    def _there(self) -> dict[str, tuple[Origin, str]]:
        origins: dict[str, tuple[Origin, str]] = {}
        for number, (parent, pattern) in enumerate(self._watches, 1):
            present = self._named(parent) if is_name(parent) else self._below(parent, pattern)
            if present is None:
                origins |= {name: known for name, known in self._known.items() if known[0].watch == number}
                continue
            for last, paths, key in present:
                name = f"{number}:{last}"
                origins[name] = Origin(name, attach=paths, watch=number), key
        return dict(sorted(origins.items()))

    def _below(self, parent: str, pattern: str) -> list[_Present] | None:
        """Return the containers below a directory; None, with the reason in the log, if it cannot be listed
        now."""
        said = ""
        present: list[_Present] | None = None
        try:
            with os.scandir(self._root / parent.strip("/")) as entries:
                present = [
                    (entry.name, {"": f"{parent.rstrip('/')}/{entry.name}"}, str(entry.inode()))
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False) and fnmatchcase(entry.name, pattern)
                ]
        except (FileNotFoundError, NotADirectoryError):
            present = []
        except OSError as error:
            said = f"{parent}: cannot be listed ({error.strerror}); its containers count as unchanged"
        self._say(parent, said)
        return present

    def _named(self, name: str) -> list[_Present] | None:
        """Return the containers of a name; None if they cannot be determined now. If there are none, log the
        reason."""
        said, present = "", None
        try:
            present = [(found.name, found.paths, found.incarnation) for found in self._find(name)]
        except GroupGoneError as error:
            said, present = str(error), []
        except TwinbedError as error:
            said = str(error)
        self._say(name, said)
        return present

    def _say(self, watched: str, said: str) -> None:
        """Log why there is nothing to see, once per reason."""
        if said and said != self._said.get(watched):
            _log.warning("%s", said)
        self._said[watched] = said
