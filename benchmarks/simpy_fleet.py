"""The straightforward model of a fleet's job: SimPy, a timeout for every iteration.

For: the baseline of bench_fleet. There is a process for each cause of faults and one for the job. The job
waits out each iteration, save and start, and is interrupted by faults that it does not survive. It leaves
out, to its advantage: swaps of hosts, second faults of an attachment, stalls that overlap, idle times of the
network. Spares never run out. Not for: use.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

Steps = Generator[simpy.Event, Any, None]


@dataclass(slots=True)
class Job:
    """A job and its faults.

    iteration_s: length of an iteration, s: healthy, and while an attachment lacks an uplink.
    edges: for each cause at the edge: faults of the whole fleet per second, and repair time, s.
    host_per_s: faults of all hosts per second.
    stall_s: length of the job's stall at an edge fault, s.
    """

    iteration_s: tuple[float, float]
    sigma: float
    interval_s: float
    save_s: float
    restart_s: float
    edges: tuple[tuple[float, float], ...]
    host_per_s: float
    stall_s: float
    env: simpy.Environment = field(default_factory=simpy.Environment)
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    degraded: int = 0
    stalled_s: float = 0.0
    kept: int = 0
    deaths: int = 0
    running: bool = True
    iterations: list[float] = field(default_factory=list)

    def run(self, duration_s: float) -> None:
        """Simulate duration_s seconds."""
        job = self.env.process(self._job())
        for per_s, repair_s in self.edges:
            self.env.process(self._edge(per_s, repair_s))
        self.env.process(self._hosts(job))
        self.env.run(until=duration_s)

    def _job(self) -> Steps:
        pending, pending_s = 0, 0.0
        while True:
            try:
                yield from self._iterate()
                pending, pending_s = pending + 1, pending_s + self.iterations[-1]
                if pending_s >= self.interval_s:
                    yield self.env.timeout(self.save_s)
                    self.kept, pending, pending_s = self.kept + pending, 0, 0.0
            except simpy.Interrupt:
                self.running, pending, pending_s = False, 0, 0.0
                self.deaths += 1
                yield self.env.timeout(self.restart_s)
                self.running = True

    def _iterate(self) -> Steps:
        began = self.env.now
        pace = self.rng.lognormvariate(-(self.sigma**2) / 2, self.sigma)
        yield self.env.timeout(self.iteration_s[self.degraded > 0] * pace)
        while self.stalled_s > 0:
            stalled_s, self.stalled_s = self.stalled_s, 0.0
            yield self.env.timeout(stalled_s)
        self.iterations.append(self.env.now - began)

    def _edge(self, per_s: float, repair_s: float) -> Steps:
        while True:
            yield self.env.timeout(self.rng.expovariate(per_s))
            self.stalled_s += self.stall_s
            self.env.process(self._repair(repair_s))

    def _repair(self, repair_s: float) -> Steps:
        self.degraded += 1
        yield self.env.timeout(repair_s)
        self.degraded -= 1

    def _hosts(self, job: simpy.Process) -> Steps:
        while True:
            yield self.env.timeout(self.rng.expovariate(self.host_per_s) if self.host_per_s else math.inf)
            if self.running:
                job.interrupt()
