"""A fleet driven through an allocator period by period, believing nothing but its decisions.

It plays the backend: limits are what decisions said, usage is demand cut to the quota, and every
decision is checked against the promises that hold for all policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from control.allocator.model import Application, Decision, Join, PeriodStats
from control.allocator.ports import Allocator
from tests.control.allocator.fleets import join, oom

Demand = Callable[[float], tuple[float, int]]
"""Seconds → (cores, bytes) that a container would use."""


class DrivenFleet:
    def __init__(
        self,
        allocator: Allocator,
        applications: list[Application],
        apps: list[int],
        *,
        host_cores: float = 8.0,
        peaks: tuple[list[float], list[int]] | None = None,
        period_s: float = 0.1,
    ) -> None:
        self.allocator = allocator
        self.applications = applications
        self.host_cores = host_cores
        self.period_s = period_s
        self.at_s = 0.0
        self.app: dict[int, int] = {}
        self.cores: dict[int, float] = {}
        self.bytes: dict[int, int] = {}
        self.restarts: list[tuple[float, int]] = []
        self.decisions: list[tuple[float, Decision]] = []
        self.ids = self._admit(apps, allocator.start(applications, self._join(apps, peaks)))

    def join(self, apps: list[int], peaks: tuple[list[float], list[int]] | None = None) -> list[int]:
        ids = self._admit(apps, self.allocator.on_join(self._join(apps, peaks)))
        self.ids += ids
        return ids

    def leave(self, ids: list[int]) -> None:
        for container in ids:
            for table in (self.app, self.cores, self.bytes):
                table.pop(container)
            self.ids.remove(container)
        self.carry_out(self.allocator.on_leave(np.array(ids, np.int64)))

    def period(self, usage: Mapping[int, tuple[float, int]]) -> Decision:
        """One period in which `usage` gives (demand in cores, memory in bytes) of those that report."""
        self.at_s += self.period_s
        return self.report(usage)

    def staggered(self, usage: Mapping[int, tuple[float, int]], groups: int) -> list[Decision]:
        """As `period`, but container i (of `ids`) ends its period with group i mod `groups`, the groups
        spread evenly over the period; one decision per report."""
        start_s = self.at_s
        decisions = []
        for group in range(groups):
            self.at_s = start_s + self.period_s * (group + 1) / groups
            together = {id_: usage[id_] for id_ in self.ids[group::groups] if id_ in usage}
            decisions.append(self.report(together))
        return decisions

    def report(self, usage: Mapping[int, tuple[float, int]]) -> Decision:
        """A period of these containers that ends now."""
        ids = list(usage)
        quota = np.array([self.cores.get(id_, 1.0) for id_ in ids])
        used = np.minimum([usage[id_][0] for id_ in ids], quota)
        decision = self.allocator.on_period(
            PeriodStats(
                ids=np.array(ids, np.int64),
                quota_cores=quota,
                unused_cores=quota - used,
                throttled=np.array([usage[id_][0] for id_ in ids]) > quota,
                usage_cores=used.astype(np.float64),
                memory_bytes=np.array([usage[id_][1] for id_ in ids], np.int64),
                period_s=self.period_s,
                at_s=self.at_s,
            )
        )
        self.carry_out(decision)
        return decision

    def run(self, seconds: float, demand: Demand) -> None:
        """Periods in which every member has the same demand."""
        for _ in range(round(seconds / self.period_s)):
            now = demand(self.at_s + self.period_s)
            self.period(dict.fromkeys(self.ids, now))

    def oom(self, ids: list[int], needed_bytes: int = 4096) -> Decision:
        decision = self.allocator.on_oom(oom(ids, [needed_bytes] * len(ids), self.at_s))
        self.carry_out(decision)
        return decision

    def carry_out(self, decision: Decision) -> None:
        self.decisions.append((self.at_s, decision))
        for id_, cores in zip(decision.cpu.ids.tolist(), decision.cpu.quota_cores.tolist(), strict=True):
            assert id_ in self.app, "a limit for a container that is not there"
            self.cores[id_] = cores
        for id_, size in zip(decision.memory.ids.tolist(), decision.memory.limit_bytes.tolist(), strict=True):
            assert id_ in self.app, "a limit for a container that is not there"
            self.bytes[id_] = size
        for id_ in decision.restart.tolist():
            assert id_ in self.app, "a restart of a container that is not there"
            self.restarts.append((self.at_s, id_))
        self.check()

    def check(self) -> None:
        least = 0.001 / self.period_s
        for id_, cores in self.cores.items():
            assert least - 1e-12 <= cores <= self.host_cores, (id_, cores)
            assert self.bytes[id_] >= 4096
        for index, application in enumerate(self.applications):
            members = [id_ for id_ in self.app if self.app[id_] == index]
            total = sum(self.cores[id_] for id_ in members)
            assert total <= application.cpu_limit_cores * (1 + 1e-9), (index, total)
            assert sum(self.bytes[id_] for id_ in members) <= application.memory_limit_bytes

    def _join(self, apps: list[int], peaks: tuple[list[float], list[int]] | None) -> Join:
        return join(apps, self.host_cores, *(peaks or ()))

    def _admit(self, apps: list[int], decision: Decision) -> list[int]:
        count = len(apps)
        new = decision.cpu.ids[len(decision.cpu.ids) - count :].tolist()
        assert new == decision.memory.ids[len(decision.memory.ids) - count :].tolist()
        assert not set(new) & set(self.app)
        self.app.update(zip(new, apps, strict=True))
        self.carry_out(decision)
        return new
