"""Escra: one pool of CPU and memory per application, moved between its containers every period.

For: the allocator that backends drive through ports.py. The rules themselves are in escra_cpu.py and
escra_memory.py. Not for: carrying anything out. Source: Escra (ICDCS 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from control.allocator.escra_cpu import CpuRule
from control.allocator.escra_memory import MemoryRule
from control.allocator.escra_memory_settle import MemoryBooks
from control.allocator.escra_settings import EscraSettings
from control.allocator.escra_settle import Table, settle
from control.allocator.model import (
    NOTHING,
    Application,
    CpuLimits,
    Decision,
    Floats,
    Ids,
    Join,
    MemoryLimits,
    OomEvents,
    PeriodStats,
    Reason,
    Shrunk,
    reasons,
    slot,
)
from control.allocator.ports import Compiler, Given, ReclaimRule, inherits
from control.allocator.roster import Roster

__all__ = ["Escra", "EscraSettings"]


class Escra:
    """Sets CPU every period by the runtime that a container left unused, and memory on demand, from one pool.

    Implements `ports.Allocator` and `ports.Tabled`, which state the methods' contract.

    A container that was left to the OOM killer stays a member with its limits. The backend either restarts it
    in place or reports that it left.
    """

    name = "escra"
    given = Given(peaks=False)
    traps_oom = True

    def __init__(self, settings: EscraSettings) -> None:
        self.settings = settings
        self._settle: Callable[..., int] | None = None
        self._set_up(())

    @property
    def reclaim(self) -> ReclaimRule:
        """The agents' sweep, by default every 5 s down to usage + 50 MiB."""
        return ReclaimRule(self.settings.reclaim_interval_s, self.settings.reclaim_margin_bytes)

    @property
    def roster(self) -> Roster:
        """The members. Callers must not change it."""
        return self._roster

    @property
    def cpu(self) -> CpuRule:
        """The CPU rule with each container's quota and what each pool has left."""
        return self._cpu

    @property
    def memory(self) -> MemoryRule:
        """The memory rule with limits, pools and the containers that wait for a reclaim."""
        return self._memory

    def start(self, applications: Sequence[Application], containers: Join) -> Decision:
        """Give Ω/k and M·σ/k to each of an application's k containers. Any earlier fleet is forgotten."""
        self._set_up(applications)
        return self._admit(containers, Reason.INITIAL)

    def compile(self, compiler: Compiler) -> None:
        """Run the CPU rule compiled from now on."""
        self._settle = self._cpu.settle = compiler(settle)

    def table(self, ids: Ids, at_s: Floats, period_s: float) -> tuple[Table, int] | None:
        """See `ports.Tabled`."""
        table = self._cpu.table(ids, period_s) if inherits(self, Escra.on_period) else None
        return None if table is None else (table, len(at_s))

    def memory_books(self) -> MemoryBooks | None:
        """See `ports.Tabled`."""
        known = inherits(self, Escra.on_oom) and inherits(self, Escra.on_reclaimed)
        return self._memory.books() if known else None

    def close(self, table: Table, reports: int) -> None:
        """See `ports.Tabled`."""
        self._cpu.close(table, reports)

    def on_join(self, containers: Join) -> Decision:
        """Give newcomers up to a fair share. Older containers above their fair share make room.

        Raises ScenarioError, with nothing changed, when an application is too small for one more container.
        """
        return self._admit(containers, Reason.JOINED)

    def on_leave(self, ids: Ids) -> Decision:
        """Return quotas and limits to the pools. Nothing is decided."""
        slots = self._roster.leave(ids)
        self._cpu.release(slots)
        self._memory.release(slots)
        return NOTHING

    def on_period(self, stats: PeriodStats) -> Decision:
        """Apply the CPU rule. Memory is not touched. If an id occurs twice, its last row counts."""
        return Decision(cpu=self._cpu.step(stats))

    def on_oom(self, event: OomEvents) -> Decision:
        """Give each held container a grant, or reclaim from its application."""
        granted, short = self._memory.on_oom(event)
        return Decision(memory=granted, reclaim=short)

    def on_reclaimed(self, shrunk: Shrunk) -> Decision:
        """Answer every container that waits in the applications reported on."""
        granted, killed = self._memory.on_reclaimed(shrunk)
        return Decision(memory=granted, kill=killed)

    def _set_up(self, applications: Sequence[Application]) -> None:
        self._roster = Roster(applications)
        self._cpu = CpuRule(self._roster, self.settings)
        self._cpu.settle = self._settle
        self._memory = MemoryRule(self._roster, self.settings)

    def _admit(self, containers: Join, reason: Reason) -> Decision:
        if containers.app.size == 0:
            return NOTHING
        self._cpu.check_room(containers.app)
        self._memory.check_room(containers.app)
        ids = self._roster.join(containers)
        quota, lowered = self._cpu.admit(slot(ids))
        limit, short = self._memory.admit(slot(ids))
        why = reasons(len(ids), reason)
        cpu = CpuLimits(
            np.concatenate((self._roster.ids[lowered], ids)),
            np.concatenate((self._cpu.allocated_cores[lowered], quota)),
            np.concatenate((reasons(len(lowered), Reason.MADE_ROOM), why)),
        )
        return Decision(cpu=cpu, memory=MemoryLimits(ids, limit, why), reclaim=short)
