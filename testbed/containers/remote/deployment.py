"""What is to run where: applications with their global limits, containers placed on agents, and watches.

For: the plain data that the controller is given. Not for: reading YAML (lab.containers.deployment).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from control.allocator.model import Application
from testbed.containers.host.container import RuntimeName


@dataclass(frozen=True, slots=True)
class Placed:
    """One container on one agent: a command to run, or an existing cgroup to attach to.

    app: index of its application; attach: path below the cgroup mount by controller, or under "" one for all,
    empty = run the command; peak_cores, peak_bytes: profiled maxima, None = unknown; runtime: what a command
    is run as, see ContainerSpec.
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
    """Cgroups that appear below `parent` on an agent, with a name like `pattern` (fnmatch), join application
    `app`."""

    agent: str
    app: int
    parent: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything that one controller looks after."""

    applications: tuple[Application, ...]
    containers: tuple[Placed, ...]
    watches: tuple[Watch, ...] = ()

    @property
    def agents(self) -> set[str]:
        """Names of the agents on which anything is placed."""
        return {placed.agent for placed in self.containers} | {placed.agent for placed in self.watches}

    def containers_of(self, agent: str) -> dict[str, Placed]:
        """Return an agent's containers by name."""
        return {placed.name: placed for placed in self.containers if placed.agent == agent}

    def watches_of(self, agent: str) -> list[Watch]:
        """Return an agent's watches, in order."""
        return [watch for watch in self.watches if watch.agent == agent]
