"""Limits that never change: a factor times the profiled peak, or no limits at all.

For: the baseline that most clusters run (`Static`), and profiling runs (`Unlimited`). Their peaks size the
limits of other policies. Not for: adapting. Nothing is decided after a container has started, and the kernel
kills a container that exceeds its memory limit.

Source: Static: the evaluation of Escra (ICDCS 2022; 0.75, 1.0 and 1.5 times the peak). Unlimited: the
kernel's own "none", which is cpu.cfs_quota_us = −1 and the largest memory.limit_in_bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from control.allocator.model import (
    KERNEL_MIN_QUOTA_S,
    NO_REQUESTS,
    NOTHING,
    PAGE_BYTES,
    Application,
    Bytes,
    CpuLimits,
    CpuRequests,
    Decision,
    Flags,
    Floats,
    History,
    Ids,
    Join,
    MemoryLimits,
    PeriodStats,
    Reason,
    reasons,
    slot,
)
from control.allocator.ports import Given, WithoutReclaim, inherits
from control.allocator.roster import Roster
from control.settings import check, parameter
from twinbed import ScenarioError

NO_QUOTA_CORES = float("inf")
NO_LIMIT_BYTES = (1 << 63) - 1

_PERIOD_S = 0.1
"""The kernel's default CFS period, s. Limits are set before any telemetry reports another period."""

_ROUNDING = 1e-9
"""Share of Ω by which the sum of the limits may exceed Ω. The order of addition changes the sum by about as
much."""


@dataclass(frozen=True, slots=True)
class StaticSettings:
    """Parameters of the static policy. Raises ScenarioError for a value outside its range."""

    factor: float = parameter(
        1.5,
        unit="times the profiled peak",
        low=0.01,
        high=100.0,
        why="the safest of the source's three settings (0.75, 1.0, 1.5) and the one it compares with",
    )

    overcommit: bool = parameter(
        False,
        unit="true | false",
        why="limits add up to at most the global limits, as in a Distributed Container; Kubernetes lets "
        "limits add up to more than a cluster has",
    )

    def __post_init__(self) -> None:
        check("static", self)


@dataclass(frozen=True, slots=True)
class UnlimitedSettings:
    """The policy has no parameters."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Limits and requests of k containers for the rest of a run.

    quota_cores: float64[k], inf: no quota. limit_bytes: int64[k], NO_LIMIT_BYTES: no limit. request_cores:
    float64[k], CPU requests; None: no requests.
    """

    quota_cores: Floats
    limit_bytes: Bytes
    request_cores: Floats | None = None


class FixedLimits(WithoutReclaim, ABC):
    """`ports.Allocator` and `ports.Patient` for containers that keep their first limits and requests."""

    def start(self, applications: Sequence[Application], containers: Join) -> Decision:
        """Set the limits of the whole run. Any earlier fleet is forgotten."""
        self._roster = Roster(applications)
        self._quota = self._roster.column(0.0, np.float64)
        self._limit = self._roster.column(0, np.int64)
        return self._admit(containers, Reason.INITIAL)

    def on_join(self, containers: Join) -> Decision:
        """Set the limits of newcomers for the rest of the run.

        After a ScenarioError, everything is unchanged.
        """
        return self._admit(containers, Reason.JOINED)

    def on_leave(self, ids: Ids) -> Decision:
        """Forget containers that left. Their limits no longer count."""
        slots = self._roster.leave(ids)
        self._quota.values[slots] = 0.0
        self._limit.values[slots] = 0
        return NOTHING

    def on_period(self, stats: PeriodStats) -> Decision:  # noqa: ARG002 - the port's signature
        """Decide nothing."""
        return NOTHING

    def quiet_reports(self, at_s: Floats, period_s: float) -> int:  # noqa: ARG002 - the port's signature
        """See `ports.Patient`."""
        return len(at_s) if inherits(self, FixedLimits.on_period) else 0

    def on_periods(self, ids: Ids, used: History, throttled: Flags, at_s: Floats) -> None:
        """See `ports.Patient`. The reports are ignored."""

    def _admit(self, containers: Join, reason: Reason) -> Decision:
        plan = self._plan(containers)
        ids = self._roster.join(containers)
        self._quota.values[slot(ids)] = plan.quota_cores
        self._limit.values[slot(ids)] = plan.limit_bytes
        why = reasons(len(ids), reason)
        requests = NO_REQUESTS if plan.request_cores is None else CpuRequests(ids, plan.request_cores)
        return Decision(
            cpu=CpuLimits(ids, plan.quota_cores, why),
            memory=MemoryLimits(ids, plan.limit_bytes, why),
            requests=requests,
        )

    @abstractmethod
    def _plan(self, containers: Join) -> Plan:
        """Return the plan for the containers."""


