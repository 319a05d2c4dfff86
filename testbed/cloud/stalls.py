"""The profiler's runs on this machine: a real job on one worker and on all workers, from memory and from
files.

For: the time of each run under an instance type's limits, and the twin's inputs for predicting it:
all-reduces between the workers, and the time to read a sample. A GPU is a process with the type's CPU quota;
the interconnect is veth pairs without shaping, the network veth pairs with the type's rate. Memory is not
limited, because the page cache counts as memory. Every repeat is a new start of the job, because the phases
of the workers' quota periods are random at a start. Not for: comparing the runs (control.profiler.stalls).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from control.profiler.stalls import Profiled, Reading, Run, Timing, again
from testbed.cloud import all_reduce
from testbed.cloud.emulated import STEPS, Cluster, Emulated
from testbed.cloud.steps import Model
from testbed.containers.cgroup.group import NO_LIMIT_BYTES
from testbed.containers.host.identity import Identity
from testbed.containers.ownership import temporary_directory
from twinbed import BackendError, ScenarioError

ON_DISK = Path("/var/tmp")
"""Folder of temporary files that are on a disk. /tmp may be in memory."""

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_PAGE_CACHE = "1"
"""Value that is written to DROP_CACHES to drop the pages of files
(Documentation/admin-guide/sysctl/vm.rst)."""
_WITHIN_S = 240.0
"""Longest time until a job's first steps, s, with the writing of its file, and of a run's steps."""
_CYCLES = 8
"""Number of times that each size is all-reduced."""
_READS = 400
"""Number of samples that are read to time the disk."""
_CHUNK_BYTES = 1 << 20
_SAID = {
    Run.ALONE: "1 worker, samples in memory",
    Run.TOGETHER: "all workers, samples in memory",
    Run.COLD: "all workers, samples on the disk",
    Run.WARM: "all workers, samples in the page cache",
    Run.APART: "all workers, the type's links between them",
}
"""What `told` says of each run."""


@dataclass(frozen=True, slots=True)
class Profiler:
    """The command and the source of samples of a job.

    command: returns the job's command for a source of samples: `kept`, or a file's path, which the job writes
        if the file does not exist. It must run until it is ended.
    kept: source for samples in memory.
    directory: working folder of the job; None: the current one.
    identity: user and environment of the job.
    count: number of steps of each repeat.
    batch: samples per worker and step; None: the first dimension of the model's input.
    told: function called with a description as a run begins.
    """

    command: Callable[[str], Sequence[str]]
    kept: str
    directory: Path | None
    identity: Identity
    count: int = STEPS
    batch: int | None = None
    told: Callable[[str], None] = lambda _: None

    def profile(self, jobs: Sequence[Profiled]) -> None:
        """Make the runs of `jobs` and record them there. All are one job under the limits of several types.

        Raises ScenarioError if the job ends or cannot be run, BackendError if the machine refuses.
        """
        with self._folder() as folder:
            data = folder / "samples"
            while any(_lacks(job, *Run) for job in jobs):
                model = self._round(jobs, data)
            self._read(jobs, data, model.input_bytes)
        for job in jobs:
            job.gradient_bytes = model.gradient_bytes
        if jobs[0].workers > 1:
            self._all_reduce(jobs)

    def _round(self, jobs: Sequence[Profiled], data: Path) -> Model:
        """Make the runs that are missing or must be repeated. The job starts once for each pair of a data
        source and a number of workers."""
        workers = jobs[0].workers
        with self._started(self.command(self.kept), 1) as cluster:
            model = cluster.model
            for job in jobs:
                job.batch = self.batch or model.batch
                self._run(Run.ALONE, cluster, job)
        if any(_lacks(job, Run.TOGETHER, Run.APART) for job in jobs):
            with self._started(self.command(self.kept), workers) as cluster:
                # A link keeps its rate once it is set, so the runs without a rate come first.
                for run in (Run.TOGETHER, Run.APART):
                    for job in jobs:
                        self._run(run, cluster, job)
        if any(_lacks(job, Run.COLD, Run.WARM) for job in jobs):
            with self._started(self.command(str(data)), workers) as cluster:
                if not data.exists():
                    raise ScenarioError("the job wrote no samples to the file given by {data}")
                for job in jobs:
                    read_through(data)
                    self._run(Run.WARM, cluster, job)
                    try:
                        drop(data)
                    except BackendError as error:
                        job.refused = str(error)
                    self._run(Run.COLD, cluster, job)
        return model

    def _run(self, run: Run, cluster: Cluster, job: Profiled) -> None:
        if _lacks(job, run):
            before = job.timings[run].seconds if run in job.timings else ()
            self.told(f"{job.type}: {_SAID[run]}, repeat {len(before) + 1}")
            limits = _limits(job, shaped=run is Run.APART)
            step_s = cluster.measure(limits, count=self.count, within_s=_WITHIN_S).step_s
            job.timings[run] = Timing((*before, self.count * float(step_s.mean())), self.count * job.batch)

    def _read(self, jobs: Sequence[Profiled], data: Path, size: int) -> None:
        read_through(data)
        warm, cold = read(data, size, seed=0), None
        if not any(job.refused for job in jobs):
            drop(data)
            cold = read(data, size, seed=1)
        for job in jobs:
            job.warm, job.cold = warm, cold

    def _all_reduce(self, jobs: Sequence[Profiled]) -> None:
        self.told("all-reduces between the workers")
        sizes = len(all_reduce.SIZES)
        with self._started((sys.executable, "-P", all_reduce.__file__), jobs[0].workers) as cluster:
            for job in jobs:
                measured = cluster.measure(_limits(job), count=_CYCLES * sizes, within_s=_WITHIN_S)
                which = (measured.first + np.arange(len(measured.step_s))) % sizes
                means = [float(measured.step_s[which == size].mean()) for size in range(sizes)]
                job.sizes_bytes, job.all_reduce_s = all_reduce.SIZES, tuple(means)

    @contextmanager
    def _started(self, command: Sequence[str], workers: int) -> Iterator[Cluster]:
        with Cluster(command, workers, directory=self.directory, identity=self.identity) as cluster:
            cluster.wait_for_steps(_WITHIN_S)
            yield cluster

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """Yield a folder on a disk to which only the job's user may write."""
        with temporary_directory(ON_DISK) as above:
            folder = above / "work"
            self.identity.make_folder(folder)
            yield folder


