"""The profiler's runs on this machine: a real job on one worker and on all, from memory and from files.

For: seconds of each run under an instance type's limits, and what the twin needs to expect them: all-reduces
between the workers, and the time to read a sample. A GPU is a process with the type's CPU quota; the
interconnect is veth pairs without shaping, the network veth pairs with the type's rate. Memory is not
limited, because the page cache counts as memory. Every repeat is a new start of the job: how the periods of
the workers' quotas lie to each other is drawn at a start, and it moves the time of a step by a tenth. Not
for: taking the runs apart (control.profiler.stalls).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from control.profiler.stalls import Reading, Run, Timing, again
from testbed.cloud import all_reduce
from testbed.cloud.emulated import STEPS, Cluster, Emulated
from testbed.cloud.steps import Model
from testbed.containers.cgroup.group import NO_LIMIT_BYTES
from testbed.containers.host.identity import Identity
from testbed.containers.host.identity import identity as identity_of
from twinbed import BackendError, ScenarioError

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_PAGE_CACHE = "1"
"""What is written there to drop pages of files (Documentation/admin-guide/sysctl/vm.rst)."""
_FIRST_STEPS_S = 240.0
"""Time that a job may take until its first steps are over; it may write a file of samples before."""
_WITHIN_S = 240.0
_CYCLES = 8
"""Times that each size is all-reduced."""
_READS = 400
"""Samples that are read to time the disk."""
_CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class Profiled:
    """A job under the limits of one type.

    kind: these limits. seconds: the time of each repeat of each run, s; samples: of each worker in a repeat.
    refused: why there is no RUN2, "" if there is.
    all_reduce_s: the mean time of each size of all_reduce.SIZES between all workers, s; empty for one worker.
    warm, cold: to read a sample from the page cache, and from the disk; None without RUN2.
    """

    kind: Emulated
    seconds: dict[Run, list[float]] = field(default_factory=lambda: {run: [] for run in Run})
    samples: int = 0
    refused: str = ""
    all_reduce_s: tuple[float, ...] = ()
    warm: Reading = field(default_factory=lambda: Reading(0.0, 0.0))
    cold: Reading | None = None

    @property
    def timings(self) -> dict[Run, Timing]:
        """The runs that were made."""
        return {run: Timing(tuple(times), self.samples) for run, times in self.seconds.items() if times}

    def lacks(self, *runs: Run) -> bool:
        """Return whether any of these runs is to be repeated."""
        return any(again(self.seconds[run]) and not (run is Run.COLD and self.refused) for run in runs)


@dataclass(frozen=True, slots=True)
class Profiler:
    """How a job is run.

    command: returns the job's command for a source of samples: `kept`, or a file's path, which the job writes
    if it is not there. It must run until it is ended.
    workers: number of workers of all runs but RUN0. directory: where the command runs. identity: its user.
    count: steps of each repeat. told: called as a run begins.
    """

    command: Callable[[str], Sequence[str]]
    workers: int
    kept: str
    directory: Path | None = None
    identity: Identity = field(default_factory=lambda: identity_of(None, (), os.environ))
    count: int = STEPS
    told: Callable[[str], None] = lambda _: None

    def profile(self, kinds: Sequence[Emulated]) -> tuple[Model, list[Profiled]]:
        """Return what the job trains, and its runs under each type's limits.

        Raises ScenarioError if the job ends or cannot be run, BackendError if the machine refuses.
        """
        made = [Profiled(replace(kind, memory_bytes=NO_LIMIT_BYTES)) for kind in kinds]
        with self._folder() as folder:
            data = folder / "samples"
            while lacking := [item for item in made if item.lacks(*Run)]:
                model = self._round(lacking, data)
            self._read(made, data, model.input_bytes)
        if self.workers > 1:
            self._all_reduce(made)
        return model, made

    def _round(self, made: Sequence[Profiled], data: Path) -> Model:
        """Make the runs that are to be repeated, each source and number of workers with one start."""
        with self._started(self.command(self.kept), 1) as cluster:
            model = cluster.model
            for item in made:
                item.samples = self.count * model.batch
                self._run(Run.ALONE, cluster, item, item.kind)
        if any(item.lacks(Run.TOGETHER, Run.APART) for item in made):
            with self._started(self.command(self.kept), self.workers) as cluster:
                # A rate stays once it is set, so the runs without one come first.
                for item in made:
                    self._run(Run.TOGETHER, cluster, item, _unshaped(item))
                for item in made:
                    self._run(Run.APART, cluster, item, item.kind)
        if any(item.lacks(Run.COLD, Run.WARM) for item in made):
            with self._started(self.command(str(data)), self.workers) as cluster:
                if not data.exists():
                    raise ScenarioError("the job wrote no samples to the file that {data} stands for")
                for item in made:
                    read_through(data)
                    self._run(Run.WARM, cluster, item, _unshaped(item))
                    try:
                        drop(data)
                    except BackendError as error:
                        item.refused = str(error)
                    self._run(Run.COLD, cluster, item, _unshaped(item))
        return model

    def _run(self, run: Run, cluster: Cluster, item: Profiled, kind: Emulated) -> None:
        if item.lacks(run):
            self.told(f"{kind.name}: {run}, {len(item.seconds[run]) + 1}")
            measured = cluster.measure(kind, count=self.count, within_s=_WITHIN_S)
            item.seconds[run].append(float(measured.step_s.sum()))

    def _read(self, made: Sequence[Profiled], data: Path, size: int) -> None:
        read_through(data)
        warm, cold = read(data, size, seed=0), None
        if not any(item.refused for item in made):
            drop(data)
            cold = read(data, size, seed=1)
        for item in made:
            item.warm, item.cold = warm, cold

    def _all_reduce(self, made: Sequence[Profiled]) -> None:
        self.told("all-reduce")
        sizes = len(all_reduce.SIZES)
        with self._started((sys.executable, "-P", all_reduce.__file__), self.workers) as cluster:
            for item in made:
                measured = cluster.measure(_unshaped(item), count=_CYCLES * sizes, within_s=_WITHIN_S)
                which = (measured.first + np.arange(len(measured.step_s))) % sizes
                means = [measured.step_s[which == size].mean() for size in range(sizes)]
                item.all_reduce_s = tuple(map(float, means))

    @contextmanager
    def _started(self, command: Sequence[str], workers: int) -> Iterator[Cluster]:
        with Cluster(command, workers, directory=self.directory, identity=self.identity) as cluster:
            cluster.wait_for_steps(_FIRST_STEPS_S)
            yield cluster

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """Give a folder on a disk that the job's user may write to, and no other user."""
        with tempfile.TemporaryDirectory(prefix="twinbed-stalls-", dir="/var/tmp") as above:
            folder = Path(above, "work")
            folder.mkdir(mode=0o700)
            os.chown(folder, self.identity.uid, self.identity.gid)
            Path(above).chmod(0o711)
            yield folder


