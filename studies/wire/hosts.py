"""Pretended containers for real agents: without a kernel group behind them, and with synthetic telemetry.

For: studies.wire.inside, so that 500 containers need no 500 processes. Not for: testing agents. Agents,
controller, gRPC, TLS, datagrams and the loopback device are real. Cgroups are not, so the measured CPU does
not include reading and writing their files.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from control.allocator.model import NO_IDS, Ids
from testbed.containers.ports import LimitedGroup, Records
from testbed.containers.remote.origin import Origin

PERIOD_NS = 100_000_000
USES_CORES = (0.05, 0.2)
"""CPU that a container uses in turn, cores: a quarter of its quota, and all of it."""

_TURN_NS = 1_000_000_000
_MEMORY_BYTES = 64 << 20
_NO_LIMIT_BYTES = 2**63 - 1
_OOM_CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"


class QuietTrap:
    """A trap in which nothing is ever held."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def held(self) -> bool:
        """Return False."""
        return False

    def surrender(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class PretendedGroup:
    """A group that keeps its limits. folder: folder with a file that shows no OOM kill."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number, self.directories = number, (folder,)
        self.quota_cores, self.limit_bytes = math.inf, _NO_LIMIT_BYTES
        self._trap: QuietTrap | None = None

    def set_cpu_quota(self, cores: float) -> None:
        """Keep the quota."""
        self.quota_cores = cores

    def set_memory_limit(self, limit_bytes: int) -> int:
        """Keep the limit, and return it."""
        self.limit_bytes = limit_bytes
        return limit_bytes

    def charged_bytes(self) -> int:
        """Return the memory that each container always holds, bytes."""
        return _MEMORY_BYTES

    def keep_limits(self) -> bool:
        """Return False: no other system changes the limits."""
        return False

    def trap(self) -> QuietTrap:
        """Return the group's trap."""
        self._trap = self._trap or QuietTrap()
        return self._trap

    def pids(self) -> set[int]:
        """Return no process."""
        return set()

    def send(self, number: signal.Signals) -> None:
        """Do nothing."""

    def remove(self) -> None:
        """Close the trap, if there is one."""
        self.close()

    def close(self) -> None:
        """Close the trap, if there is one. Idempotent."""
        if self._trap is not None:
            self._trap.close()


class PretendedPlace:
    """The groups of one agent, by name. It stores nothing for the next agent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "memory.oom_control").write_text(_OOM_CONTROL)
        self.groups: dict[str, PretendedGroup] = {}

    def create(self, name: str) -> PretendedGroup:
        """Return the group of this name."""
        return self.groups.setdefault(name, PretendedGroup(len(self.groups), self._folder))

    def attach(self, paths: Mapping[str, str]) -> PretendedGroup:
        """Return the group of this path."""
        return self.create(paths[""])

    def adopt(self, name: str) -> PretendedGroup | None:
        """Return the group of this name, if there is one."""
        return self.groups.get(name)

    def incarnation(self, group: PretendedGroup) -> int:
        """Return the group's number, which is above zero."""
        return 1 + group.number

    def remember(self, origins: Iterable[Origin]) -> None:
        """Store nothing."""

    def recall(self) -> dict[str, Origin]:
        """Return nothing."""
        return {}

    def finish(self) -> None:
        """Do nothing."""


class PretendedTelemetry:
    """`ports.TelemetrySource`: all containers report each period, and use USES_CORES in turn."""

    descriptor = -1
    lost = 0
    gone: Ids = NO_IDS

    def __init__(self) -> None:
        self._groups: dict[int, PretendedGroup] = {}
        self._due_ns = time.monotonic_ns()

    def add(self, ids: Ids, groups: Sequence[LimitedGroup]) -> None:
        """See TelemetrySource."""
        self._groups |= {
            id_: group
            for id_, group in zip(ids.tolist(), groups, strict=True)
            if isinstance(group, PretendedGroup)
        }

    def remove(self, ids: Ids) -> None:
        """See TelemetrySource."""
        for id_ in ids.tolist():
            self._groups.pop(id_, None)

    def due_ns(self) -> int:
        """See TelemetrySource."""
        return self._due_ns

    def collect(self, now_ns: int) -> Records:
        """See TelemetrySource."""
        self._due_ns = max(self._due_ns + PERIOD_NS, now_ns)
        groups = list(self._groups.values())
        turn = now_ns // _TURN_NS
        wanted = np.array([USES_CORES[(turn + group.number) % 2] for group in groups])
        quota = np.array([group.quota_cores for group in groups])
        usage = np.minimum(wanted, quota)
        return Records(
            ids=np.array(list(self._groups), np.int64),
            end_ns=np.full(len(groups), now_ns),
            quota_cores=quota,
            unused_cores=quota - usage,
            throttled=wanted > quota,
            usage_cores=usage,
            memory_bytes=np.full(len(groups), _MEMORY_BYTES),
            throttled_s=np.where(wanted > quota, 0.01, 0.0),
            idle=np.zeros(len(groups), np.bool_),
        )

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
