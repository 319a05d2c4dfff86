"""A container whose command enters its cgroup by itself: through a shell or through runc.

For: the command to execute, its exit status and its clean-up, for the control loop, agents and the recorder.
Not for: executing or watching it (container.py, hosted.py), nor for OCI bundles (oci.py).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.containers.host.container import Container, ContainerSpec
from testbed.containers.host.identity import WITHOUT_RIGHTS, Identity
from testbed.containers.host.oci import OciBundle, exit_code
from testbed.containers.network import Endpoint
from testbed.containers.ports import HostGroup
from twinbed import InvariantError, ScenarioError

_ENTER = 'while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"'
"""A shell that moves itself into the directories given before `--`, and becomes the command after it."""


class Entering(Container):
    """A container whose command enters by itself, as spec.runtime says.

    The recorder's processes enter between fork and exec. The CPU time of Python there would count against the
    container's quota, and the loop would wait half a second for it at 2 ms per period. That way is not safe
    beside threads either. group: made by a driver as `twinbed/<run>/<name>`; identity: the user of the
    command, without capabilities (None: root); without runc it must be this process's own user. The command
    loses its rights before it enters, at no cost to the container. Raises BackendError where runc is wanted
    and missing.
    """

    def __init__(
        self,
        spec: ContainerSpec,
        group: HostGroup,
        endpoint: Endpoint | None = None,
        identity: Identity | None = None,
    ) -> None:
        super().__init__(spec, group, endpoint, identity)  # type: ignore[arg-type]
        self._bundle = OciBundle(spec, group, endpoint, identity) if spec.runtime == "oci" else None

    @property
    def entrance(self) -> None:
        """None, so that the process is started by vfork, which does not copy the loop's process."""
        return

    def command_line(self, environment: Mapping[str, str]) -> Sequence[str | Path]:
        """Return the command to execute outside the group, with this environment; it ends when the
        container's command ends. Raise ScenarioError if the program does not exist (the executed shell would
        find that out too late and invisibly), BackendError."""
        spec = self.spec
        program = spec.command[0]
        if "/" in program and spec.directory is not None:
            program = str(spec.directory / program)
        if shutil.which(program, path=environment.get("PATH", os.defpath)) is None:
            raise ScenarioError(
                f"container {spec.name}: {spec.command[0]}: cannot be executed (no such program)"
            )
        if self._bundle is not None:
            return self._bundle.prepare(environment)
        inside: list[str | Path] = [
            "/bin/sh",
            "-c",
            _ENTER,
            "sh",
            *self.group.directories,
            "--",
            *spec.command,
        ]
        if self.identity is None:
            return inside
        if self.identity.uid != os.geteuid():
            raise InvariantError(f"container {spec.name}: only runc can make it user {self.identity.name}")
        return [*WITHOUT_RIGHTS, *inside]

    def poll(self) -> int | None:
        """See Container.poll."""
        code = super().poll()
        return code if code is None or self._bundle is None else exit_code(code)

    def tidy(self) -> None:
        """See Container.tidy."""
        if self._bundle is not None:
            self._bundle.discard()
