"""One container under the control loop: started, watched, killed, started again, ended.

For: the life of one container whose limits change: a command of ours in its cgroup, or a cgroup that
something else filled (attached), which is limited and never ended. Not for: when any of this happens
(loop.py) nor for limits (decisions.py). A command that fails is started again as a kubelet would: at
once, then after longer and longer waits.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from testbed.containers.cgroup import attached
from testbed.containers.cgroup.drivers import NO_LIMIT_BYTES, Group
from testbed.containers.cgroup.meter import OomKills
from testbed.containers.host.container import TERMINATION_GRACE_S, Container, ContainerSpec
from testbed.containers.host.runtimes import Entering
from testbed.containers.ports import GroupGoneError, Trap
from twinbed import ScenarioError

BACKOFF_FIRST_S = 1.0
BACKOFF_MOST_S = 30.0
"""From the second restart on; a kubelet waits 10 s to 300 s, too long for runs of minutes."""

BACKOFF_RESET_S = 30.0
"""A command that ran this long has not failed at its start: the next restart is at once again."""

NS = 1_000_000_000


class Status(IntEnum):
    """ABSENT: not there yet, or gone for good; STARTING: its command runs and is not ready; UP; HELD: its
    tasks wait at the memory limit; DOWN: killed, waits for its next start."""

    ABSENT = 0
    STARTING = 1
    UP = 2
    HELD = 3
    DOWN = 4


@dataclass(frozen=True, slots=True)
class Attached:
    """A container that somebody else runs. name: as in ContainerSpec; attach: opens its group.

    attach raises GroupGoneError while it is not there; it is asked again every second.
    """

    name: str
    attach: Callable[[], Group]


@dataclass(frozen=True, slots=True)
class Managed:
    """A container that the control loop is to run. spec: what it is (limits in it do not count);
    app: index into the run's applications; peak_cores, peak_bytes: profiled maxima, None = not profiled;
    ready: polled until True before the run's time line begins, and after a restart before it counts as up;
    begins_s, ends_s: when on the time line it joins and leaves, None = when its command ends for good.
    """

    spec: ContainerSpec | Attached
    app: int = 0
    peak_cores: float | None = None
    peak_bytes: int | None = None
    ready: Callable[[], bool] | None = None
    begins_s: float = 0.0
    ends_s: float | None = None

    def __post_init__(self) -> None:
        if not self.begins_s >= 0 or (self.ends_s is not None and not self.ends_s > self.begins_s):
            raise ScenarioError(
                f"container {self.spec.name}: present from {self.begins_s} to {self.ends_s} s, expected "
                "0 ≤ begins_s < ends_s"
            )


class Supervised:
    """A managed container's state.

    group: None while an attached one is not there; trap: None where none is armed; exit_code: of the last
    start, negative for a signal; starts_ns: when a container that is DOWN is to be started; down_ns: since
    when it is not up; kill_ns: when a command that was asked to end has had its time; resumes: what a held
    one is again when its tasks go on; leaving: it is being ended for good; deliberate: it is being restarted
    for new limits, which is no failure of its command.
    """

    def __init__(self, managed: Managed, index: int, group: Group | None) -> None:
        self.managed, self.index, self.group = managed, index, group
        self.status = self.resumes = Status.ABSENT
        self.trap: Trap | None = None
        self.pidfd = -1
        self.exit_code: int | None = None
        self.starts_ns: int | None = None
        self.down_ns: int | None = None
        self.kill_ns: int | None = None
        self.leaving = self.deliberate = False
        self._kills: OomKills | None = None
        self.container: Container | None = None
        self._started_ns = 0
        self._failures = 0
        self._starts = 0
        self._found = (math.inf, NO_LIMIT_BYTES)

    @property
    def name(self) -> str:
        """The container's."""
        return self.managed.spec.name

    @property
    def attached(self) -> bool:
        """Somebody else runs it."""
        return isinstance(self.managed.spec, Attached)

    def attach(self) -> bool:
        """Opens an attached container's group; False while it is not there."""
        if isinstance(self.managed.spec, Attached):
            if self.group is not None:
                self.group.close()
            try:
                self.group = self.managed.spec.attach()
            except GroupGoneError:
                return False
            self._found = self.group.quota_cores, self.group.limit_bytes
        return True

    def detach(self) -> None:
        """Gives an attached container the limits back that it had, and closes its files."""
        if isinstance(self.group, attached.Attached):
            self.group.restore()
        elif self.attached and self.group is not None:
            if self.status is not Status.ABSENT:
                with suppress(GroupGoneError):
                    self.group.set_cpu_quota(self._found[0])
                    self.group.set_memory_limit(self._found[1])
            self.group.close()

    def start(self, peers: Sequence[Supervised], logs: Path | None, now_ns: int) -> None:
        """Starts the command (an attached container needs no start). Raises as Container.start does."""
        self.starts_ns, self._started_ns = None, now_ns
        if not isinstance(self.managed.spec, ContainerSpec) or self.group is None:
            return
        if logs is not None and self._starts:
            with suppress(FileNotFoundError):
                (logs / f"{self.name}.log").rename(logs / f"{self.name}.{self._starts}.log")
        self.container = Entering(self.managed.spec, self.group)
        known = [each.container for each in peers if each.container is not None]
        self.container.start(known, logs, None)
        self._starts += 1
        self.exit_code = None
        assert self.container.process is not None
        self.pidfd = os.pidfd_open(self.container.process.pid)

    def watch_kills(self) -> None:
        """Counts the OOM killer's victims from here on."""
        if self.group is not None:
            self._kills = OomKills(self.group.directories)

    def was_oom_killed(self) -> bool:
        """Whether the OOM killer ended a process of it since it was last asked. Raises GroupGoneError."""
        return self._kills is not None and self._kills.grew()

    def is_ready(self) -> bool:
        """Whether it has started up."""
        return self.managed.ready is None or self.managed.ready()

    def terminate(self, now_ns: int) -> None:
        """Asks the command to end; kill_ns: when its time for that is over."""
        self.kill_ns = now_ns + round(TERMINATION_GRACE_S * NS)
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Ends everything inside at once; what somebody else runs is left to the kernel's OOM killer."""
        self.kill_ns = None
        if self.attached:
            if self.trap is not None:
                self.trap.surrender()
        else:
            self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.group is None:
            return
        # The command itself may not be inside yet.
        with suppress(ProcessLookupError):
            if self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, number)
        self.group.send(number)

    def reap(self) -> int | None:
        """How the command ended; None while it runs. What it left behind is ended with it."""
        code = None if self.container is None else self.container.poll()
        if code is None or self.container is None:
            return None
        self.close_pidfd()
        self.kill_ns = None
        self.exit_code = code
        with suppress(GroupGoneError):
            self.container.note_end(code)
        return code

    def plan_restart(self, now_ns: int) -> None:
        """DOWN until its next start: now, or later when it has failed before and soon."""
        if self.deliberate or now_ns - self._started_ns >= BACKOFF_RESET_S * NS:
            self._failures = 0
        wait_s = 0.0
        if self._failures:
            wait_s = min(BACKOFF_FIRST_S * 2.0 ** (self._failures - 1), BACKOFF_MOST_S)
        self._failures += not self.deliberate
        self.deliberate = False
        self.status = Status.DOWN
        self.starts_ns = now_ns + round(wait_s * NS)

    def close_pidfd(self) -> None:
        """Idempotent."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def let_go(self) -> None:
        """Its tasks are the kernel's to kill again, and nobody watches. Idempotent."""
        if self._kills is not None:
            self._kills.close()
            self._kills = None
        if self.trap is not None:
            with suppress(GroupGoneError):
                self.trap.close()
            self.trap = None
