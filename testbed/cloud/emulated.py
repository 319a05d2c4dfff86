"""Clusters of instance types emulated at a scale, and real training jobs measured on them.

For: measured step times. CPU quota, link rates and memory are those of a type, divided by one factor.
Computing and communicating keep their ratio, and a step takes that many times as long as on a machine of that
type with this machine's cores. Not for: choosing what to measure, nor properties that a quota cannot emulate:
other CPUs, caches, sockets, GPUs, disks. Limits change while the job runs, so one start serves every type.
HTB shapes links in both directions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from control.jobs import InstanceType
from testbed import waiting
from testbed.cloud import steps
from testbed.containers import leftovers, machine, network
from testbed.containers.cgroup.drivers import detect
from testbed.containers.host.container import Container, ContainerSpec, last_words, stop
from testbed.containers.host.identity import Identity
from testbed.containers.host.identity import identity as identity_of
from testbed.containers.interrupts import Interrupts, Undone
from testbed.containers.ownership import new_run, temporary_directory
from twinbed import ScenarioError

WARM_UP_STEPS = 3
"""Number of steps under new limits that are not measured, because buffers still hold data sent under the old
limits.
"""
STEPS = 20
"""Least number of steps that are measured."""
LEAST_S = 2.0
"""Least time that they take, s. A quota holds over periods of 0.1 s, and steps that fit into the rest of one
run at full speed.
"""
QUIET_CORES = 0.3
"""CPU use of other processes, cores, above which steps are timed again."""
_TRIES = 2
SCALE = 1 / 48
"""Ratio of emulated to real cores, link rates and memory."""


@dataclass(frozen=True, slots=True)
class Emulated:
    """The limits of one worker.

    name: instance type.
    cores: CPU quota, cores.
    network_bps: link rate, bit/s; inf: no shaping, as before any rate was set.
    memory_bytes: memory, bytes.
    """

    name: str
    cores: float
    network_bps: float
    memory_bytes: int


def emulated(kind: InstanceType) -> Emulated:
    """Return a type's scaled limits. Raises ScenarioError for a type with GPUs or without a network rate."""
    if kind.gpus:
        raise ScenarioError(f"type {kind.name} has GPUs, which cannot be emulated here; leave it out")
    if not kind.network_bps > 0:
        raise ScenarioError(f"type {kind.name} has no network_bps; state one in the catalogue")
    return Emulated(
        kind.name,
        kind.vcpus * SCALE,
        kind.network_bps * SCALE,
        int(kind.memory_gib * 2**30 * SCALE),
    )


@dataclass(frozen=True, slots=True)
class EmulatedRun:
    """One run of a job on one cluster.

    step_s: time of each step of rank 0 after warming up, s, float64[k].
    cpu_cores: mean CPU use per worker, cores.
    fits: whether the job's processes fit into the type's memory; if not, the job did not run and k = 0.
    first: number of the first of these steps since the job's start, from 0.
    """

    step_s: np.ndarray
    cpu_cores: float
    fits: bool
    first: int = 0


