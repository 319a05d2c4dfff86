"""The straightforward model of the same containers: one SimPy process each, one timeout per period.

For: the baseline of bench_twin. Per period and container the same CPU physics as twin.containers (fluid
work, quota exhausted early by several threads, refill by a quota write) and the same Escra CPU rule, in
plain Python. Not in it, to its advantage: memory, telemetry jitter, recording, joins and leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from math import floor
from typing import Any

import simpy

KAPPA, GAMMA_CORES, UPSILON, WINDOW = 0.8, 0.2, 0.20, 5
MIN_CHANGE, MIN_QUOTA_S, MICRO = 0.01, 0.001, 1e6


@dataclass(slots=True)
class Container:
    """One container's state; seconds and cores as in twin.containers.cfs."""

    demand: Sequence[float]
    cap: float
    host_cores: float
    quota: float
    pool: float
    backlog: float = 0.0
    used: float = 0.0
    throttled: bool = False
    stalled: bool = False
    since: float = 0.0
    done_s: float = 0.0
    nr_throttled: int = 0
    flags: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))
    unused: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    report: tuple[float, float, bool] = (0.0, 0.0, False)

    def advance(self, offset: float, rate: float) -> None:
        wall_s, self.since = offset - self.since, offset
        offered = self.backlog + rate * wall_s
        if self.stalled:
            self.backlog = offered
            return
        wanted = min(self.cap * wall_s, offered)
        done = min(wanted, self.pool)
        self.stalled = wanted > self.pool + 1e-9
        self.throttled = self.throttled or self.stalled
        self.backlog, self.pool, self.used = offered - done, self.pool - done, self.used + done

    def write(self, quota: float, offset: float, rate: float, period_s: float) -> None:
        self.advance(offset, rate)
        self.quota, self.stalled = quota, False
        self.pool = min(self.pool + quota * period_s, quota * period_s)

    def end(self, period_s: float, rate: float) -> None:
        self.advance(period_s, rate)
        self.report = (self.quota, min(self.pool / period_s, self.quota), self.throttled)
        self.done_s += self.used
        self.nr_throttled += self.throttled
        self.pool = self.quota * period_s
        self.since, self.used, self.stalled, self.throttled = 0.0, 0.0, False, False


class Baseline:
    """A fleet of containers of one application under Escra's CPU rule.

    demand: per container its cores per period; limit_cores: Ω; delays in seconds, together below a period.
    """

    def __init__(
        self,
        demand: Sequence[Sequence[float]],
        cap: float,
        host_cores: float,
        limit_cores: float,
        period_s: float,
        telemetry_delay_s: float,
        quota_write_delay_s: float,
    ) -> None:
        quota = min(limit_cores / len(demand), host_cores)
        self.containers = [Container(each, cap, host_cores, quota, quota * period_s) for each in demand]
        self._limit_cores, self._period_s = limit_cores, period_s
        self._telemetry_delay_s, self._write_delay_s = telemetry_delay_s, quota_write_delay_s

    def run(self) -> None:
        """Simulates all periods."""
        env = simpy.Environment()
        for container in self.containers:
            env.process(self._container(env, container))
        periods = len(self.containers[0].demand)
        env.process(self._controller(env, periods))
        env.run()

    def _container(self, env: simpy.Environment, container: Container) -> Generator[simpy.Event, Any, None]:
        for rate in container.demand:
            yield env.timeout(self._period_s)
            container.end(self._period_s, rate)

    def _controller(self, env: simpy.Environment, periods: int) -> Generator[simpy.Event, Any, None]:
        yield env.timeout(self._telemetry_delay_s)
        offset = self._telemetry_delay_s + self._write_delay_s
        for row in range(1, periods):
            yield env.timeout(self._period_s - (self._write_delay_s if row > 1 else 0.0))
            decided = self._decide()
            yield env.timeout(self._write_delay_s)
            for container, quota in decided:
                container.write(quota, offset, container.demand[row], self._period_s)

    def _decide(self) -> list[tuple[Container, float]]:
        pool = self._limit_cores - sum(container.quota for container in self.containers)
        wanted: list[tuple[Container, float]] = []
        for container in self.containers:
            quota, unused, throttled = container.report
            container.flags.append(throttled)
            container.unused.append(unused)
            target = quota
            if throttled:
                target += sum(container.flags) / len(container.flags) * UPSILON * pool
            elif unused > GAMMA_CORES:
                target -= KAPPA * min(sum(container.unused) / len(container.unused), unused)
            else:
                continue
            target = max(min(target, container.host_cores), MIN_QUOTA_S / self._period_s)
            wanted.append((container, floor(target * MICRO) / MICRO))
        rise = sum(max(target - container.quota, 0.0) for container, target in wanted)
        share = pool / rise if rise > pool else 1.0
        decided = []
        for container, target in wanted:
            delta = target - container.quota
            if delta > 0.0:
                delta = floor(delta * share * MICRO) / MICRO
            if abs(delta) >= max(container.quota * MIN_CHANGE, 1 / MICRO):
                decided.append((container, container.quota + delta))
        return decided
