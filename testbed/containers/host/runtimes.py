"""How a command of ours gets into its container: as a process that enters its cgroup, or through runc.

For: the one place where the control loop, agents and the recorder find out what to execute, how the command
ended, and what is to be tidied after it. Not for: executing or watching it (container.py,
hosted.py) nor for OCI bundles (oci.py).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from testbed.containers.host.container import Container, ContainerSpec
from testbed.containers.host.oci import OciContainer, exit_code
from testbed.containers.network import Endpoint
from testbed.containers.ports import HostGroup
from twinbed import ScenarioError

_ENTER = 'while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"'


class Runtime(Protocol):
    """One container's. What `command_line` returned is executed outside the group, with the environment that
    it was given, and returns when the command in the container has ended."""

    def command_line(self, environment: Mapping[str, str]) -> Sequence[str | Path]:
        """What to execute. Raises ScenarioError where there is no such program, BackendError."""

    def exit_code(self, code: int) -> int:
        """How the command ended, negative for a signal, from how that ended which was executed."""

    def tidy(self) -> None:
        """Removes all but the group, once everything in that is ended. Idempotent."""


def runtime_of(spec: ContainerSpec, group: HostGroup, endpoint: Endpoint | None = None) -> Runtime:
    """As spec.runtime says; group: made by a driver as `twinbed/<run>/<name>`. Raises BackendError where runc
    is missing."""
    return _Runc(spec, group, endpoint) if spec.runtime == "oci" else _Process(spec, group)


class Entering(Container):
    """A container whose command gets inside by itself.

    Entering between fork and exec, as the recorder does, costs the container's quota what Python does there,
    and the loop waits for it: half a second at 2 ms per period. And it is not safe beside threads.
    """

    def __init__(self, spec: ContainerSpec, group: HostGroup, endpoint: Endpoint | None = None) -> None:
        super().__init__(spec, group, endpoint)  # type: ignore[arg-type]
        self._runtime = runtime_of(spec, group, endpoint)

    @property
    def entrance(self) -> None:
        """Without one, a process is started by vfork, which does not copy ours."""
        return

    def command_line(self, environment: Mapping[str, str]) -> Sequence[str | Path]:
        """See Runtime.command_line."""
        return self._runtime.command_line(environment)

    def poll(self) -> int | None:
        """See Container.poll."""
        code = super().poll()
        return None if code is None else self._runtime.exit_code(code)

    def tidy(self) -> None:
        """See Runtime.tidy."""
        self._runtime.tidy()


class _Process:
    """The command behind a shell that enters the cgroup and becomes it."""

    def __init__(self, spec: ContainerSpec, group: HostGroup) -> None:
        self._spec, self._group = spec, group

    def command_line(self, environment: Mapping[str, str]) -> Sequence[str | Path]:
        """See Runtime."""
        _check_program(self._spec, environment)
        return ["/bin/sh", "-c", _ENTER, "sh", *self._group.directories, "--", *self._spec.command]

    def exit_code(self, code: int) -> int:
        """See Runtime: the shell has become the command."""
        return code

    def tidy(self) -> None:
        """See Runtime: there is nothing."""


class _Runc:
    """The command as an OCI container of the same name."""

    def __init__(self, spec: ContainerSpec, group: HostGroup, endpoint: Endpoint | None) -> None:
        self._spec = spec
        run = group.directories[0].parent.name
        self._container = OciContainer(spec, group, run, endpoint=endpoint)

    def command_line(self, environment: Mapping[str, str]) -> Sequence[str | Path]:
        """See Runtime. Only the container gets the environment."""
        _check_program(self._spec, environment)
        return self._container.prepare(environment)

    def exit_code(self, code: int) -> int:
        """See Runtime."""
        return exit_code(code)

    def tidy(self) -> None:
        """See Runtime."""
        self._container.discard()


def _check_program(spec: ContainerSpec, environment: Mapping[str, str]) -> None:
    """What is executed finds it out too late, and somewhere where nobody would see it."""
    program = spec.command[0]
    if "/" in program and spec.directory is not None:
        program = str(spec.directory / program)
    if shutil.which(program, path=environment.get("PATH", os.defpath)) is None:
        raise ScenarioError(f"container {spec.name}: {spec.command[0]}: cannot be executed (no such program)")
