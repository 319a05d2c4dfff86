"""Asynchronous training by a parameter server and workers of unequal emulated machines.

For: measuring what spotDNN predicts: the speed of clusters, the traffic and the times of an iteration, and
workers that are killed and replaced while the others continue. Not for: choosing clusters
(control.recommender), nor the processes' program (asynchronous_process.py). A machine is a CPU quota and a
shaped link. All processes start at once; each measurement assigns workers to machines.
"""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from control.jobs import Real
from testbed.cloud.emulated import Cluster, rate
from twinbed.writing import whole

PROGRAM = Path(__file__).with_name("asynchronous_process.py")
SETTLING_PUSHES = 2
"""Pushes of each worker that are not measured after the cluster changed."""
_MB = 1e6
_PUSH = np.dtype([("at_ns", "<i8"), ("rank", "<i8"), ("loss", "<f8")])


@dataclass(frozen=True, slots=True)
class Machine:
    """A worker's emulated machine. name: instance type. cores: CPU quota, cores. samples: its batch."""

    name: str
    cores: float
    samples: int


class Pushes(NamedTuple):
    """k pushes at the server, float64[k] each: time (CLOCK_MONOTONIC, s), worker's rank, loss."""

    at_s: Real
    rank: Real
    loss: Real


@dataclass(frozen=True, slots=True)
class AsynchronousRun:
    """A cluster's measured training.

    time_s: time of `pushes` pushes, s.
    pushes: number of pushes.
    iteration_s: rank → mean time of an iteration of the worker, s.
    moved_s: rank → mean time of its communication per iteration, s.
    push_mb: half of the server's traffic per push, MB.
    """

    time_s: float
    pushes: int
    iteration_s: Mapping[int, float]
    moved_s: Mapping[int, float]
    push_mb: float


class Asynchronous(Cluster):
    """The server's and the workers' processes; a context manager that starts and removes them.

    workers: number of workers, which have the ranks 1, 2, ….
    server_mb_s, worker_mb_s: rate of the server's link and of a worker's link in both directions, MB/s.
    Raises BackendError if the machine refuses.
    """

    _poll_s = 0.02

    def __init__(self, workers: int, server_mb_s: float, worker_mb_s: float) -> None:
        super().__init__((sys.executable, "-P", str(PROGRAM)), workers + 1)
        self._rates = (server_mb_s, *[worker_mb_s] * workers)
        self._machines: dict[int, Machine] = {}
        self._before: dict[int, int] = {}
        """Rank → number of pushes before the rank's process was started; 0 for the first one."""
        self._quota: dict[int, float] = {}
        """Rank → quota in force, cores."""

    def _prepare(self) -> None:
        super()._prepare()
        for endpoint, mb_s in zip(self._endpoints, self._rates, strict=True):
            rate(endpoint.link, 8 * _MB * mb_s)
            rate("eth0", 8 * _MB * mb_s, endpoint.namespace)

    def measure_cluster(
        self, machines: Mapping[int, Machine], pushes: int, *, within_s: float = 120.0
    ) -> AsynchronousRun:
        """Return the cluster's training speed after each worker has settled. machines: rank → machine.

        Raises ScenarioError if a worker ends, or if there are fewer than `pushes` pushes within `within_s`.
        """
        self.train(machines)
        self.settle(within_s)
        traffic, begun = self._endpoints[0].read(), self.pushes().at_s.size
        self._wait(lambda: self.look().at_s.size > begun + pushes, within_s, f"push {pushes} times")
        after, seen = self._endpoints[0].read(), self.pushes().at_s[begun:]
        iteration, moved = {}, {}
        for rank in machines:
            times = self.iterations(rank)
            times = times[(times[:, 0] >= seen[0]) & (times[:, 2] <= seen[-1])]
            iteration[rank] = float((times[:, 2] - times[:, 0]).mean())
            moved[rank] = float((times[:, 2] - times[:, 1]).mean())
        bytes_moved = sum(after) - sum(traffic)
        return AsynchronousRun(
            float(seen[pushes] - seen[0]), pushes, iteration, moved, bytes_moved / (seen.size - 1) / 2 / _MB
        )

    def train(self, machines: Mapping[int, Machine]) -> None:
        """Let these ranks train on these machines. The other ranks wait. Returns at once.

        A process that starts has no quota until its first push, because its imports are not part of its
        machine's work; `look` then puts the quota in force.
        """
        self._machines = dict(machines)
        orders = {rank: machine.samples for rank, machine in machines.items()}
        with self._identity.acting(), whole(self._folder / "cluster.json") as file:
            file.write(json.dumps(orders).encode())

    def settle(self, within_s: float) -> None:
        """Wait until every worker that may train has pushed a few times, which `measure_cluster` also waits
        for."""
        begun = self.pushes().at_s.size

        def settled() -> bool:
            ranks = self.look().rank[begun:]
            return all((ranks == rank).sum() >= SETTLING_PUSHES for rank in self._machines)

        self._wait(settled, within_s, f"settle with {len(self._machines)} workers")

    def watch(self, for_s: float) -> None:
        """Let the cluster train for for_s seconds. Raises ScenarioError if a worker ends."""
        end_s = time.monotonic() + for_s

        def over() -> bool:
            self.look()
            return time.monotonic() >= end_s

        self._wait(over, for_s + 1, "train on")

    def kill(self, rank: int) -> None:
        """End a worker at once, as the loss of its machine does."""
        container = self._containers[rank]
        container.group.send(signal.SIGKILL)
        container.end_at_once()
        self._machines.pop(rank, None)

    def start_again(self, rank: int, machine: Machine) -> None:
        """Start a worker that was killed on a new machine, and let it train."""
        self._before[rank] = self.pushes().at_s.size
        self._quota.pop(rank, None)
        self._containers[rank].group.set_cpu_quota(math.inf)
        self._containers[rank].start(self._containers, self._folder / "logs", None)
        self.train({**self._machines, rank: machine})

    def look(self) -> Pushes:
        """Put the quotas that are due in force, and return all pushes so far."""
        pushes = self.pushes()
        for rank, machine in self._machines.items():
            pushed = rank in pushes.rank[self._before.get(rank, 0) :]
            if pushed and self._quota.get(rank) != machine.cores:
                self._containers[rank].group.set_cpu_quota(machine.cores)
                self._quota[rank] = machine.cores
        return pushes

    def pushes(self) -> Pushes:
        """Return all pushes so far."""
        found = np.frombuffer(self._read("pushes", _PUSH.itemsize), dtype=_PUSH)
        return Pushes(found["at_ns"] * 1e-9, found["rank"].astype(np.float64), found["loss"])

    def iterations(self, rank: int) -> Real:
        """Return float64[k, 3]: when a worker had the parameters, the gradient and the next parameters, s."""
        return np.frombuffer(self._read(f"{rank}.iterations", 24), dtype="<i8").reshape(-1, 3) * 1e-9

    def _read(self, name: str, size: int) -> bytes:
        """Return the complete records of a file of the job's folder."""
        content = b""
        with self._identity.acting(), suppress(FileNotFoundError):
            content = (self._folder / name).read_bytes()
        return content[: len(content) // size * size]

    def _wait(self, reached: Callable[[], bool], within_s: float, what: str) -> None:
        """Wait as `_until` does. A worker that waits for a machine may end meanwhile."""
        self._until(reached, within_s, what, (0, *self._machines))
