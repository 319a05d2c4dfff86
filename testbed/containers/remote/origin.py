"""Where a container of an agent comes from: a command of its deployment, or a cgroup to attach to.

For: what an agent notes, compares and finds again. Not for: the container itself (host/hosted.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.containers.host.container import ContainerSpec, RuntimeName
from testbed.containers.remote.messages_pb2 import Wanted


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of one container.

    name: as in the deployment; command, environment: empty for an attached cgroup; attach: path by
    controller, or under "" one for all; watch: the watch that found it, counted from 1, 0 = the deployment
    itself; runtime: what a command is run as, see ContainerSpec.
    """

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