def drop(file: Path) -> None:
    """Write a file out, and drop the page cache of this machine. Raises BackendError if that is refused."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
    try:
        DROP_CACHES.write_text(_PAGE_CACHE)
    except OSError as error:
        raise BackendError(
            f"{Run.COLD} is refused: {DROP_CACHES}: {error.strerror}; dropping the page cache needs root on "
            "the host itself"
        ) from error


def read_through(file: Path) -> None:
    """Read a file once, so that it is in the page cache."""
    with file.open("rb") as stream:
        while stream.read(_CHUNK_BYTES):
            pass


def read(file: Path, size: int, seed: int) -> Reading:
    """Return the mean time to read a sample of so many bytes from a random place of a file."""
    with file.open("rb") as stream:
        last = max(file.stat().st_size // size, 1)
        places = (np.random.default_rng(seed).integers(last, size=_READS) * size).tolist()
        cpu_ns, began_ns = time.thread_time_ns(), time.perf_counter_ns()
        for place in places:
            os.pread(stream.fileno(), size, place)
        cpu_s = (time.thread_time_ns() - cpu_ns) * 1e-9 / _READS
        return Reading(cpu_s, max((time.perf_counter_ns() - began_ns) * 1e-9 / _READS - cpu_s, 0.0))


def _unshaped(item: Profiled) -> Emulated:
    return replace(item.kind, network_bps=np.inf)
