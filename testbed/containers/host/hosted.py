"""One container on this machine: its cgroup, its command if that is ours, its trap and its limits in force.

For: starting, signalling and reaping one command, and opening what watches one cgroup. Not for: the times of
these actions, nor the choice of limits (executor.py). A command may outlive the process that started it: the
next agent adopts it by its cgroup, and sees its end when that cgroup is empty.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from testbed.containers.cgroup.meter import OomKills
from testbed.containers.host.container import TERMINATION_GRACE_S, Container, ContainerSpec
from testbed.containers.host.identity import Identity
from testbed.containers.host.life import ASLEEP, NEVER_NS, NS, RUNNING, Event, Life, State
from testbed.containers.host.runtimes import Entering
from testbed.containers.ports import GroupGoneError, HostGroup, Trap
from twinbed import BackendError

_READY_POLL_NS = 20_000_000


class HostedContainer:
    """A container whose limits change while it runs.

    name: name, unique on this machine's side of the run.
    spec: the command; None for a cgroup of another system (attached), which is limited and never ended.
    group: its cgroup; None while an attached cgroup does not exist.
    app: index of its application. index: its position among the containers of a local run.
    ready: polled after a start until it returns True; None: ready at once.
    adopted: its command already runs, with limits. identity: see Entering.
    id: the allocator's id, None before it has one and after it left.
    quota_cores, limit_bytes: limits of the allocator in force, 0 before the first.
    wanted_bytes: a lower memory limit that the kernel could not set yet. trap: None if none is armed.
    exit_code: of the last start, negative for a signal. starts_ns: time at which the command restarts.
    kill_ns: time at which a command that was told to end is killed. down_ns: time since which it is not up.
    leaving: it is being ended finally. Times are CLOCK_MONOTONIC.
    """

    def __init__(
        self,
        name: str,
        spec: ContainerSpec | None,
        group: HostGroup | None,
        *,
        app: int = 0,
        index: int = 0,
        ready: Callable[[], bool] | None = None,
        adopted: bool = False,
        identity: Identity | None = None,
    ) -> None:
        self.name, self.spec, self.group, self.app, self.index = name, spec, group, app, index
        self.life = Life(State.UP if adopted else State.ABSENT)
        self.id: int | None = None
        self.quota_cores, self.limit_bytes, self.request_cores = 0.0, 0, math.nan
        if adopted and group is not None:
            self.quota_cores, self.limit_bytes = group.quota_cores, group.limit_bytes
        self.wanted_bytes: int | None = None
        self.trap: Trap | None = None
        self.pidfd = -1
        self.exit_code: int | None = None
        self.starts_ns = self.kill_ns = NEVER_NS
        self.down_ns: int | None = None
        self.leaving = False
        self.command: Container | None = None
        self._ready = ready
        self._oom_kills: OomKills | None = None
        if spec is not None and group is not None:
            self.command = Entering(spec, group, identity=identity)

    @property
    def state(self) -> State:
        """The container's state (life.py)."""
        return self.life.state

    @property
    def attached(self) -> bool:
        """Whether another system runs the container."""
        return self.spec is None

    @property
    def held(self) -> bool:
        """Whether the container's tasks are held at the memory limit."""
        return self.state in ASLEEP

    @property
    def up(self) -> bool:
        """Whether the container is present and was not killed. A held container is up, as in the twin."""
        return self.state in (State.UP, *ASLEEP)

    @property
    def limited(self) -> bool:
        """Whether an allocator has set both limits of the container."""
        return self.quota_cores > 0 and self.limit_bytes > 0

    def start(
        self, peers: Sequence[HostedContainer], logs: Path | None, now_ns: int, *, lasting: bool
    ) -> None:
        """Start the command; an attached container needs no start. The arguments are Container.start's.
        Raises ScenarioError where the command cannot be executed, BackendError where the machine refuses."""
        self.life.started_ns, self.starts_ns = now_ns, NEVER_NS
        if self.command is not None:
            known = [peer.command for peer in peers if peer.command is not None]
            self.command.start(known, logs, None, lasting=lasting)
            assert self.command.process is not None
            self.exit_code = None
            try:
                self.pidfd = os.pidfd_open(self.command.process.pid)
            except OSError as error:
                # Nobody would notice its end.
                self.send(signal.SIGKILL)
                self.command.note_end(self.command.process.wait())
                raise BackendError(
                    f"container {self.name}: its command cannot be watched ({error.strerror}); raise the "
                    "limit of open files (ulimit -n)"
                ) from error
        self.life.on(Event.START)

    def write_quota(self, cores: float) -> None:
        """Write the CPU quota. Raises GroupGoneError, and BackendError where the kernel refuses."""
        assert self.group is not None
        self.group.set_cpu_quota(cores)
        self.quota_cores = cores

    def write_request(self, cores: float) -> None:
        """Write the weight of a CPU request. Raises as write_quota does."""
        assert self.group is not None
        self.group.set_cpu_request(cores)
        self.request_cores = cores

    def write_memory(self, limit_bytes: int) -> None:
        """Write the memory limit and keep the one in force. Raises as write_quota does."""
        assert self.group is not None
        self.limit_bytes = self.group.set_memory_limit(limit_bytes)

    def keep_limits(self) -> bool:
        """Set an attached container's limits again if another system changed them; return whether it had.
        Raises as write_quota does."""
        group = self.group
        if not self.attached or group is None or not self.limited or not group.keep_limits():
            return False
        if group.limit_bytes > self.limit_bytes:
            self.wanted_bytes, self.limit_bytes = self.limit_bytes, group.limit_bytes
        return True

    def watch(self, *, traps_oom: bool) -> None:
        """Count the OOM killer's victims from now on, and arm the trap where it is wanted. Raises
        GroupGoneError, and BackendError if the kernel has no trap."""
        if self.group is not None:
            self._oom_kills = self._oom_kills or OomKills(self.group.directories)
            if traps_oom and self.trap is None:
                self.trap = self.group.trap()

    def unwatch(self) -> None:
        """Give the container's tasks back to the OOM killer and stop counting. Idempotent."""
        if self._oom_kills is not None:
            self._oom_kills.close()
            self._oom_kills = None
        trap, self.trap = self.trap, None
        if trap is not None and self.group is not None:
            with suppress(GroupGoneError):
                # An attached cgroup gets its limits back before its trap ends. Otherwise its held tasks would
                # be killed.
                (self.group.remove if self.attached else trap.close)()

    def was_oom_killed(self) -> bool:
        """Return whether the OOM killer ended a process of the container since the last call. Raises
        GroupGoneError."""
        return self._oom_kills is not None and self._oom_kills.grew()

    def is_ready(self) -> bool:
        """Return whether the container has started up."""
        return self._ready is None or self._ready()

    def due_ns(self, now_ns: int) -> int:
        """Return the time of the container's next action, ns; NEVER_NS if there is none."""
        poll_ns = now_ns + _READY_POLL_NS if self.state is State.STARTING else NEVER_NS
        return min(self.starts_ns, self.kill_ns, poll_ns)

    # --- its command -----------------------------------------------------------------------------

    def terminate(self, now_ns: int) -> None:
        """Tell the command to end. kill_ns: time at which it is killed if it still runs."""
        self.kill_ns = now_ns + round(TERMINATION_GRACE_S * NS)
        self.send(signal.SIGTERM)

    def kill(self) -> None:
        """Kill all processes of the container at once. A container that another system runs is left to the
        OOM killer."""
        self.kill_ns = NEVER_NS
        if not self.attached:
            self.send(signal.SIGKILL)
        elif self.trap is not None:
            self.trap.surrender()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the command and to everything in the cgroup."""
        if self.command is not None and self.command.process is not None:
            # The command itself may not have entered the cgroup yet.
            self.command.process.send_signal(number)
        if self.group is not None:
            self.group.send(number)

    def reap(self) -> bool:
        """Return whether the command has ended since the last call. The processes that it left are then
        ended, too. The exit code of an adopted command is unknown, because its parent received it."""
        if self.command is None:
            return False
        code = None
        if self.command.process is not None:
            code = self.command.poll()
            if code is None or not self.command.running:
                return False
        elif self.state not in (*RUNNING, State.ENDING) or (self.group is not None and self.group.pids()):
            return False
        self.close_pidfd()
        self.kill_ns, self.exit_code = NEVER_NS, code
        with suppress(GroupGoneError):
            self.command.note_end(code)
        return True

    def close_pidfd(self) -> None:
        """Close the descriptor that signals the command's end. Idempotent."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def remove(self) -> None:
        """End the command at once and remove the cgroup; an attached cgroup gets its limits back."""
        with ExitStack() as ends:
            ends.callback(self.unwatch)
            if self.group is not None:
                # This comes before the end of the trap, which would leave the held tasks to the OOM killer.
                ends.callback(self.group.remove)
            ends.callback(self.close_pidfd)
            if self.command is not None:
                ends.callback(self.command.tidy)
                # The command is ended first: a process that has not entered yet would make the cgroup again.
                self.command.end_at_once()
