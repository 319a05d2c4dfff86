"""A deployment: applications with their global limits, containers placed on agents, and watches.

For: the plain data that the controller is given. Not for: reading YAML (lab.containers.deployment).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from control.allocator.model import Application
from testbed.containers.host.container import RuntimeName


@dataclass(frozen=True, slots=True)
class Placed:
    """One container on one agent: a command to run, or an existing cgroup to attach to.

    app: index of its application.
    attach: controller → path below the cgroup mount; the key "" stands for all controllers. Empty: the
    command is run.
    peak_cores, peak_bytes: profiled maxima; None: unknown.
    runtime: runtime of a command, see ContainerSpec.
    """

    name: str
    agent: str
    app: int
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    attach: Mapping[str, str] = field(default_factory=dict)
    peak_cores: float | None = None
    peak_bytes: int | None = None
    runtime: RuntimeName = "process"


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch: cgroups that appear below `parent` on an agent, with a name like `pattern` (fnmatch), join
    application `app`. `parent` is a path, or a name (attach.names), whose containers then join. peak_cores,
    peak_bytes: profiled maxima of each container; None: unknown."""

    agent: str
    app: int
    parent: str
    pattern: str
    peak_cores: float | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """The applications, containers and watches of one controller."""

    applications: tuple[Application, ...]
    containers: tuple[Placed, ...]
    watches: tuple[Watch, ...] = ()

    # These values are read for each agent and container, so they are stored in dictionaries.
    _placed: Mapping[str, dict[str, Placed]] = field(init=False, repr=False, compare=False)
    _watched: Mapping[str, Sequence[Watch]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        placed: dict[str, dict[str, Placed]] = {}
        watched: dict[str, list[Watch]] = {}
        for container in self.containers:
            placed.setdefault(container.agent, {})[container.name] = container
        for watch in self.watches:
            watched.setdefault(watch.agent, []).append(watch)
        object.__setattr__(self, "_placed", placed)
        object.__setattr__(self, "_watched", watched)

    @property
    def agents(self) -> set[str]:
        """Names of the agents on which anything is placed."""
        return self._placed.keys() | self._watched.keys()

    def containers_of(self, agent: str) -> Mapping[str, Placed]:
        """Return an agent's containers by name."""
        return self._placed.get(agent, {})

    def watches_of(self, agent: str) -> Sequence[Watch]:
        """Return an agent's watches, in order."""
        return self._watched.get(agent, ())
