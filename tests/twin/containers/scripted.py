"""Small workloads, and an allocator that decides as a test says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from control.allocator.model import (
    NOTHING,
    Application,
    CpuLimits,
    Decision,
    Join,
    MemoryLimits,
    Reason,
    Shrunk,
    reasons,
)
from control.allocator.ports import Allocator
from tests.contract import scripted_allocator
from tests.contract.scripted_allocator import NO_LIMIT as NO_LIMIT
from twin.containers.model import Machine, Outcome, Workload
from twin.containers.run import simulate
from twin.containers.steady import Load

PERIOD_S = 0.1


def cpu(ids, cores, reason=Reason.RECOMMENDED):
    ids = np.atleast_1d(ids)
    return CpuLimits(ids, np.full(len(ids), cores, np.float64), reasons(len(ids), reason))


def ram(ids, limit, reason=Reason.OOM_GRANT):
    ids = np.atleast_1d(ids)
    return MemoryLimits(ids, np.full(len(ids), limit, np.int64), reasons(len(ids), reason))


@dataclass
class Scripted(scripted_allocator.Scripted):
    """An allocator that gives everyone the same first limits, then decides by the callbacks. It also keeps
    what was reclaimed."""

    reclaimed: Callable[[Shrunk], Decision | None] = lambda shrunk: None
    shrunk: list[Shrunk] = field(default_factory=list)

    def on_join(self, containers: Join) -> Decision:
        ids = self.roster.join(containers)
        return Decision(cpu(ids, self.quota, Reason.JOINED), ram(ids, self.limit, Reason.JOINED))

    def on_reclaimed(self, shrunk: Shrunk) -> Decision:
        self.shrunk.append(shrunk)
        return self.reclaimed(shrunk) or NOTHING


def workload(
    demand, memory=0, present=True, threads=1.0, host=4.0, applications=1, on=None, weight=1.0
) -> Workload:
    """host: cores of each container's host. on: the hosts they stand on; without it each has its own."""
    demand = np.array(demand, np.float64)
    if demand.ndim == 1:
        demand = demand[:, None]
    count = demand.shape[1]
    memory = np.array(memory, np.int64)
    present = np.array(present, np.bool_)
    memory = memory[:, None] if memory.ndim == 1 else memory
    present = present[:, None] if present.ndim == 1 else present
    return Workload(
        names=tuple(f"c{i}" for i in range(count)),
        applications=tuple(Application(f"a{i}", 64.0, 1 << 40) for i in range(applications)),
        app=np.arange(count) % applications,
        period_s=PERIOD_S,
        demand_cores=demand,
        memory_bytes=np.broadcast_to(memory, demand.shape).copy(),
        present=np.broadcast_to(present, demand.shape).copy(),
        threads=np.broadcast_to(np.array(threads, np.float64), count).copy(),
        host=np.arange(count) if on is None else np.array(on, np.int64),
        host_cores=np.broadcast_to(np.array(host, np.float64), count).copy(),
        weight=np.broadcast_to(np.array(weight, np.float64), count).copy(),
        peak_cores=demand.max(axis=0),
        peak_bytes=np.full(count, 1 << 20),
    )


def steady_load(cores, memory=None, *, bursts=(1.0,), present=None):
    """Containers (rows) over intervals as long as the bursts; all intervals have the only shape."""
    values = np.array(cores, np.float64)
    held = np.zeros(values.shape, np.int64) if memory is None else np.array(memory, np.int64)
    there = np.ones(values.shape, np.bool_) if present is None else np.array(present, np.bool_)
    shape = np.zeros(values.shape, np.uint8)
    return Load(values, held, there, 0.1 * len(bursts), np.array([bursts], np.float64), shape)


def machine(**changes) -> Machine:
    """No delays unless a test asks for them."""
    return replace(Machine(0.0, 0.0, 0.0, 0.0, 0.0, restart_s=0.25), **changes)


def run(load: Workload, allocator: Allocator, on: Machine, seed: int = 0, **options: Any) -> Outcome:
    return simulate(load, allocator, on, seed=np.random.SeedSequence(seed), **options)
