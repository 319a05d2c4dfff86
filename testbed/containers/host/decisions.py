"""Carries out what an allocator decides, on real containers, and asks it what follows from that.

For: writing limits, granting memory to held containers, killing, restarting, the agents' reclaim; the same
order and meaning as in twin/containers/simulation.py, without its delays. Not for: when telemetry, traps and
ends of commands arrive (run.py).

Within a decision containers go down first, then memory, then CPU; of either the decreases before the
increases, so that no sum of limits is above its pool in between. A CPU limit is written only if its value
in µs changed, because a write refills the container's runtime. What the kernel cannot shrink yet (v1) is
tried again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import (
    NOTHING,
    PAGE_BYTES,
    CpuLimits,
    Decision,
    MemoryLimits,
    OomEvents,
    Shrunk,
)
from control.allocator.ports import Allocator, shrink
from testbed.containers.cgroup.drivers import MIN_QUOTA_US, QUOTA_PERIOD_US
from testbed.containers.host.fleet import Fleet
from testbed.containers.host.records import Books
from testbed.containers.host.supervised import Status, Supervised
from testbed.containers.ports import GroupGoneError
from twinbed import InvariantError

_ROUNDING = 1e-6


class Hands:
    """The hands of one allocator on one fleet.

    on_gone: told of a container whose cgroup is not there any more, or that is to be taken down
    (`take_down`), by the loop.
    """

    def __init__(
        self,
        fleet: Fleet,
        allocator: Allocator,
        books: Books,
        *,
        gone: Callable[[Supervised], None],
        take_down: Callable[[Supervised, str], None],
    ) -> None:
        self._fleet, self._allocator, self._books = fleet, allocator, books
        self._gone, self._take_down = gone, take_down
        self._short: dict[int, int] = {}

    def carry_out(self, decision: Decision, *, answer: bool = False) -> None:
        """Everything in it, now. answer: it answers held containers."""
        if decision is NOTHING:
            return
        for each in self._fleet.members(decision.restart):
            self._take_down(each, "restart")
        for each in self._fleet.members(decision.kill):
            self._take_down(each, "kill")
        if decision.memory.ids.size:
            self._write_memory(decision.memory, answer=answer)
        if decision.cpu.ids.size:
            self._write_quotas(decision.cpu)
        if decision.reclaim.size:
            self.reclaim(decision.reclaim)

    def out_of_memory(self, containers: Sequence[Supervised]) -> None:
        """Asks about containers that are held, or that the kernel has killed."""
        ids = self._fleet.ids(each.index for each in containers)
        at_s = self._books.at_s(time.monotonic_ns())
        needed = np.array([self._excess_bytes(each) for each in containers], np.int64)
        event = OomEvents(ids, needed, at_s)
        self.carry_out(self._allocator.on_oom(event), answer=self._allocator.traps_oom)

    def _excess_bytes(self, each: Supervised) -> int:
        """How far it is above its limit (v2); how much it wanted the kernel does not say: a page at least."""
        excess = 0
        with suppress(GroupGoneError):
            if each.group is not None:
                excess = each.group.charged_bytes() - int(self._fleet.limit_bytes[each.index])
        return max(excess, PAGE_BYTES)

    def reclaim(self, apps: NDArray[np.int64]) -> None:
        """Shrinks the applications' running containers to what they hold and the margin, and reports it."""
        rule = self._allocator.reclaim
        if rule is None:
            raise InvariantError(f"{self._allocator.name} asked for a reclaim and has no rule for it")
        wanted = set(apps.tolist())
        chosen: list[int] = []
        held_bytes: list[int] = []
        for each in self._fleet.containers:
            if each.status is Status.UP and each.managed.app in wanted and each.group is not None:
                try:
                    held_bytes.append(each.group.charged_bytes())
                    chosen.append(each.index)
                except GroupGoneError:
                    self._gone(each)
        ids = self._fleet.ids(chosen)
        limits = self._fleet.limit_bytes[chosen]
        ids, targets = shrink(ids, limits, np.array(held_bytes, np.int64), rule.margin_bytes)
        lowered: list[int] = []
        for number, target in zip(ids.tolist(), targets.tolist(), strict=True):
            column = self._fleet.column(number)
            if column is not None and self._lower(self._fleet.containers[column], target):
                lowered.append(column)
        shrunk = Shrunk(
            apps,
            self._fleet.ids(lowered),
            self._fleet.limit_bytes[lowered],
            self._books.at_s(time.monotonic_ns()),
        )
        self.carry_out(self._allocator.on_reclaimed(shrunk), answer=True)

    def forget(self, column: int) -> None:
        """A container left: nothing is to be tried again for it."""
        self._short.pop(column, None)

    def try_again(self) -> None:
        """Memory limits that could not be lowered as far as decided."""
        for column, target in list(self._short.items()):
            self._set_memory(self._fleet.containers[column], target)

    # --- memory ----------------------------------------------------------------------------------

    def _lower(self, each: Supervised, target: int) -> bool:
        """Whether the agents' shrink lowered the limit; it is not tried again."""
        before = int(self._fleet.limit_bytes[each.index])
        if not self._set_memory(each, target):
            return False
        self._short.pop(each.index, None)
        if self._fleet.limit_bytes[each.index] >= before:
            return False
        self._books.note("reclaim", each.index, time.monotonic_ns())
        return True

    def _write_memory(self, limits: MemoryLimits, *, answer: bool) -> None:
        if (limits.limit_bytes < 0).any():
            raise InvariantError(f"{self._allocator.name} decided a negative memory limit")
        fleet, todo = self._fleet, []
        for number, limit in zip(limits.ids.tolist(), limits.limit_bytes.tolist(), strict=True):
            column = fleet.column(number)
            if column is not None:
                before = int(fleet.limit_bytes[column])
                todo.append((limit - before, column, limit))
                self._books.limit_changes += limit != before != 0
        for change, column, limit in sorted(todo):
            each = fleet.containers[column]
            held = each.status is Status.HELD
            if held and answer and change <= 0:
                raise InvariantError(
                    f"{self._allocator.name} answered {each.name}, which is held, and raised nothing"
                )
            if change and self._set_memory(each, limit) and held and change > 0:
                fleet.release(each)
                if answer:
                    self._books.note("grant", column, time.monotonic_ns())

    def _set_memory(self, each: Supervised, limit: int) -> bool:
        """Writes it and keeps what is in force; False where the container is gone."""
        if each.group is None:
            return False
        try:
            in_force = each.group.set_memory_limit(limit)
        except GroupGoneError:
            self._gone(each)
            return False
        self._fleet.limit_bytes[each.index] = in_force
        if in_force - limit >= PAGE_BYTES:
            self._short[each.index] = limit
        else:
            self._short.pop(each.index, None)
        return True

    # --- CPU -------------------------------------------------------------------------------------

    def _write_quotas(self, limits: CpuLimits) -> None:
        fleet, books, todo = self._fleet, self._books, []
        for number, cores, reason in zip(
            limits.ids.tolist(), limits.quota_cores.tolist(), limits.reason.tolist(), strict=True
        ):
            if not cores > 0:
                raise InvariantError(f"{self._allocator.name} decided a quota that is not above zero")
            column = fleet.column(number)
            if column is None:
                continue
            quota = whole_us(cores)
            before = float(fleet.quota_cores[column])
            if quota == before:
                books.skipped += 1
            else:
                todo.append((quota - before, column, quota, before, reason))
        for _, column, quota, before, reason in sorted(todo):
            each = fleet.containers[column]
            if each.group is None:
                continue
            began_ns = time.monotonic_ns()
            try:
                each.group.set_cpu_quota(quota)
            except GroupGoneError:
                self._gone(each)
                continue
            books.write_ns.append(time.monotonic_ns() - began_ns)
            fleet.quota_cores[column] = quota
            books.limit_changes += before > 0
            books.give_reason(column, reason)


def whole_us(cores: float) -> float:
    """`cores` as the kernel will hold it: whole µs per period, at least its minimum, inf as it is.

    Rounded down, because sums of quotas may use a pool to its last nanosecond.
    """
    if math.isinf(cores):
        return cores
    return max(math.floor(cores * QUOTA_PERIOD_US + _ROUNDING), MIN_QUOTA_US) / QUOTA_PERIOD_US
