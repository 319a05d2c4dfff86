"""One container: a command in its cgroup and network, from its start to its removal.

For: starting the command inside, reading its counters, and ending it. Not for: the time of readings, nor
their use (record/). A command is in its cgroup, and in its network, before it is executed; its child
processes stay there.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, get_args

from testbed.containers.cgroup import tree
from testbed.containers.cgroup.drivers import NOTHING_USED, Group, Usage
from testbed.containers.host.identity import Identity
from testbed.containers.network import Endpoint, Traffic
from testbed.waiting import until
from twinbed import BackendError, ScenarioError

TERMINATION_GRACE_S = 5.0
"""Time from SIGTERM to SIGKILL for commands that are stopped, s."""

RuntimeName = Literal["process", "oci"]
"""How a command runs: as a process of this machine in a cgroup of its own, or as an OCI container under runc.
"""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One command to run.

    name: letters, digits, - and _.
    command: program and arguments.
    app: its application; None: the recording's.
    env: variables in addition to the inherited ones.
    cpu_quota_cores, memory_limit_bytes: limits for a whole recording; None: no limit.
    directory: its working directory; None: this process's.
    runtime: see RuntimeName.

    Raises ScenarioError naming the container and the value.
    """

    name: str
    command: tuple[str, ...]
    app: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cpu_quota_cores: float | None = None
    memory_limit_bytes: int | None = None
    directory: Path | None = None
    runtime: RuntimeName = "process"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ScenarioError(
                f"container name {self.name!r}: expected letters, digits, - and _ (at most 63)"
            )
        if not self.command or not self.command[0]:
            raise ScenarioError(f"container {self.name}: no command to run")
        if self.runtime not in get_args(RuntimeName):
            known = " or ".join(get_args(RuntimeName))
            raise ScenarioError(f"container {self.name}: runtime {self.runtime!r}: expected {known}")
        for key, value in (
            ("cpu_quota_cores", self.cpu_quota_cores),
            ("memory_limit_bytes", self.memory_limit_bytes),
        ):
            if value is not None and not value > 0:
                raise ScenarioError(f"container {self.name}: {key} is {value}, expected more than 0")


@dataclass(slots=True)
class Container:
    """A container with its command.

    endpoint: its own network; None: the host's.
    identity: the user of its command and the environment that `spec.env` is added to; None: this process's
        own.
    exit_code: None until `note_end`.
    outlived: number of processes left in the group when its command ended.
    usage: the counters at the last reading.
    """

    spec: ContainerSpec
    group: Group
    endpoint: Endpoint | None
    identity: Identity | None = None
    process: subprocess.Popen[bytes] | None = None
    exit_code: int | None = None
    outlived: int = 0
    usage: Usage = NOTHING_USED

    @property
    def running(self) -> bool:
        """Whether the command was started and its end was not noted yet."""
        return self.process is not None and self.exit_code is None

    @property
    def address(self) -> str:
        """The address at which other containers reach it."""
        return "127.0.0.1" if self.endpoint is None else self.endpoint.address

    def start(
        self, peers: Sequence[Container], logs: Path | None, stdout: int | None, *, lasting: bool = False
    ) -> None:
        """Start the command inside. peers: all containers of the run; logs, stdout: see recorder.record.

        A restart appends to the log. lasting: whether the command outlives this process: it then has its own
        session, no terminal and no pipe, and its log continues that of the former process; without `logs` its
        output is discarded. Raises ScenarioError where the command cannot be executed, BackendError where the
        kernel does not let it in or the log cannot be written.
        """
        with ExitStack() as files:
            log: BinaryIO | int | None = subprocess.DEVNULL if lasting else None
            if logs is not None:
                again = lasting or self.process is not None
                with self.identity.acting() if self.identity else nullcontext():
                    log = files.enter_context(_open_log(logs, self.spec.name, "ab" if again else "wb"))
            inherited = self.identity.environment if self.identity else os.environ
            environment = {**inherited, **_addresses(self, peers), **self.spec.env}
            try:
                # Python calls preexec_fn unsafe because locks of other threads stay locked after a
                # fork; `enter` takes none.
                self.process = subprocess.Popen(
                    self.command_line(environment),
                    cwd=self.spec.directory,
                    env=environment,
                    stdin=None if len(peers) == 1 and not lasting else subprocess.DEVNULL,
                    stdout=stdout if log is None else log,
                    stderr=log,
                    start_new_session=lasting,
                    preexec_fn=self.entrance,
                )
            except OSError as error:
                who = f" by user {self.identity.name}" if self.identity else ""
                problem = (
                    f"{error.filename or self.spec.command[0]}: cannot be executed{who} ({error.strerror})"
                )
                raise ScenarioError(f"container {self.spec.name}: {problem}") from error
            except subprocess.SubprocessError as error:
                raise BackendError(
                    f"container {self.spec.name}: the command was not let into its cgroup or network, or "
                    "could not become its user; run as root and not inside a restricted container"
                ) from error
            self.exit_code = None

    def command_line(self, _environment: Mapping[str, str]) -> Sequence[str | Path]:
        """Return the command to execute in that environment."""
        return self.spec.command

    def poll(self) -> int | None:
        """Return how the command ended, negative for a signal; None while it runs or is not started."""
        return None if self.process is None else self.process.poll()

    def end_at_once(self) -> None:
        """Kill the command and wait until it has ended. The removal of its group names a process that does
        not die."""
        if self.process is not None:
            self.process.kill()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(tree.REMOVAL_TIMEOUT_S)

    def tidy(self) -> None:
        """Remove all leftovers of the command's end except the group. Idempotent."""

    @property
    def entrance(self) -> Callable[[], None] | None:
        """Function that runs between fork and exec to enter the container; None: the command enters by
        itself."""
        return self._enter

    def _enter(self) -> None:
        """Enter the group and the network, then become the user. It only makes system calls, on files that
        were opened before."""
        self.group.enter()
        if self.endpoint is not None:
            self.endpoint.enter()
        if self.identity is not None:
            self.identity.become()

    def read(self) -> tuple[Usage, Traffic]:
        """Return the counters and the traffic now, and keep the usage. The traffic is 0 in the host's
        network."""
        self.usage = self.group.read()
        return self.usage, Traffic(0, 0) if self.endpoint is None else self.endpoint.read()

    def note_end(self, code: int | None) -> None:
        """Record the end of the command, and end the processes that it left, as a container's init would."""
        self.exit_code = code
        self.outlived = len(self.group.pids())
        self.group.send(signal.SIGKILL)
        self.tidy()


