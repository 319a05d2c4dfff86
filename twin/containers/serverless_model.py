"""The workload of a serverless function, and the properties of its pods.

For: the workload that serverless.py simulates. Not for: pods' lives (pods.py), nor scenario files
(lab.containers.input.services.serverless). This module does not import the request engine, so that reading a
run does not load the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Application
from control.services import Draw
from twin.containers.model import Floats


@dataclass(frozen=True, slots=True)
class Step:
    """A part of an invocation: CPU work of the pod (cpu), or a wait for an external service such as a store.

    Its length is drawn from `draw` with mean_s (≥ 0; CPU seconds, or seconds) and, for LOGNORMAL, cv.
    """

    cpu: bool
    draw: Draw
    mean_s: float
    cv: float = 0.0

    def sample(self, random: np.random.Generator, count: int) -> Floats:
        """Return lengths, float64[count]."""
        if self.draw == Draw.EXPONENTIAL:
            return random.exponential(self.mean_s, count)
        if self.draw == Draw.LOGNORMAL and self.mean_s > 0.0:
            variance = log(1.0 + self.cv**2)
            return random.lognormal(log(self.mean_s) - variance / 2, sqrt(variance), count)
        return np.full(count, self.mean_s)


@dataclass(frozen=True, slots=True)
class PodSpec:
    """Properties of all pods of a function.

    cores, memory_bytes: the size that the owner requested; policies use it as the profile.
    threads: number of threads; CPU work is divided evenly among them.
    start: wait from the request for a pod to a running process.
    initialise: the runtime's own CPU work before the first invocation.
    keep_alive_s: time for which an idle pod stays, s.
    base_bytes: memory from the start. working_bytes: additional memory during each CPU step.
    retained_bytes: memory that the initialisation leaves until the pod ends.
    """

    cores: float
    memory_bytes: int
    threads: int
    start: Step
    initialise: Step
    keep_alive_s: float
    base_bytes: int
    working_bytes: int
    retained_bytes: int


@dataclass(frozen=True, slots=True)
class Invocations:
    """Independent invocations. at_s: float64[A], ascending in [0, run's length)."""

    at_s: Floats


@dataclass(frozen=True, slots=True)
class Batch:
    """A job: `workers` pods start together at 0 s and take the `tasks` from one list until all are done.

    retries: number of times that a task whose pod was killed is repeated. The run ends with the job.
    """

    tasks: int
    workers: int
    retries: int = 1


@dataclass(frozen=True, slots=True)
class ServerlessWorkload:
    """One function and its invocations.

    It is also a `Population`, whose columns are the pods that may exist at once.

    application: its limits Ω and M. steps: the parts of an invocation or a task, in order.
    max_pods: pods at once (a batch has as many as workers).
    hosts: number of hosts with cores_per_host each; pods are placed on them in turn.
    periods: CFS periods to simulate, for a batch at most.
    phases: number of offsets at which the pods' periods begin (1: all at the same time).
    """

    application: Application
    pod: PodSpec
    steps: tuple[Step, ...]
    load: Invocations | Batch
    max_pods: int
    hosts: int
    cores_per_host: float
    period_s: float
    periods: int
    phases: int = 1

    @property
    def host_memory_bytes(self) -> float:
        """Infinite: the limits decide the number of pods."""
        return inf

    @property
    def report_interval_s(self) -> float:
        """0: pods report when their periods end."""
        return 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the pods that may exist at once; a batch has as many as workers."""
        load = self.load
        count = min(load.workers, self.max_pods) if isinstance(load, Batch) else self.max_pods
        return tuple(f"{self.application.name}-{index + 1}" for index in range(count))

    @property
    def applications(self) -> tuple[Application, ...]:
        """The one application."""
        return (self.application,)

    @property
    def app(self) -> NDArray[np.int64]:
        """Index of the application, int64[N]: zeros."""
        return np.zeros(len(self.names), np.int64)

    @property
    def threads(self) -> Floats:
        """CPUs that a pod can keep busy, float64[N]."""
        return np.full(len(self.names), float(self.pod.threads))

    @property
    def host(self) -> NDArray[np.int64]:
        """Host of each pod, int64[N]: the hosts in turn."""
        return np.arange(len(self.names)) % self.hosts

    @property
    def host_cores(self) -> Floats:
        """Cores of the pod's host, float64[N]."""
        return np.full(len(self.names), self.cores_per_host)

    @property
    def peak_cores(self) -> Floats:
        """CPU size that the pods' owner requested, cores, float64[N]."""
        return np.full(len(self.names), self.pod.cores)

    @property
    def peak_bytes(self) -> NDArray[np.int64]:
        """Memory size that the pods' owner requested, bytes, int64[N]."""
        return np.full(len(self.names), self.pod.memory_bytes, np.int64)