def _lacks(job: Profiled, *runs: Run) -> bool:
    """Return whether any of these runs must be made or repeated."""
    made = {run: timing.seconds for run, timing in job.timings.items()}
    return any(again(made.get(run, ())) for run in runs if not (run is Run.COLD and job.refused))


def _limits(job: Profiled, *, shaped: bool = False) -> Emulated:
    return Emulated(job.type, job.cores, job.network_bps if shaped else np.inf, NO_LIMIT_BYTES)


def drop(file: Path) -> None:
    """Write a file to its disk, and drop this machine's page cache. Raises BackendError if refused."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
    try:
        DROP_CACHES.write_text(_PAGE_CACHE)
    except OSError as error:
        raise BackendError(
            f"the disk stall is not measured: {DROP_CACHES}: {error.strerror}; dropping the page cache needs "
            "root on the host itself"
        ) from error


def read_through(file: Path) -> None:
    """Read a file once, so that it is in the page cache."""
    with file.open("rb") as stream:
        while stream.read(_CHUNK_BYTES):
            pass


def read(file: Path, size: int, seed: int) -> Reading:
    """Return the mean time to read a sample of `size` bytes from a random position of a file."""
    with file.open("rb") as stream:
        last = max(file.stat().st_size // size, 1)
        places = (np.random.default_rng(seed).integers(last, size=_READS) * size).tolist()
        cpu_ns, began_ns = time.thread_time_ns(), time.perf_counter_ns()
        for place in places:
            os.pread(stream.fileno(), size, place)
        cpu_s = (time.thread_time_ns() - cpu_ns) * 1e-9 / _READS
        return Reading(cpu_s, max((time.perf_counter_ns() - began_ns) * 1e-9 / _READS - cpu_s, 0.0))
