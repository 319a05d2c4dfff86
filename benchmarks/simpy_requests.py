"""The straightforward model of requests through a chain of services: SimPy processes and a resource.

For: the baseline of bench_requests, and an independent check of the engine, request by request. One process
per request visits the services in turn. It takes one of the service's workers (a SimPy Resource), burns the
first half of its CPU demand, waits for its callee, burns the second half, and gives the worker back. The
requests that burn CPU share a service's CPUs evenly (egalitarian processor sharing on `cap` CPUs), and burn
the period's pool together. When it is empty, all wait for the period's end. What a CPU took of it and did not
use is there beside the next pool. It leaves out, to its advantage, all else that twin.containers.requests can
do. Not for: use.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import simpy

OVERDRAFT_S = 1e-10  # as in the engine: a pool that lasts exactly to its period's end is not exhausted
SILO_S, SLICE_S = 0.001, 0.005  # run time that a CPU keeps beyond the period, and takes at a time


class Cpu:
    """`cap` CPUs under a quota, shared evenly by the callers of `burn`. Units are seconds and cores.

    Each caller of `burn` waits for an event of its own. One process sleeps until the next caller is done or
    the pool is empty. A plain event wakes it when a caller comes or the pool is filled.
    """

    def __init__(self, env: simpy.Environment, cap: float, quota: float, period_s: float) -> None:
        self._env, self._cap, self._full = env, cap, quota * period_s
        self.pool = self._full
        self.used = self._silo_end = 0.0
        self._since = 0.0
        self._jobs: list[list[Any]] = []  # [seconds left, event]
        self._throttled = False
        self._changed = env.event()
        env.process(self._run())
        env.process(self._periods(period_s))

    def burn(self, seconds: float) -> simpy.Event:
        """Return an event that happens when `seconds` of CPU time have been burnt."""
        self._account()
        done = self._env.event()
        self._jobs.append([seconds, done])
        self._wake()
        return done

    def _wake(self) -> None:
        if not self._changed.triggered:
            self._changed.succeed()

    def _account(self) -> None:
        passed, self._since = self._env.now - self._since, self._env.now
        if self._jobs and not self._throttled:
            rate = min(len(self._jobs), self._cap)
            self.pool -= rate * passed
            self.used += rate * passed
            burnt_s = rate / len(self._jobs) * passed
            for job in self._jobs:
                job[0] -= burnt_s

    def _run(self) -> Generator[simpy.Event, Any, None]:
        env = self._env
        while True:
            self._changed = env.event()
            if not self._jobs or self._throttled:
                yield self._changed
                continue
            rate = min(len(self._jobs), self._cap)
            least = min(self._jobs, key=lambda job: job[0])
            finishes_s = max(least[0], 0.0) * len(self._jobs) / rate
            empty_s = (self.pool + OVERDRAFT_S) / rate
            sleep = env.timeout(min(finishes_s, empty_s))
            yield sleep | self._changed
            if not sleep.processed:
                continue
            self._account()
            if empty_s < finishes_s:
                self._throttled = True
            else:
                self._jobs.remove(least)
                taken = self.used - self._silo_end
                if not self._jobs and taken > 0.0:
                    self._silo_end = self.used + min(SILO_S, -taken % SLICE_S)
                least[1].succeed()

    def _periods(self, period_s: float) -> Generator[simpy.Event, Any, None]:
        row = 0
        while True:
            row += 1
            yield self._env.timeout(row * period_s - self._env.now)
            self._account()
            kept = self._silo_end - self.used
            if kept < 0.0 and self._jobs:
                kept = SLICE_S - -kept % SLICE_S
            kept = max(min(kept, self.pool), 0.0)
            self._silo_end = self.used + kept
            self.pool = min(self.pool - kept + self._full, self._full) + kept
            self._throttled = False
            self._wake()


class Chain:
    """Services that a client calls in turn: each has `workers` workers and `cap` CPUs under `quota` cores."""

    def __init__(self, services: int, cap: float, quota: float, workers: int, period_s: float) -> None:
        self.env = simpy.Environment()
        self.cpus = [Cpu(self.env, cap, quota, period_s) for _ in range(services)]
        self._workers = [simpy.Resource(self.env, workers) for _ in range(services)]
        self.ends_s: list[float] = []
        self.hops = 0

    def run(self, at_s: Sequence[float], demands_s: Sequence[Sequence[float]], until_s: float) -> None:
        """Simulate requests due at `at_s`, each with its CPU seconds at every service, up to `until_s`."""
        self.ends_s = [float("nan")] * len(at_s)
        self.env.process(self._client(at_s, demands_s))
        self.env.run(until=until_s)

    def _client(
        self, at_s: Sequence[float], demands_s: Sequence[Sequence[float]]
    ) -> Generator[simpy.Event, Any, None]:
        for index, (due_s, demand_s) in enumerate(zip(at_s, demands_s, strict=True)):
            yield self.env.timeout(due_s - self.env.now)
            self.env.process(self._request(index, demand_s))

    def _request(self, index: int, demand_s: Sequence[float]) -> Generator[simpy.Event, Any, None]:
        yield from self._visit(0, demand_s)
        self.ends_s[index] = self.env.now

    def _visit(self, service: int, demand_s: Sequence[float]) -> Generator[simpy.Event, Any, None]:
        with self._workers[service].request() as worker:
            yield worker
            if service + 1 == len(self.cpus):
                yield self.cpus[service].burn(demand_s[service])
            else:
                yield self.cpus[service].burn(demand_s[service] / 2)
                yield from self._visit(service + 1, demand_s)
                yield self.cpus[service].burn(demand_s[service] / 2)
        self.hops += 1
