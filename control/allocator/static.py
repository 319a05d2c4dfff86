"""Static limits: a factor times the profiled peak, set once.

For: the baseline that most clusters run. Not for: adapting; nothing is decided after a container has
started, and the kernel kills what exceeds its memory limit. Source: Escra's evaluation, SPEC.md §1
(0.75, 1.0 and 1.5 times the peak).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from control.allocator.model import (
    KERNEL_MIN_QUOTA_S,
    NOTHING,
    PAGE_BYTES,
    Application,
    Bytes,
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
    slot,
)
from control.allocator.roster import Roster
from control.settings import check, parameter
from twinbed import ScenarioError

_PERIOD_S = 0.1
"""The kernel's default CFS period: no telemetry has told another one when the limits are set."""

_ROUNDING = 1e-9
"""Share of Ω by which the sum may exceed it: that of adding the same limits in another order."""


@dataclass(frozen=True, slots=True)
class StaticSettings:
    """Parameters of the static policy. Raises ScenarioError for a value out of its range."""

    factor: float = parameter(
        1.5,
        unit="times the profiled peak",
        low=0.01,
        high=100.0,
        why="the safest of the source's three settings (0.75, 1.0, 1.5) and the one it compares with",
    )

    def __post_init__(self) -> None:
        check("static", self)


class Static:
    """Implements `ports.Allocator`; the methods' contract is stated there.

    Needs profiled peaks (`Join.peak_cores`, `Join.peak_bytes`). A plan that does not fit an application's
    global limits is refused with a ScenarioError, not scaled: scaled, it would no longer be the
    factor times the peak that was asked for.
    """

    name = "static"
    traps_oom = False
    reclaim = None

    def __init__(self, settings: StaticSettings) -> None:
        self._settings = settings
        self._set_up(())

    def start(self, applications: Sequence[Application], containers: Join) -> Decision:
        """The limits of the whole run; forgets any earlier fleet."""
        self._set_up(applications)
        return self._admit(containers, Reason.INITIAL)

    def on_join(self, containers: Join) -> Decision:
        """Limits of newcomers, for the rest of the run.

        Raises ScenarioError, with nothing changed, when they do not fit beside the present containers.
        """
        return self._admit(containers, Reason.JOINED)

    def on_leave(self, ids: Ids) -> Decision:
        """Frees the place of containers that are gone."""
        slots = self._roster.leave(ids)
        self._quota.values[slots] = 0.0
        self._limit.values[slots] = 0
        return NOTHING

    def on_period(self, stats: PeriodStats) -> Decision:  # noqa: ARG002 - the port's signature
        """Nothing, ever."""
        return NOTHING

    def on_oom(self, event: OomEvents) -> Decision:  # noqa: ARG002 - the port's signature
        """Nothing: the kernel has killed the container, and its limit stays."""
        return NOTHING

    def on_reclaimed(self, shrunk: Shrunk) -> Decision:  # noqa: ARG002 - the port's signature
        """Nothing: no reclaim is asked for."""
        return NOTHING

    def _set_up(self, applications: Sequence[Application]) -> None:
        self._roster = Roster(applications)
        self._quota = self._roster.column(0.0, np.float64)
        self._limit = self._roster.column(0, np.int64)

    def _admit(self, containers: Join, reason: Reason) -> Decision:
        quota, limit = self._plan(containers)
        self._check_fits(containers, quota, limit)
        ids = self._roster.join(containers)
        slots = slot(ids)
        self._quota.values[slots] = quota
        self._limit.values[slots] = limit
        why = np.full(len(ids), reason, np.uint8)
        return Decision(cpu=CpuLimits(ids, quota, why), memory=MemoryLimits(ids, limit, why))

    def _plan(self, containers: Join) -> tuple[Floats, Bytes]:
        """Quotas (cores, between the kernel's minimum and the host) and limits (bytes, whole pages)."""
        if containers.peak_cores is None or containers.peak_bytes is None:
            missing = "CPU" if containers.peak_cores is None else "memory"
            raise ScenarioError(f"static: the containers have no {missing} profile to take a peak from")
        factor = self._settings.factor
        quota = np.minimum(factor * containers.peak_cores, containers.host_cores)
        pages = np.ceil(factor * containers.peak_bytes / PAGE_BYTES)
        limit = np.maximum(pages, 1).astype(np.int64) * PAGE_BYTES
        return np.maximum(quota, KERNEL_MIN_QUOTA_S / _PERIOD_S), limit

    def _check_fits(self, containers: Join, quota: Floats, limit: Bytes) -> None:
        roster = self._roster
        apps = len(roster.applications)
        held = slice(0, roster.size)  # vacant slots hold 0
        cores = np.zeros(apps)
        np.add.at(cores, roster.app, self._quota.values[held])
        np.add.at(cores, containers.app, quota)
        memory = np.zeros(apps, np.int64)
        np.add.at(memory, roster.app, self._limit.values[held])
        np.add.at(memory, containers.app, limit)
        for application, sum_cores, sum_bytes in zip(roster.applications, cores, memory, strict=True):
            plan = f"application {application.name!r}: {self._settings.factor:g} × the profiled peaks"
            if sum_cores > application.cpu_limit_cores * (1 + _ROUNDING):
                raise ScenarioError(
                    f"{plan} sum to {sum_cores:.6g} cores, above its limit of "
                    f"{application.cpu_limit_cores:.6g}; lower the factor or raise the limit"
                )
            if sum_bytes > application.memory_limit_bytes:
                raise ScenarioError(
                    f"{plan} sum to {sum_bytes} bytes of memory, above its limit of "
                    f"{application.memory_limit_bytes}; lower the factor or raise the limit"
                )
