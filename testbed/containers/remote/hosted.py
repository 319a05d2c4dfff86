"""One container on an agent's host: a command of ours in its cgroup, or an attached cgroup.

For: starting the command, starting it again when it fails, ending it, and its limits. Not for: which
containers there are (hosting.py). A command belongs to no terminal and no pipe of the agent's, so that it
outlives the agent; one that comes back finds it by its cgroup, and sees its end in that the cgroup is empty.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from testbed.containers.host.container import TERMINATION_GRACE_S, ContainerSpec, RuntimeName
from testbed.containers.host.runtimes import Runtime, runtime_of
from testbed.containers.host.supervised import BACKOFF_FIRST_S, BACKOFF_MOST_S, BACKOFF_RESET_S
from testbed.containers.ports import GroupGoneError, LimitedGroup, Trap
from testbed.containers.remote.messages_pb2 import Wanted
from twinbed import BackendError, ScenarioError


class HostGroup(LimitedGroup, Protocol):
    """A group with the processes in it (cgroup.group.Group is one)."""

    directories: tuple[Path, ...]

    def pids(self) -> set[int]:
        """Live processes inside."""

    def send(self, number: signal.Signals) -> None:
        """A signal to each of them."""

    def remove(self) -> None:
        """Kills what is inside and removes it; an attached one is let go with the limits it had."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a container comes from: a command, or a cgroup to attach to (path by controller, or under "" one
    for all).

    watch: the one that found it, counted from 1; 0 = it is of the deployment itself; runtime: what a command
    is run as, as in ContainerSpec.
    """

    name: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    attach: Mapping[str, str] = field(default_factory=dict)
    watch: int = 0
    runtime: RuntimeName = "process"

    @classmethod
    def of(cls, wanted: Wanted) -> Origin:
        """As the controller asks for it."""
        return cls(
            wanted.name,
            tuple(wanted.command),
            dict(wanted.environment),
            dict(wanted.attach),
            # Checked with the name: it came over the network, too.
            runtime=wanted.runtime or "process",  # type: ignore[arg-type]
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. final: it is not started again; killed: somebody killed it, not us."""

    reason: str
    final: bool
    killed: bool


class Hosted:
    """A container. id: None until the controller gave one; held: its tasks were held when last looked at.

    Raises ScenarioError for a name or command that cannot be.
    """

    def __init__(self, origin: Origin, group: HostGroup, logs: Path | None, *, running: bool) -> None:
        self._runtime: Runtime | None = None
        if origin.command:
            # Checks the name: it came over the network.
            spec = ContainerSpec(origin.name, origin.command, runtime=origin.runtime)
            self._runtime = runtime_of(spec, group)
        self.origin = origin
        self.group = group
        self.running = running
        self.id: int | None = None
        self.app = 0
        self.trap: Trap | None = None
        self.held = False
        self._logs = logs
        self._limited = [running and bool(origin.command), running and bool(origin.command)]
        self._process: subprocess.Popen[bytes] | None = None
        self._ours_to_kill = False
        self._kill_s: float | None = None
        self._started_s = 0.0
        self._starts_s: float | None = None
        self._failures = 0

    @property
    def name(self) -> str:
        """As the deployment has it."""
        return self.origin.name

    @property
    def limited(self) -> bool:
        """It has a CPU limit and a memory limit from a controller."""
        return all(self._limited)

    def set_cpu_quota(self, cores: float) -> None:
        """See LimitedGroup."""
        self.group.set_cpu_quota(cores)
        self._limited[0] = True

    def set_memory_limit(self, limit_bytes: int) -> int:
        """See LimitedGroup."""
        actual = self.group.set_memory_limit(limit_bytes)
        self._limited[1] = True
        return actual

    def arm(self) -> None:
        """From here on its tasks are held at the memory limit."""
        self.trap = self.group.trap()

    def start(self) -> None:
        """Starts the command, once. Raises ScenarioError when it cannot be executed, BackendError."""
        if self.running or self._starts_s is not None or self._runtime is None:
            return
        environment = {**os.environ, **self.origin.environment}
        try:
            with self._output() as output:
                # gRPC has threads, so a preexec_fn would not be safe.
                self._process = subprocess.Popen(
                    self._runtime.command_line(environment),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as error:
            what = f"{error.filename or self.origin.command[0]}: cannot be executed ({error.strerror})"
            raise ScenarioError(f"container {self.name}: {what}") from error
        self.running, self._started_s, self._ours_to_kill = True, time.monotonic(), False

    def restart(self) -> None:
        """Asks the command to end, and ends it after the grace; it is started again when it is gone. What is
        held could not end by itself; what is attached goes on as it is."""
        if not self.origin.command:
            return
        self._ours_to_kill = True
        if self.held:
            self.group.send(signal.SIGKILL)
        else:
            self._kill_s = time.monotonic() + TERMINATION_GRACE_S
            self.group.send(signal.SIGTERM)

    def surrender(self) -> None:
        """Leaves it to the OOM killer, which ends the command; it is then started again."""
        if self.trap is not None:
            self._ours_to_kill = True
            self.trap.surrender()

    def poll(self, now_s: float) -> Ended | None:
        """Notes the command's end and starts it again when that is due; how it ended, once."""
        if self._starts_s is not None and now_s >= self._starts_s:
            self._starts_s = None
            self.start()
            return None
        if not self.running or self._runtime is None:
            if self._runtime is None:
                self.group.charged_bytes()  # raises GroupGoneError once it is gone
            return None
        if self._kill_s is not None and now_s >= self._kill_s:
            self._kill_s = None
            self.group.send(signal.SIGKILL)
        code = None
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return None
            code = self._runtime.exit_code(code)
        elif self.group.pids():
            return None
        self.group.send(signal.SIGKILL)
        self._runtime.tidy()
        self.running, self._process, self._kill_s = False, None, None
        if code == 0 and not self._ours_to_kill:
            return Ended("its command ended", final=True, killed=False)
        self._plan_restart(now_s)
        by_others = code == -signal.SIGKILL and not self._ours_to_kill
        # How an adopted one ended only its parent was told, which is gone: it counts as having failed.
        how = "ended" if code is None else f"ended with {code}"
        return Ended(f"its command {how}", final=False, killed=by_others)

    def terminate(self) -> None:
        """Asks the command to end."""
        if self.origin.command:
            with suppress(GroupGoneError):
                self.group.send(signal.SIGTERM)

    def lingers(self) -> bool:
        """Whether it has been asked to end and may still do so; what is held cannot."""
        return bool(self.origin.command) and not self.held and bool(self.group.pids())

    def end(self) -> None:
        """Ends a command of ours at once, and removes its group; an attached one gets its limits back."""
        if self._process is not None:
            # First: what has not got inside yet would make the group anew.
            self._process.kill()
            self._process.wait()
        if self._runtime is not None:
            self._runtime.tidy()
        self.group.remove()

    def _plan_restart(self, now_s: float) -> None:
        if self._ours_to_kill or now_s - self._started_s >= BACKOFF_RESET_S:
            self._failures = 0
        wait_s = min(BACKOFF_FIRST_S * 2.0 ** (self._failures - 1), BACKOFF_MOST_S) if self._failures else 0.0
        self._failures += 1
        self._starts_s = now_s + wait_s

    def _output(self) -> BinaryIO:
        if self._logs is None:
            return Path(os.devnull).open("ab")
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            return (self._logs / f"{self.name}.log").open("ab")
        except OSError as error:
            raise BackendError(
                f"{error.filename}: cannot be written ({error.strerror}); choose other --logs"
            ) from error