class Cluster(Undone):
    """The processes of a job, one per worker; a context manager that starts and removes them.

    command: command of each process. The process must run until it is ended.
    noise_steps: number of steps whose gradients are measured.
    identity: user of the processes, without capabilities, and their environment; None: the user who
        called sudo, or else the user of this process.
    Raises ScenarioError for a command that cannot be executed, BackendError if the machine refuses.
    """

    _poll_s = 0.05
    """Time between two checks of the job, s."""

    def __init__(
        self,
        command: Sequence[str],
        workers: int,
        *,
        directory: Path | None = None,
        noise_steps: int = 0,
        identity: Identity | None = None,
    ) -> None:
        if workers < 1:
            raise ScenarioError(f"{workers} workers: expected at least 1")
        super().__init__()
        self._command, self._workers, self._directory = tuple(command), workers, directory
        self._noise_steps = noise_steps
        self._driver = detect()
        self._identity = identity or identity_of(None, (), os.environ)
        self._containers: list[Container] = []

    def _prepare(self) -> None:
        leftovers.sweep(self._driver)
        interrupts = self._undo.enter_context(Interrupts())
        # The job's user writes its steps and logs there.
        self._folder = self._undo.enter_context(temporary_directory()) / "job"
        self._identity.make_folder(self._folder)
        run = new_run()
        self._undo.callback(self._driver.finish, run)
        names = [f"worker-{index}" for index in range(self._workers)]
        names[0] = "master"
        groups = []
        for name in names:
            groups.append(self._driver.create(run, name))
            self._undo.callback(groups[-1].remove)
        networks = network.Network(run, names)
        self._undo.callback(networks.remove)
        self._endpoints = list(networks.endpoints)
        for endpoint in self._endpoints:
            _shaped(endpoint.link)
            _shaped("eth0", endpoint.namespace)
        for rank, name in enumerate(names):
            inherited = self._identity.environment
            environment = steps.environment(self._folder, rank, self._workers, inherited, self._noise_steps)
            spec = ContainerSpec(name, self._command, env=environment, directory=self._directory)
            self._containers.append(Container(spec, groups[rank], self._endpoints[rank], self._identity))
        self._undo.callback(lambda: stop(self._containers, lambda: interrupts.hurry))
        self._undo.callback(interrupts.shield)
        for container in self._containers:
            container.start(self._containers, self._folder / "logs", None)

    def wait_for_steps(self, within_s: float, count: int = WARM_UP_STEPS) -> None:
        """Wait until the job has taken its first steps. Raises ScenarioError if it does not, or ends."""
        self._until(lambda: self._steps() > count, within_s, "take its first steps")

    def noise(self, batch: int) -> float:
        """Return the noise scale of the gradients, samples, NaN if it is not known. batch: per process."""
        with self._identity.acting():
            return steps.noise(self._folder, self._workers, batch)

    @property
    def model(self) -> steps.Model:
        """The model that the job trains. It is known after the first step."""
        with self._identity.acting():
            return steps.model(self._folder)

    def measure(self, kind: Emulated, *, count: int = STEPS, within_s: float = 120.0) -> EmulatedRun:
        """Return `count` steps or more on a cluster of a type after warming up, on a quiet machine.

        They take LEAST_S or longer. They are measured again if other processes used the machine. The quieter
        measurement counts. Raises ScenarioError if the job ends or takes fewer steps within `within_s`.
        """
        held = max(container.group.charged_bytes() for container in self._containers)
        if held > kind.memory_bytes:
            return EmulatedRun(np.empty(0), float("nan"), fits=False)
        self._limit(kind)
        self._past(WARM_UP_STEPS, within_s)
        tries = []
        for _ in range(_TRIES):
            tries.append(self._measure(count, within_s))
            if tries[-1][0] <= QUIET_CORES:
                break
        return min(tries, key=lambda measured: measured[0])[1]

    def _measure(self, count: int, within_s: float) -> tuple[float, EmulatedRun]:
        """Return the CPU use of other processes during the measurement, cores, and the measurement."""
        begun, cpu_ns, at_ns, busy_s = self._steps(), self._cpu_ns(), time.monotonic_ns(), cpu_busy_s()
        ends_ns = np.empty(0, np.int64)

        def enough() -> bool:
            nonlocal ends_ns
            ends_ns = self._step_ends_ns()[begun:]
            return len(ends_ns) > count and ends_ns[-1] - ends_ns[0] >= LEAST_S * 1e9

        self._until(enough, within_s, f"take {count} steps in {LEAST_S:g} s or more")
        took_ns, ours_ns = time.monotonic_ns() - at_ns, self._cpu_ns() - cpu_ns
        others = ((cpu_busy_s() - busy_s) * 1e9 - ours_ns) / took_ns
        cores = ours_ns / took_ns / self._workers
        return others, EmulatedRun(np.diff(ends_ns) * 1e-9, cores, fits=True, first=begun + 1)

    def _limit(self, kind: Emulated) -> None:
        for container, endpoint in zip(self._containers, self._endpoints, strict=True):
            container.group.set_cpu_quota(kind.cores)
            container.group.set_memory_limit(kind.memory_bytes)
            if np.isfinite(kind.network_bps):
                rate(endpoint.link, kind.network_bps)
                rate("eth0", kind.network_bps, endpoint.namespace)

    def _past(self, count: int, within_s: float) -> None:
        goal = self._steps() + count
        self._until(lambda: self._steps() >= goal, within_s, f"take {count} steps")

    def _until(
        self, reached: Callable[[], bool], within_s: float, what: str, ranks: Collection[int] | None = None
    ) -> None:
        """Wait until `reached` returns True. Raises ScenarioError if one of these ranks (None: of all) ends
        before, or if it takes longer than within_s. what: what the job is to do, for the message."""

        def checked() -> bool:
            if reached():
                return True
            for rank in range(self._workers) if ranks is None else ranks:
                if self._containers[rank].poll() is not None:
                    raise ScenarioError(f"rank {rank} ended before it could {what}: {self._last_words(rank)}")
            return False

        if not waiting.until(checked, within_s, self._poll_s):
            raise ScenarioError(f"the job did not {what} within {within_s:g} s")

    def _steps(self) -> int:
        return len(self._step_ends_ns())

    def _step_ends_ns(self) -> NDArray[np.int64]:
        # The job may have put links into its folder.
        with self._identity.acting():
            return steps.step_ends_ns(self._folder)

    def _cpu_ns(self) -> int:
        return sum(container.group.read().cpu_ns for container in self._containers)

    def _last_words(self, rank: int) -> str:
        with self._identity.acting():
            return last_words(self._folder / "logs", self._containers[rank].spec.name)


def cpu_busy_s() -> float:
    """Return the CPU seconds that this machine has used since its start, without niced tasks."""
    times = machine.cpu_times()
    return times.used_s - times.nice_s + times.stolen_s


def shape(endpoint: network.Endpoint, rate_bps: float) -> None:
    """Give an endpoint's link a rate in both directions, bit/s. Raises BackendError if tc is refused."""
    for link, namespace in ((endpoint.link, None), ("eth0", endpoint.namespace)):
        _shaped(link, namespace)
        rate(link, rate_bps, namespace)


def _shaped(link: str, namespace: str | None = None) -> None:
    """Shape the traffic that leaves by a link, in a namespace if given. `rate` sets its rate."""
    _tc(f"qdisc add dev {link} root handle 1: htb default 1", namespace)


def rate(link: str, rate_bps: float, namespace: str | None = None) -> None:
    """Change the rate of the traffic that leaves by a shaped link, bit/s."""
    _tc(f"class replace dev {link} parent 1: classid 1:1 htb rate {rate_bps:.0f}bit quantum 15140", namespace)


def _tc(command: str, namespace: str | None) -> None:
    network.batch("tc", command, namespace=namespace)
