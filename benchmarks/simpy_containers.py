"""The straightforward model of the same containers: one SimPy process per container, one timeout per period.

For: the baseline of bench_twin. Per period and container it does the same CPU physics as twin.containers
(fluid work, a quota exhausted early by several threads, refill by a quota write), memory with traps, grants
and the agents' sweep, and the same Escra rules, in plain Python. It leaves out, to its advantage: telemetry
jitter, reclaim on demand and kills (the pool must suffice), burst, recording, restarts, joins and leaves. Not
for: use.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import simpy

from benchmarks import plain_escra

PAGE_BYTES = 4096
GRANT_BYTES, RECLAIM_MARGIN_BYTES = 16 << 20, 50 << 20
RECLAIM_INTERVAL_S, INITIAL_MEMORY = 5.0, 0.8


@dataclass(slots=True)
class Container:
    """One container's state. Seconds and cores are as in twin.containers.cfs."""

    demand: Sequence[float]
    memory: Sequence[int]
    limit_bytes: int
    cap: float
    quota: float
    pool: float
    backlog: float = 0.0
    used: float = 0.0
    throttled: bool = False
    stalled: int = 0
    held: bool = False
    wanted_bytes: int = 0
    since: float = 0.0
    done_s: float = 0.0
    throttled_s: float = 0.0
    nr_periods: int = 0
    nr_throttled: int = 0
    report: tuple[float, float, bool, float, int] = (0.0, 0.0, False, 0.0, 0)

    def advance(self, offset: float, rate: float) -> None:
        wall_s, self.since = offset - self.since, offset
        offered = self.backlog + rate * wall_s
        if self.stalled or self.held:
            self.backlog = offered
            self.throttled_s += self.stalled * wall_s
            return
        wanted = min(self.cap * wall_s, offered)
        done = min(wanted, self.pool)
        if wanted > self.pool + 1e-9:
            at, self.stalled, self.throttled = self.pool / self.cap, ceil(self.cap), True
            if self.pool - self.backlog > rate * at:
                at, self.stalled = (self.pool - self.backlog) / rate, ceil(rate)
            self.throttled_s += self.stalled * (wall_s - at)
        self.backlog, self.pool, self.used = offered - done, self.pool - done, self.used + done

    def write(self, quota: float, offset: float, rate: float, period_s: float) -> None:
        self.advance(offset, rate)
        self.quota, self.stalled = quota, 0
        self.pool = min(self.pool + quota * period_s, quota * period_s)

    def end(self, period_s: float, rate: float, wanted_bytes: int) -> None:
        self.advance(period_s, rate)
        self.wanted_bytes = wanted_bytes
        self.report = (
            self.quota,
            min(self.pool / period_s, self.quota),
            self.throttled,
            self.used / period_s,
            min(wanted_bytes, self.limit_bytes),
        )
        self.done_s += self.used
        self.nr_periods += self.used > 0.0 or self.throttled
        self.nr_throttled += self.throttled
        self.pool = self.quota * period_s
        self.since, self.used, self.stalled, self.throttled = 0.0, 0.0, 0, False


class Baseline:
    """A fleet of containers of one application under Escra's CPU rule.

    demand, memory: cores and bytes per container and period. limit_cores, limit_bytes: Ω and M. Delays are in
    seconds; the first two together are below a period.
    """

    def __init__(
        self,
        demand: Sequence[Sequence[float]],
        memory: Sequence[Sequence[int]],
        cap: float,
        host_cores: float,
        limit_cores: float,
        limit_bytes: int,
        period_s: float,
        telemetry_delay_s: float,
        quota_write_delay_s: float,
        oom_grant_delay_s: float,
    ) -> None:
        self._books = plain_escra.start(len(demand), limit_cores, host_cores)
        quota = self._books[0].quota
        share = int(limit_bytes * INITIAL_MEMORY) // len(demand) // PAGE_BYTES * PAGE_BYTES
        self.containers = [
            Container(cores, held, share, cap, quota, quota * period_s)
            for cores, held in zip(demand, memory, strict=True)
        ]
        self.pool_bytes = limit_bytes - share * len(demand)
        self.traps = 0
        self._limit_cores, self._period_s = limit_cores, period_s
        self._telemetry_delay_s, self._write_delay_s = telemetry_delay_s, quota_write_delay_s
        self._grant_delay_s = oom_grant_delay_s

    def run(self) -> None:
        """Simulate all periods."""
        env = simpy.Environment()
        for container in self.containers:
            env.process(self._container(env, container))
        periods = len(self.containers[0].demand)
        env.process(self._controller(env, periods))
        env.process(self._agents(env, periods))
        env.run()

    def _container(self, env: simpy.Environment, container: Container) -> Generator[simpy.Event, Any, None]:
        for row, rate in enumerate(container.demand):
            yield env.timeout(self._period_s)
            container.end(self._period_s, rate, container.memory[row])
            if container.wanted_bytes > container.limit_bytes and row + 1 < len(container.demand):
                env.process(self._grant(env, container, container.demand[row + 1]))

    def _grant(
        self, env: simpy.Environment, container: Container, rate: float
    ) -> Generator[simpy.Event, Any, None]:
        """Hold the container until whole steps have made its memory fit."""
        self.traps += 1
        container.held = True
        steps = -((container.limit_bytes - container.wanted_bytes) // GRANT_BYTES)
        self.pool_bytes -= steps * GRANT_BYTES
        if self.pool_bytes < 0:
            raise RuntimeError("the baseline has no reclaim on demand: give it more memory")
        yield env.timeout(self._grant_delay_s)
        container.advance(self._grant_delay_s, rate)
        container.limit_bytes += steps * GRANT_BYTES
        container.held = False

    def _agents(self, env: simpy.Environment, periods: int) -> Generator[simpy.Event, Any, None]:
        for _ in range(int(periods * self._period_s / RECLAIM_INTERVAL_S)):
            yield env.timeout(RECLAIM_INTERVAL_S)
            for container in self.containers:
                wanted = container.wanted_bytes + RECLAIM_MARGIN_BYTES
                wanted += -wanted % PAGE_BYTES
                if wanted < container.limit_bytes:
                    self.pool_bytes += container.limit_bytes - wanted
                    container.limit_bytes = wanted

    def _controller(self, env: simpy.Environment, periods: int) -> Generator[simpy.Event, Any, None]:
        yield env.timeout(self._telemetry_delay_s)
        offset = self._telemetry_delay_s + self._write_delay_s
        for row in range(1, periods):
            yield env.timeout(self._period_s - (self._write_delay_s if row > 1 else 0.0))
            quotas, unused, throttled, _, _ = zip(*(book.report for book in self.containers), strict=True)
            decided = plain_escra.step(self._books, self._limit_cores, quotas, unused, throttled)
            yield env.timeout(self._write_delay_s)
            for index, quota in decided:
                container = self.containers[index]
                container.write(quota, offset, container.demand[row], self._period_s)
