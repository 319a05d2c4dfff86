"""A host without a kernel: groups are plain objects, and their telemetry is made up."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from testbed.containers.ports import GroupGoneError, LimitedGroup, Records
from testbed.containers.remote.messages_pb2 import Order
from testbed.containers.remote.origin import Origin
from twinbed import BackendError

PERIOD_NS = 100_000_000
QUIET = Path(__file__).parent / "quiet_group"
"""A cgroup directory in which the OOM killer never acts."""


class FakeTrap:
    """`held` is set by the test; raising the limit lets go."""

    def __init__(self) -> None:
        self.is_held = False
        self.surrendered = 0
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK)

    def hold(self) -> None:
        self.is_held = True
        os.eventfd_write(self.descriptor, 1)

    def held(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)
        return self.is_held

    def surrender(self) -> None:
        self.surrendered += 1
        self.is_held = False

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class FakeGroup:
    """quotas, requests, limits: what was written, in order. gone: set it to make every access fail.
    refuses: set it to make every write of a limit fail."""

    def __init__(self, name: str, incarnation: int) -> None:
        self.name, self.incarnation = name, incarnation
        self.directories = (QUIET,)
        self.quota_cores, self.limit_bytes = math.inf, 2**63 - 1
        self.quotas: list[float] = []
        self.requests: list[float] = []
        self.limits: list[int] = []
        self.charged = 10 << 20
        self.gone = self.removed = self.refuses = False
        self.armed: FakeTrap | None = None
        self.inside: set[int] = set()
        self.signals: list[int] = []

    def _check(self) -> None:
        if self.gone:
            raise GroupGoneError(f"{self.name}: is gone")

    def _check_write(self) -> None:
        self._check()
        if self.refuses:
            raise BackendError(f"{self.name}: refused")

    def set_cpu_quota(self, cores: float) -> None:
        self._check_write()
        self.quota_cores = cores
        self.quotas.append(cores)

    def set_cpu_request(self, cores: float) -> None:
        self._check()
        self.requests.append(cores)

    def set_memory_limit(self, limit_bytes: int) -> int:
        self._check_write()
        if self.armed is not None and limit_bytes > self.limit_bytes:
            self.armed.is_held = False
        self.limit_bytes = limit_bytes
        self.limits.append(limit_bytes)
        return limit_bytes

    def charged_bytes(self) -> int:
        self._check()
        return self.charged

    def keep_limits(self) -> bool:
        self._check()
        return False

    def trap(self) -> FakeTrap:
        self.armed = self.armed or FakeTrap()
        return self.armed

    def pids(self) -> set[int]:
        return self.inside

    def send(self, number: signal.Signals) -> None:
        self.signals.append(number)

    def remove(self) -> None:
        self.removed = True
        self.close()

    def close(self) -> None:
        if self.armed is not None:
            self.armed.close()


class FakePlace:
    """Groups by name; what an agent left behind is found by the next one, as with the real place."""

    def __init__(self) -> None:
        self.groups: dict[str, FakeGroup] = {}
        self.noted: dict[str, Origin] = {}
        self.left: list[str] = []
        self._made = 0

    def create(self, name: str) -> FakeGroup:
        self._made += 1
        self.groups[name] = FakeGroup(name, 1_000 + self._made)
        return self.groups[name]

    def adopt(self, name: str) -> FakeGroup | None:
        group = self.groups.get(name)
        return None if group is None or group.removed else group

    def attach(self, paths: Mapping[str, str]) -> FakeGroup:
        return self.adopt(paths[""]) or self.create(paths[""])

    def leave(self, origin: Origin) -> None:
        self.left.append(origin.name)

    def incarnation(self, group: FakeGroup) -> int:
        group._check()
        return group.incarnation

    def remember(self, origins: Iterable[Origin]) -> None:
        self.noted = {each.name: each for each in origins}

    def recall(self) -> dict[str, Origin]:
        return self.noted

    def finish(self) -> None:
        self.noted = {}


class FakeSource:
    """Reports every container once a period, and who is gone. use_cores: what each used, by group's name."""

    descriptor = -1
    lost = 0

    @property
    def gone(self) -> np.ndarray:
        return np.array([number for number, each in self.groups.items() if each.gone], np.int64)

    def __init__(self, use_cores: dict[str, float], period_ns: int = PERIOD_NS) -> None:
        self.use_cores = use_cores
        self.groups: dict[int, FakeGroup] = {}
        self._period_ns = period_ns
        self._due_ns = time.monotonic_ns()

    def add(self, ids: np.ndarray, groups: Sequence[LimitedGroup]) -> None:
        self.groups |= dict(zip(ids.tolist(), groups, strict=True))

    def remove(self, ids: np.ndarray) -> None:
        for id_ in ids.tolist():
            self.groups.pop(id_, None)

    def due_ns(self) -> int:
        return self._due_ns

    def collect(self, now_ns: int) -> Records:
        self._due_ns = now_ns + self._period_ns
        groups = list(self.groups.values())
        quota = np.array([group.quota_cores for group in groups])
        wanted = np.array([self.use_cores.get(group.name, 0.0) for group in groups])
        usage = np.minimum(wanted, quota)
        throttled = wanted > quota
        return Records(
            ids=np.array(list(self.groups), np.int64),
            end_ns=np.full(len(groups), now_ns),
            quota_cores=quota,
            unused_cores=quota - usage,
            throttled=throttled,
            usage_cores=usage,
            memory_bytes=np.array([group.charged for group in groups], np.int64),
            throttled_s=throttled * 0.01,
            idle=usage == 0,
        )

    def close(self) -> None:
        pass


def made_up(
    ids: Sequence[int],
    end_ns: int,
    quota_cores: float = 1.0,
    usage_cores: float = 0.0,
    *,
    unused_cores: float | None = None,
    throttled: bool = False,
    throttled_s: float = 0.0,
) -> Records:
    """Records of 1 MiB each that all say the same. unused_cores: None = the quota less the usage."""
    ones = np.ones(len(ids))
    return Records(
        ids=np.array(ids, np.int64),
        end_ns=np.full(len(ids), end_ns, np.int64),
        quota_cores=ones * quota_cores,
        unused_cores=ones * (quota_cores - usage_cores if unused_cores is None else unused_cores),
        throttled=np.full(len(ids), throttled),
        usage_cores=ones * usage_cores,
        memory_bytes=np.full(len(ids), 1 << 20, np.int64),
        throttled_s=ones * throttled_s,
        idle=np.full(len(ids), False),
    )


def first_limits(names: Iterable[str], cores: float = 0.5, size_bytes: int = 64 << 20) -> Order:
    """Return a controller's first order: ids from 1 on, and limits."""
    order = Order(number=1)
    for id_, name in enumerate(names, 1):
        order.named.add(name=name, id=id_, app=0)
        for part in (order.cpu, order.memory):
            part.ids.append(id_)
            part.reasons.append(1)
        order.cpu.cores.append(cores)
        order.memory.bytes.append(size_bytes)
    return order