class Static(FixedLimits):
    """Keeps limits at the profiled peaks times a factor. Needs `Join.peak_cores` and `Join.peak_bytes`.

    A plan that exceeds an application's global limits is refused with a ScenarioError. It is not scaled down,
    because it would then no longer be the factor times the peak. With `overcommit` it is accepted.
    """

    name = "static"

    def __init__(self, settings: StaticSettings) -> None:
        self._settings = settings

    def _plan(self, containers: Join) -> Plan:
        """Return quotas between the kernel's minimum and the host's cores, and limits in whole pages."""
        if containers.peak_cores is None or containers.peak_bytes is None:
            missing = "CPU" if containers.peak_cores is None else "memory"
            raise ScenarioError(f"static: the containers have no {missing} profile to take a peak from")
        factor = self._settings.factor
        quota = np.minimum(factor * containers.peak_cores, containers.host_cores)
        quota = np.maximum(quota, KERNEL_MIN_QUOTA_S / _PERIOD_S)
        pages = np.ceil(factor * containers.peak_bytes / PAGE_BYTES)
        limit = np.maximum(pages, 1).astype(np.int64) * PAGE_BYTES
        if not self._settings.overcommit:
            self._check_fits(containers, quota, limit)
        return Plan(quota, limit)

    def _check_fits(self, containers: Join, quota: Floats, limit: Bytes) -> None:
        roster = self._roster
        apps = len(roster.applications)
        held = slice(0, roster.size)  # vacant slots hold 0
        cores, memory = np.zeros(apps), np.zeros(apps, np.int64)
        for sums, column, new in ((cores, self._quota, quota), (memory, self._limit, limit)):
            np.add.at(sums, roster.app, column.values[held])
            np.add.at(sums, containers.app, new)
        for application, sum_cores, sum_bytes in zip(roster.applications, cores, memory, strict=True):
            plan = f"application {application.name!r}: {self._settings.factor:g} × the profiled peaks"
            if sum_cores > application.cpu_limit_cores * (1 + _ROUNDING):
                raise ScenarioError(
                    f"{plan} sum to {sum_cores:.6g} cores, above its limit of "
                    f"{application.cpu_limit_cores:.6g}; lower static.factor or raise the limit"
                )
            if sum_bytes > application.memory_limit_bytes:
                raise ScenarioError(
                    f"{plan} sum to {sum_bytes} bytes of memory, above its limit of "
                    f"{application.memory_limit_bytes}; lower static.factor or raise the limit"
                )


class Unlimited(FixedLimits):
    """No CPU quota and no memory limit: containers are slow only for lack of cores.

    The applications' global limits (Ω, M) are ignored. The sum of the limits is infinite, so this policy is
    not a Distributed Container. A container can only run out of its host's memory.
    """

    name = "unlimited"
    given = Given(peaks=False)

    def __init__(self, settings: UnlimitedSettings) -> None:
        pass

    def _plan(self, containers: Join) -> Plan:
        count = len(containers.app)
        return Plan(np.full(count, NO_QUOTA_CORES), np.full(count, NO_LIMIT_BYTES, np.int64))