def stop(containers: Sequence[Container], hurry: Callable[[], bool]) -> None:
    """End the running commands: SIGTERM, then SIGKILL after the grace time or once `hurry` is True."""
    left = [container for container in containers if container.running]
    for container in left:
        container.group.send(signal.SIGTERM)
    until(lambda: hurry() or not any(map(_is_up, left)), TERMINATION_GRACE_S)
    for container in left:
        container.group.send(signal.SIGKILL)
    # The removal of a group names the process that does not die.
    deadline = time.monotonic() + tree.REMOVAL_TIMEOUT_S
    while any(_is_up(container) for container in left) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        for container in left:
            # This ends a process that had not entered the cgroup when the others were killed, or that left
            # the cgroup.
            container.group.send(signal.SIGKILL)
            if container.process is not None and not container.group.pids():
                container.process.kill()
    for container in left:
        container.tidy()


def remove_all(containers: Sequence[Container]) -> None:
    """Kill the commands at once, and remove their groups. A group that cannot be removed does not keep the
    others. Raises BackendError for it."""
    for container in containers:
        container.group.send(signal.SIGKILL)
    with ExitStack() as ends:
        for container in containers:
            ends.callback(container.group.remove)
            ends.callback(container.end_at_once)


def last_words(logs: Path, name: str = "*") -> str:
    """Return the last line of the first log in a folder that has any. name: of the container."""
    for log in sorted(logs.glob(f"{name}.log")):
        if lines := log.read_text(errors="replace").strip().splitlines():
            return lines[-1]
    return "it printed nothing"


def _is_up(container: Container) -> bool:
    ended = container.process is None or container.process.poll() is not None
    return not ended or bool(container.group.pids())


def _addresses(container: Container, peers: Sequence[Container]) -> dict[str, str]:
    named = {f"TWINBED_ADDRESS_{peer.spec.name.upper().replace('-', '_')}": peer.address for peer in peers}
    return {"TWINBED_ADDRESS": container.address, **named}


def _open_log(folder: Path, name: str, mode: Literal["wb", "ab"]) -> BinaryIO:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / f"{name}.log").open(mode)
    except OSError as error:
        raise BackendError(
            f"{error.filename}: the log cannot be written ({error.strerror}); choose another folder"
        ) from error
