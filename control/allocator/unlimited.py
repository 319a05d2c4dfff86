"""No limits at all: no CPU quota and no memory limit for anyone, ever.

For: profiling runs, whose peaks size the other policies' limits, and as the upper bound of performance:
what is slow here is slow for want of cores, not for want of quota. Not for: sharing. The applications'
global limits (Ω, M) are ignored: the sum of the limits is infinite, so this is no Distributed Container.

Source: the kernel's own "none": cpu.cfs_quota_us = −1 and the largest memory.limit_in_bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from control.allocator.model import (
    NOTHING,
    Application,
    CpuLimits,
    Decision,
    Ids,
    Join,
    MemoryLimits,
    OomEvents,
    PeriodStats,
    Reason,
    Shrunk,
)
from control.allocator.roster import Roster

NO_QUOTA_CORES = float("inf")
NO_LIMIT_BYTES = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class UnlimitedSettings:
    """The policy has no parameters."""


class Unlimited:
    """Implements `ports.Allocator`; the methods' contract is stated there.

    Every container gets the quota `NO_QUOTA_CORES` and the limit `NO_LIMIT_BYTES` when it appears.
    """

    name = "unlimited"
    traps_oom = False
    reclaim = None

    def __init__(self, settings: UnlimitedSettings) -> None:  # noqa: ARG002 - as every policy is made
        self._roster = Roster(())

    def start(self, applications: Sequence[Application], containers: Join) -> Decision:
        """No limits for the whole run; forgets any earlier fleet."""
        self._roster = Roster(applications)
        return self._admit(containers, Reason.INITIAL)

    def on_join(self, containers: Join) -> Decision:
        """No limits for newcomers either."""
        return self._admit(containers, Reason.JOINED)

    def on_leave(self, ids: Ids) -> Decision:
        """Forgets containers that are gone."""
        self._roster.leave(ids)
        return NOTHING

    def on_period(self, stats: PeriodStats) -> Decision:  # noqa: ARG002 - the port's signature
        """Nothing, ever."""
        return NOTHING

    def on_oom(self, event: OomEvents) -> Decision:  # noqa: ARG002 - the port's signature
        """Nothing: without a limit only the host's own memory can be short."""
        return NOTHING

    def on_reclaimed(self, shrunk: Shrunk) -> Decision:  # noqa: ARG002 - the port's signature
        """Nothing: no reclaim is asked for."""
        return NOTHING

    def _admit(self, containers: Join, reason: Reason) -> Decision:
        ids = self._roster.join(containers)
        why = np.full(len(ids), reason, np.uint8)
        return Decision(
            cpu=CpuLimits(ids, np.full(len(ids), NO_QUOTA_CORES), why),
            memory=MemoryLimits(ids, np.full(len(ids), NO_LIMIT_BYTES, np.int64), why),
        )
