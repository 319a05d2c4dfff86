"""Start real training jobs, stop them, and start them again elsewhere. A gang has a process per GPU.

For: one life of a gang, from its start to its end, in its own cgroups. Not for: the times at which jobs start
and stop (carrying_out.py), nor the cost of a life. A GPU of a type is a CPU quota. While a process starts, or
saves as it is told to end, it has no quota, because that is not work of its GPU. After its first step a
process waits for its quota, so that a late observer gives it no free steps. SIGTERM makes a job save and
end. Like recorded processes, a process has no capability.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from control.scheduler.loops import saved
from testbed.cloud import steps
from testbed.containers import leftovers
from testbed.containers.cgroup.drivers import Driver, detect
from testbed.containers.host.container import Container, ContainerSpec, last_words, remove_all
from testbed.containers.host.identity import Identity
from testbed.containers.host.identity import identity as identity_of
from testbed.containers.interrupts import Interrupts, Undone
from testbed.containers.network import Endpoint
from testbed.containers.ownership import new_run, temporary_directory
from testbed.containers.record.watchdog import watchdog
from twinbed import BackendError

GRACE_S = 20.0
"""Time from SIGTERM to SIGKILL for a job that saves, s. A process that is still starting may need long."""
_GATE = "gate"
"""File of a life. Its processes wait after their first step until the file exists."""


@dataclass(frozen=True, slots=True)
class Training:
    """A job as a program.

    command: command of each process. It takes `--checkpoint FILE --every STEPS`, continues from the file,
        and at SIGTERM saves and ends.
    directory: working folder of the processes.
    processes: number of processes, one per GPU of the gang.
    steps: number of steps until the job ends by itself.
    every: number of steps between two saves.
    """

    command: tuple[str, ...]
    directory: Path
    processes: int
    steps: int
    every: int


@dataclass(slots=True)
class Life:
    """One life of a gang.

    base: number of steps done before it. quota_cores: CPU quota of each process, cores. leaving: monotonic
    time at which the gang was told to end, s; None: it was not told. limited: whether the quota is in force.
    released: whether the processes may go on after their first step.
    """

    base: int
    quota_cores: float
    containers: list[Container]
    folder: Path
    leaving: float | None = None
    limited: bool = False
    released: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """State of a job. done: number of steps. begun: whether this life has taken a step. alive: whether a
    process of it exists."""

    done: int
    begun: bool
    alive: bool


class Gangs(Undone):
    """The jobs' processes; a context manager that ends and removes all that it started.

    Raises BackendError where the machine refuses, ScenarioError for a command that cannot be executed.
    """

    def __init__(
        self, jobs: Sequence[Training], *, driver: Driver | None = None, identity: Identity | None = None
    ) -> None:
        super().__init__()
        self._jobs = jobs
        self._driver = driver or detect()
        self._identity = identity or identity_of(None, (), os.environ)
        self._lives: dict[int, Life] = {}
        self._done = [0] * len(jobs)
        self._further: set[int] = set()
        """Jobs that a signal ended while they saved. Their checkpoint may have more steps."""
        self._started = 0

    def _prepare(self) -> None:
        leftovers.sweep(self._driver)
        interrupts = self._undo.enter_context(Interrupts())
        self._undo.enter_context(watchdog())
        above = self._undo.enter_context(temporary_directory())
        # The jobs' user writes there. The folder above stays this process's, which marks it.
        self._folder = above / "jobs"
        self._identity.make_folder(self._folder)
        self._run = new_run()
        self._undo.callback(self._driver.finish, self._run)
        self._undo.callback(self._end_all)
        self._undo.callback(interrupts.shield)

    def _end_all(self) -> None:
        # A gang that cannot be removed does not stop the removal of the others.
        with ExitStack() as ends:
            for job in list(self._lives):
                ends.callback(self._remove, job)

    def start(self, job: int, servers: Mapping[int, int], quota_cores: float) -> None:
        """Start a gang that is not running. servers: GPUs on each server; quota_cores: quota of each
        process."""
        training, self._started = self._jobs[job], self._started + 1
        folder = self._folder / f"{self._started}"
        with self._identity.acting():
            folder.mkdir()
        life = Life(self._done[job], quota_cores, [], folder)
        self._lives[job] = life
        port = free_port()
        ends = self._endpoints(job, training.processes)
        for rank, end in enumerate(ends):
            inherited = self._identity.environment
            environment = {
                **steps.environment(folder, rank, training.processes, inherited),
                "MASTER_ADDR": "127.0.0.1" if ends[0] is None else ends[0].address,
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo" if end is None else "eth0",
                "TWINBED_GATE": str(folder / _GATE),
            }
            saved = ("--checkpoint", str(self._folder / f"job-{job}"), "--every", str(training.every))
            spec = ContainerSpec(
                f"job-{job}-{self._started}-{rank}",
                (*training.command, *saved),
                env=environment,
                directory=training.directory,
            )
            group = self._driver.create(self._run, spec.name)
            life.containers.append(Container(spec, group, end, self._identity))
        self._launch(job, life, servers)

    def _endpoints(self, job: int, count: int) -> list[Endpoint | None]:  # noqa: ARG002 - others' do
        """Return the networks of a job's processes; None stands for the host's network."""
        return [None] * count

    def _launch(self, job: int, life: Life, servers: Mapping[int, int]) -> None:  # noqa: ARG002 - Slurm's does
        for container in life.containers:
            container.start(life.containers, life.folder / "logs", None)

    def limit(self, job: int, quota_cores: float) -> None:
        """Change the quota of each of a gang's processes, cores, now or from the first step on."""
        life = self._lives[job]
        life.quota_cores = quota_cores
        if life.limited and life.leaving is None:
            self._limit(life, quota_cores)

    def stop(self, job: int) -> None:
        """Tell a gang to save and end. Its processes have ended once `look` says so."""
        life = self._lives[job]
        if life.leaving is None:
            life.leaving = time.monotonic()
            self._limit(life, math.inf)
            self._release(life)
            self._terminate(job, life)

    def _terminate(self, job: int, life: Life) -> None:  # noqa: ARG002 - Slurm's does
        for container in life.containers:
            container.group.send(signal.SIGTERM)

    def kill(self, job: int) -> None:
        """End a gang at once, as a fault of its server does. Its work since the last save is lost."""
        life = self._lives[job]
        # The steps are counted once nothing takes or saves further ones.
        self._remove(job)
        self._done[job] = self._saved(job, life)
        if life.leaving is not None:
            self._further.add(job)

    def look(self, job: int, *, release: bool = True) -> Seen:
        """Return the state of a job, after its quota has been adapted to its phase.

        release: let a gang that has taken its first step go on. Until then it waits.

        Raises BackendError for a job that failed.
        """
        life, training = self._lives.get(job), self._jobs[job]
        if life is None:
            return Seen(self._done[job], begun=False, alive=False)
        new = _steps(life.folder)
        done = min(life.base + new, training.steps)
        if life.leaving is None:
            if done >= training.steps and life.limited:
                self._limit(life, math.inf)
            elif new and release:
                if not life.limited and math.isfinite(life.quota_cores) and done < training.steps:
                    self._limit(life, life.quota_cores)
                    life.limited = True
                self._release(life)
        codes = self._codes(job, life)
        if None in codes:
            if life.leaving is not None and time.monotonic() > life.leaving + GRACE_S:
                self.kill(job)
                return Seen(self._done[job], begun=bool(new), alive=False)
            return Seen(done, begun=bool(new), alive=True)
        short = life.base + _steps(life.folder) < training.steps and job not in self._further
        # A library's threads may abort a process as it exits, after its last step. Its training is done.
        signal_counts = life.leaving is None and short
        failed = [code for code in codes if code and (code > 0 or signal_counts)]
        if failed or (life.leaving is None and short):
            raise BackendError(
                f"job {job} ended with {failed or codes} after {done} steps: {self._last_words(life)}"
            )
        # Only the first process saves. A signal may have ended that process before or after its last save.
        last = min(life.base + _steps(life.folder), training.steps)
        if any(codes[:1]):
            last = self._saved(job, life)
            self._further.add(job)
        self._remove(job)
        self._done[job] = training.steps if life.leaving is None else last
        return Seen(self._done[job], begun=bool(new), alive=False)

    def step_ends_ns(self, job: int) -> NDArray[np.int64]:
        """Return when the steps of a job's present life ended, ns of the monotonic clock, int64[steps]."""
        return steps.step_ends_ns(self._lives[job].folder)

    def _saved(self, job: int, life: Life) -> int:
        """Return the step of a job's last regular save in one of its lives or before it."""
        return int(saved(life.base + _steps(life.folder), life.base, self._jobs[job].every))

    def _codes(self, job: int, life: Life) -> list[int | None]:  # noqa: ARG002 - Slurm's does
        return [container.poll() for container in life.containers]

    def _limit(self, life: Life, cores: float) -> None:
        for container in life.containers:
            container.group.set_cpu_quota(cores)

    def _release(self, life: Life) -> None:
        if not life.released:
            with self._identity.acting():
                (life.folder / _GATE).touch()
            life.released = True

    def _remove(self, job: int) -> None:
        remove_all(self._lives.pop(job).containers)

    def _last_words(self, life: Life) -> str:
        with self._identity.acting():
            return last_words(life.folder / "logs")


def _steps(folder: Path) -> int:
    """Return the number of steps that the first process has recorded in its life."""
    with suppress(FileNotFoundError):
        about = (folder / "0.steps").lstat()
        return about.st_size // 8 if stat.S_ISREG(about.st_mode) else 0
    return 0


def free_port() -> int:
    """Return a port of this machine on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
