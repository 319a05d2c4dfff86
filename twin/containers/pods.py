"""Serverless pods: one process per pod, from its cold start through its invocations to the end of its
keep-alive.

For: `PodPool`, which serves invocations with as many pods as it needs and may have. Not for: the arrival of
invocations (serverless.py), nor the CPU and memory inside a pod (requests/physics.py).

An invocation takes the idle pod that was used most recently. If none is idle, a pod is started for it. If no
further pod is allowed, it waits in line (first in, first out). A pod serves one invocation at a time. It is a
container from the moment its start is requested: it has limits and holds memory while it starts up. A pod for
which the application's limits have no room is not started. A pod that is killed or restarted is gone, and its
invocation has failed, like an OpenWhisk activation. A failed invocation returns to the head of the line at
most `retries` times. Source: the serverless evaluation of Escra (ICDCS 2022).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from control.services import RequestStatus
from twin.containers.members import Columns
from twin.containers.model import Floats, Machine
from twin.containers.requests.model import RequestWorkload
from twin.containers.requests.physics import Requests
from twin.containers.serverless_model import PodSpec, Step
from twin.containers.simulation import ControlLoop
from twinbed import ScenarioError

_Process = Generator[simpy.Event, Any, None]


@dataclass(slots=True)
class Ledger:
    """Result of each invocation (arrays over A).

    at_s: time at which it is due, s. start_s, end_s: its begin and its end, s (NaN: never).
    status: `RequestStatus`. cold: a pod was started for it. attempts: number of pods that took it.
    """

    at_s: Floats
    start_s: Floats
    end_s: Floats
    status: NDArray[np.uint8]
    cold: NDArray[np.bool_]
    attempts: NDArray[np.int64]


def new_ledger(at_s: Floats) -> Ledger:
    """Return a ledger of pending invocations that are due at `at_s`."""
    count = len(at_s)
    return Ledger(
        at_s=at_s,
        start_s=np.full(count, np.nan),
        end_s=np.full(count, np.nan),
        status=np.full(count, RequestStatus.PENDING, np.uint8),
        cold=np.zeros(count, np.bool_),
        attempts=np.zeros(count, np.int64),
    )


class PodRequests(Requests):
    """`Requests` that tell the pool which pods the loop has taken down."""

    def __init__(self, workload: RequestWorkload, machine: Machine, seed: np.random.SeedSequence) -> None:
        super().__init__(workload, machine, seed, watch=True, starting=np.empty(0, np.int64))
        self.pool: PodPool | None = None

    def take_down(self, columns: Columns) -> None:
        """See `Physics`. A pod that goes down does not come back."""
        super().take_down(columns)
        if self.pool is not None:
            self.pool.lose(columns)


class PodPool:
    """The pods of one function.

    lengths_s: float64[A, steps], length of each invocation's steps, s. A CPU step's length is that of the
    request kind 1 + a·steps + s; kind 0 initialises a pod. ledger: filled while the simulation runs. random:
    generator of the start-up times.
    """

    def __init__(
        self,
        loop: ControlLoop,
        physics: PodRequests,
        spec: PodSpec,
        steps: Sequence[Step],
        lengths_s: Floats,
        ledger: Ledger,
        retries: int,
        random: np.random.Generator,
    ) -> None:
        self._loop, self._physics, self._env = loop, physics, loop.env
        self._spec, self._steps, self._lengths_s = spec, tuple(steps), lengths_s
        self._ledger, self._retries, self._random = ledger, retries, random
        self._free = list(range(len(physics.group)))  # a heap: the lowest column first
        self._idle: list[tuple[int, simpy.Event]] = []  # the most recently used last
        self._line: deque[int] = deque()
        self._pods: dict[int, simpy.Process] = {}
        self._stillborn: list[int] = []
        self._jobs: dict[int, int] = {}  # each pod's invocation, set once the pod is chosen
        self._computing: dict[int, simpy.Event] = {}
        self.started = 0
        loop.on_signal = self._parts_ended
        physics.pool = self

    def invoke(self, jobs: Sequence[int]) -> None:
        """Take invocations (indices of the ledger) that are due now. Pods that they need start together."""
        self._line.extend(jobs)
        while self._line and self._idle:
            column, wake = self._idle.pop()
            self._assign(column)
            wake.succeed()
        self._grow()

    def lose(self, columns: Columns) -> None:
        """Interrupt pods that the loop has taken down: killed for memory, or restarted for new limits."""
        for column in columns.tolist():
            if column in self._pods:
                self._pods[column].interrupt()
            else:
                self._stillborn.append(column)

    def _grow(self) -> None:
        """Start a pod for each invocation in line, as far as the number of pods and the limits allow."""
        wanted = heapq.nsmallest(min(len(self._line), len(self._free)), self._free)
        columns = wanted[: self._join(np.array(wanted, np.int64))]
        self.started += len(columns)
        starts = self._spec.start.sample(self._random, len(columns))
        for column, start_s in zip(columns, starts.tolist(), strict=True):
            heapq.heappop(self._free)
            self._ledger.cold[self._assign(column)] = True
            self._pods[column] = self._env.process(self._live(column, start_s))
        # These pods were killed for lack of memory as they joined.
        while self._stillborn:
            self._pods[self._stillborn.pop()].interrupt()

    def _join(self, columns: Columns) -> int:
        """Let as many of the columns join as the allocator has room for, from the first on. Return their
        number.

        The others wait in line until a pod leaves, like pods for which no node has room. Raises the
        allocator's ScenarioError if no pod can leave.
        """
        joined, size = 0, len(columns)
        while joined < len(columns) and size > 0:
            try:
                self._loop.join(columns[joined : joined + size])
                joined += size
            except ScenarioError:
                if size == 1 and joined == 0 and not self._pods:
                    raise
                size //= 2
        return joined

    def _assign(self, column: int) -> int:
        """Give the head of the line to this pod."""
        job = self._jobs[column] = self._line.popleft()
        self._ledger.attempts[job] += 1
        return job

    def _live(self, column: int, start_s: float) -> _Process:
        """Run one pod until it is idle for keep_alive_s or is taken down."""
        try:
            yield self._env.timeout(start_s)
            yield self._compute(0, column)
            while column in self._jobs:
                yield from self._serve(column)
                if self._line:
                    self._assign(column)
                else:
                    yield from self._idle_at(column)
        except simpy.Interrupt:
            self._idle = [place for place in self._idle if place[0] != column]
            self._fail(column)
        del self._pods[column]
        self._loop.leave(np.array([column], np.int64))
        heapq.heappush(self._free, column)
        self._grow()

    def _serve(self, column: int) -> _Process:
        ledger, job = self._ledger, self._jobs[column]
        ledger.start_s[job] = self._env.now
        for index, step in enumerate(self._steps):
            if step.cpu:
                yield self._compute(1 + job * len(self._steps) + index, column)
            else:
                yield self._env.timeout(float(self._lengths_s[job, index]))
        ledger.end_s[job] = self._env.now
        ledger.status[job] = RequestStatus.OK
        del self._jobs[column]

    def _idle_at(self, column: int) -> _Process:
        """Wait until the pod gets an invocation, or keep_alive_s has passed."""
        place = column, self._env.event()
        self._idle.append(place)
        yield place[1] | self._env.timeout(self._spec.keep_alive_s)
        if not place[1].triggered:
            self._idle.remove(place)

    def _fail(self, column: int) -> None:
        """Return the pod's invocation to the head of the line, or let it fail."""
        ledger, job = self._ledger, self._jobs.pop(column, None)
        if job is None:
            return
        if ledger.attempts[job] <= self._retries:
            self._line.appendleft(job)
            return
        ledger.end_s[job] = self._env.now
        ledger.status[job] = RequestStatus.FAILED

    def _compute(self, kind: int, column: int) -> simpy.Event:
        """Start CPU work of a kind on each thread of a pod. The event fires when all parts have ended."""
        ended = [self._env.event() for _ in range(self._spec.threads)]
        for event in ended:
            self._computing[self._physics.inject(kind, column)] = event
        return self._env.all_of(ended)

    def _parts_ended(self) -> None:
        for index in self._physics.take_finished().tolist():
            self._computing.pop(index).succeed()
