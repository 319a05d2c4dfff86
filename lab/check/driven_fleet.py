"""A fleet driven by an allocator period by period, only by its decisions.

For: `twinbed policies check` and the tests of every allocator. It takes the backend's role: limits are those
of the decisions, usage is demand cut to the quota, and every decision is checked against the promises of all
policies. Not for: the histories (lab.check.histories).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from control.allocator.model import Application, Decision, Join, OomEvents, PeriodStats
from control.allocator.ports import Allocator

Demand = Callable[[float], tuple[float, int]]
"""Seconds → (cores, bytes) that a container would use."""
Peaks = tuple[Sequence[float], Sequence[int]]
"""Profiled peaks of containers: cores, bytes."""


class BrokenPromiseError(AssertionError):
    """An allocator broke a promise of its port. The message names the promise."""


def _require(kept: bool, promise: str) -> None:
    if not kept:
        raise BrokenPromiseError(promise)


class DrivenFleet:
    """Containers of applications under an allocator, which is started.

    apps: application of each container.
    peaks: their profiled peaks.
    replicas: whether all are on one host, and every application is one workload.
    spoil: whether arrays that the allocator was given are overwritten after the call.
    may_be_unlimited: whether an infinite quota keeps the promises.

    The attributes `ids`, `app`, `cores`, `bytes`, `restarts` and `decisions` are the results, by id.
    """

    def __init__(
        self,
        allocator: Allocator,
        applications: list[Application],
        apps: list[int],
        *,
        host_cores: float = 8.0,
        peaks: Peaks | None = None,
        period_s: float = 0.1,
        replicas: bool = False,
        spoil: bool = False,
        may_be_unlimited: bool = False,
    ) -> None:
        self.allocator = allocator
        self.applications = applications
        self.host_cores = host_cores
        self.replicas = replicas
        self._spoil, self._may_be_unlimited = spoil, may_be_unlimited
        self.peaks = peaks is not None
        self.period_s = period_s
        self.at_s = 0.0
        self.app: dict[int, int] = {}
        self.cores: dict[int, float] = {}
        self.bytes: dict[int, int] = {}
        self.restarts: list[tuple[float, int]] = []
        self.decisions: list[tuple[float, Decision]] = []
        self.ids = self._admit(apps, allocator.start(applications, self._join(apps, peaks)))

    def join(self, apps: list[int], peaks: Peaks | None = None) -> list[int]:
        """Let containers of these applications appear, and return their ids."""
        ids = self._admit(apps, self.allocator.on_join(self._join(apps, peaks)))
        self.ids += ids
        return ids

    def leave(self, ids: list[int]) -> None:
        """Take containers away."""
        for container in ids:
            for table in (self.app, self.cores, self.bytes):
                table.pop(container)
            self.ids.remove(container)
        self.carry_out(self.allocator.on_leave(np.array(ids, np.int64)))

    def period(self, usage: Mapping[int, tuple[float, int]]) -> Decision:
        """Play one period. usage: (demand in cores, memory in bytes) of each container that reports."""
        self.at_s += self.period_s
        return self.report(usage)

    def staggered(self, usage: Mapping[int, tuple[float, int]], groups: int) -> list[Decision]:
        """Play one period whose ends are spread evenly over `groups` groups of containers.

        Container i of `ids` is in group i mod `groups`. Return one decision per group.
        """
        start_s = self.at_s
        decisions = []
        for group in range(groups):
            self.at_s = start_s + self.period_s * (group + 1) / groups
            together = {id_: usage[id_] for id_ in self.ids[group::groups] if id_ in usage}
            decisions.append(self.report(together))
        return decisions

    def report(self, usage: Mapping[int, tuple[float, int]]) -> Decision:
        """Report a period of these containers that ends now. Raises BrokenPromiseError."""
        ids = list(usage)
        quota = np.array([self.cores.get(id_, 1.0) for id_ in ids])
        used = np.minimum([usage[id_][0] for id_ in ids], quota)
        stats = PeriodStats(
            ids=np.array(ids, np.int64),
            quota_cores=quota,
            unused_cores=quota - used,
            throttled=np.array([usage[id_][0] for id_ in ids]) > quota,
            usage_cores=used.astype(np.float64),
            memory_bytes=np.array([usage[id_][1] for id_ in ids], np.int64),
            period_s=self.period_s,
            at_s=self.at_s,
        )
        decision = self.allocator.on_period(stats)
        if self._spoil:
            for array in (stats.quota_cores, stats.unused_cores, stats.usage_cores, stats.memory_bytes):
                array[:] = 7
        self.carry_out(decision)
        return decision

    def run(self, seconds: float, demand: Demand) -> None:
        """Run periods for `seconds` s in which every container has the same demand."""
        for _ in range(round(seconds / self.period_s)):
            now = demand(self.at_s + self.period_s)
            self.period(dict.fromkeys(self.ids, now))

    def oom(self, ids: list[int], needed_bytes: int = 4096) -> Decision:
        """Report containers at their memory limit."""
        needed = np.full(len(ids), needed_bytes, np.int64)
        decision = self.allocator.on_oom(OomEvents(np.array(ids, np.int64), needed, self.at_s))
        self.carry_out(decision)
        return decision

    def carry_out(self, decision: Decision) -> None:
        """Put a decision in force, and check it. Raises BrokenPromiseError."""
        self.decisions.append((self.at_s, decision))
        for id_, cores in zip(decision.cpu.ids.tolist(), decision.cpu.quota_cores.tolist(), strict=True):
            _require(id_ in self.app, "a limit for a container that is not there")
            self.cores[id_] = cores
        for id_, size in zip(decision.memory.ids.tolist(), decision.memory.limit_bytes.tolist(), strict=True):
            _require(id_ in self.app, "a limit for a container that is not there")
            self.bytes[id_] = size
        for id_ in decision.restart.tolist():
            _require(id_ in self.app, "a restart of a container that is not there")
            self.restarts.append((self.at_s, id_))
        self.check()

    def check(self) -> None:
        """Check all limits in force. Raises BrokenPromiseError."""
        least = 0.001 / self.period_s
        for id_, cores in self.cores.items():
            within = least - 1e-12 <= cores <= self.host_cores or self._free(id_)
            _require(within, f"a quota of {cores:g} cores is not within {least:g} to {self.host_cores:g}")
            # A container that is held at its limit may wait there for its first bytes.
            enough = self.bytes[id_] >= 4096 or self.allocator.traps_oom
            _require(enough, f"a memory limit of {self.bytes[id_]} bytes is below a page")
        for index, application in enumerate(self.applications):
            members = [id_ for id_ in self.app if self.app[id_] == index]
            total, size = sum(self.cores[id_] for id_ in members), sum(self.bytes[id_] for id_ in members)
            _require(
                total <= application.cpu_limit_cores * (1 + 1e-9) or any(map(self._free, members)),
                f"quotas sum to {total:g} cores, above the application's {application.cpu_limit_cores:g}",
            )
            _require(
                size <= application.memory_limit_bytes,
                f"memory limits sum to {size} bytes, above the global {application.memory_limit_bytes}",
            )

    def _free(self, id_: int) -> bool:
        return self._may_be_unlimited and self.cores[id_] == np.inf

    def _join(self, apps: list[int], peaks: Peaks | None) -> Join:
        cores, size = peaks or (None, None)
        made = Join(
            np.array(apps, np.int64),
            np.full(len(apps), self.host_cores),
            None if cores is None else np.array(cores, np.float64),
            None if size is None else np.array(size, np.int64),
        )
        place = np.zeros(len(apps), np.int64)
        return replace(made, host=place, workload=made.app) if self.replicas else made

    def _admit(self, apps: list[int], decision: Decision) -> list[int]:
        count = len(apps)
        new: list[int] = decision.cpu.ids[len(decision.cpu.ids) - count :].tolist()
        same = new == decision.memory.ids[len(decision.memory.ids) - count :].tolist()
        _require(same and len(new) == count, "newcomers are not the last limits, in one order")
        _require(not set(new) & set(self.app), "an id is given to two containers")
        self.app.update(zip(new, apps, strict=True))
        self.carry_out(decision)
        return new
