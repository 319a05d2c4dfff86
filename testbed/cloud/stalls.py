"""The profiler's runs on this machine: a real job on one worker and on all, from memory and files, on two networks.

For: seconds of each run under an instance type's limits, and what the twin needs to expect them: α and β between
the workers, and the time to read a sample. A GPU is a process with the type's CPU quota; the interconnect is a veth
pair without shaping, the network one with the type's rate. Memory is not limited, because the page cache counts
as memory. Not for: taking the runs apart (control.profiler.stalls).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from control.profiler.stalls import Run, Timing, again
from testbed.cloud import all_reduce
from testbed.cloud.emulated import STEPS, Cluster, Emulated
from testbed.cloud.steps import Model
from testbed.containers.cgroup.group import NO_LIMIT_BYTES
from testbed.containers.host.identity import Identity
from testbed.containers.host.identity import identity as identity_of
from twinbed import BackendError, ScenarioError

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_PAGE_CACHE = "1"
"""What is written there to drop clean pages of files and nothing else (Documentation/admin-guide/sysctl/vm.rst)."""
_FIRST_STEPS_S = 240.0
"""Time that a job may take until its first steps are over; it may write a file of samples before."""
_WITHIN_S = 240.0
_CYCLES = 8
"""Times that each size is all-reduced."""
_READS = 400
"""Samples that are read to time the disk."""
_CHUNK_BYTES = 1 << 20

Told = Callable[[str], None]


@dataclass(slots=True)
class Profiled:
    """A job under the limits of one type.

    kind: these limits. timings: the runs that were made. refused: why there is no RUN2, "" if there is.
    sizes_bytes, all_reduce_s: sizes that all workers all-reduced, B, and the mean time of each, s; empty for one.
    warm_s, cold_s: time to read a sample from the page cache, with the CPU to itself, and from the disk, s;
    cold_s is NaN without RUN2.
    """

    kind: Emulated
    timings: dict[Run, Timing] = field(default_factory=dict)
    refused: str = ""
    sizes_bytes: tuple[int, ...] = ()
    all_reduce_s: tuple[float, ...] = ()
    warm_s: float = np.nan
    cold_s: float = np.nan


def profile(
    command: Callable[[str], Sequence[str]],
    kinds: Sequence[Emulated],
    workers: int,
    *,
    kept: str,
    directory: Path | None = None,
    identity: Identity | None = None,
    count: int = STEPS,
    told: Told = lambda _: None,
) -> tuple[Model, list[Profiled]]:
    """Return what the job trains, and its runs under each type's limits.

    command: returns the job's command for a source of samples: `kept`, or a file's path, which the job writes if
    it is not there. It must run until it is ended. count: steps of each repeat; told: called as a run begins.
    Raises ScenarioError if the job ends or cannot be run, BackendError if the machine refuses.
    """
    identity = identity or identity_of(None, (), os.environ)
    made = [Profiled(replace(kind, memory_bytes=NO_LIMIT_BYTES)) for kind in kinds]
    start = partial(_started, directory=directory, identity=identity)
    with start(command(kept), 1) as cluster:
        model = cluster.model
        for item in made:
            _repeat(Run.ALONE, cluster, item, item.kind, model, count, told)
    with start(command(kept), workers) as cluster:
        # A rate stays once it is set, so the runs without one come first.
        for item in made:
            _repeat(Run.TOGETHER, cluster, item, _unshaped(item), model, count, told)
        for item in made:
            _repeat(Run.APART, cluster, item, item.kind, model, count, told)
    with _folder(identity) as folder:
        _from_files(start, command, folder / "samples", made, workers, model, count, told)
    if workers > 1:
        told("all-reduce")
        with start((sys.executable, "-P", all_reduce.__file__), workers) as cluster:
            for item in made:
                item.sizes_bytes, item.all_reduce_s = _all_reduces(cluster, item)
    return model, made


def _from_files(
    start: Callable[..., Cluster],
    command: Callable[[str], Sequence[str]],
    data: Path,
    made: Sequence[Profiled],
    workers: int,
    model: Model,
    count: int,
    told: Told,
) -> None:
    """Make the runs on a file of samples, and time its reading afterwards."""
    with start(command(str(data)), workers) as cluster:
        if not data.exists():
            raise ScenarioError(f"the job wrote no samples to the file of its {{data}}, {data.name}")
        for item in made:
            _read_through(data)
            _repeat(Run.WARM, cluster, item, _unshaped(item), model, count, told)
            try:
                _repeat(Run.COLD, cluster, item, _unshaped(item), model, count, told, lambda: drop(data))
            except BackendError as error:
                item.refused = str(error)
    _read_through(data)
    warm_s = _read_s(data, model.input_bytes, seed=0)
    cold_s = np.nan
    if not any(item.refused for item in made):
        drop(data)
        cold_s = _read_s(data, model.input_bytes, seed=1)
    for item in made:
        item.warm_s, item.cold_s = warm_s, cold_s


def drop(file: Path) -> None:
    """Write a file out, and drop the page cache of this machine. Raises BackendError where that is refused."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        DROP_CACHES.write_text(_PAGE_CACHE)
    except OSError as error:
        raise BackendError(
            f"{Run.COLD} is left out: {DROP_CACHES}: {error.strerror}; dropping the page cache needs root on the "
            "host itself"
        ) from error


def _repeat(
    run: Run,
    cluster: Cluster,
    item: Profiled,
    kind: Emulated,
    model: Model,
    count: int,
    told: Told,
    before: Callable[[], None] = lambda: None,
) -> None:
    seconds: list[float] = []
    while again(seconds):
        told(f"{kind.name}: {run}, {len(seconds) + 1}")
        before()
        seconds.append(float(cluster.measure(kind, count=count, within_s=_WITHIN_S).step_s.sum()))
    item.timings[run] = Timing(tuple(seconds), count * model.batch)


def _all_reduces(cluster: Cluster, item: Profiled) -> tuple[tuple[int, ...], tuple[float, ...]]:
    sizes = all_reduce.SIZES
    measured = cluster.measure(_unshaped(item), count=_CYCLES * len(sizes), within_s=_WITHIN_S)
    which = (measured.first + np.arange(len(measured.step_s))) % len(sizes)
    return sizes, tuple(float(measured.step_s[which == index].mean()) for index in range(len(sizes)))


def _unshaped(item: Profiled) -> Emulated:
    return replace(item.kind, network_bps=np.inf)


@contextmanager
def _started(
    command: Sequence[str], workers: int, *, directory: Path | None, identity: Identity
) -> Iterator[Cluster]:
    with Cluster(command, workers, directory=directory, identity=identity) as cluster:
        cluster.wait_for_steps(_FIRST_STEPS_S)
        yield cluster


@contextmanager
def _folder(identity: Identity) -> Iterator[Path]:
    """Give a folder on a disk that the job's user may write to, and nobody else."""
    with tempfile.TemporaryDirectory(prefix="twinbed-stalls-", dir="/var/tmp") as above:
        folder = Path(above, "work")
        folder.mkdir(mode=0o700)
        os.chown(folder, identity.uid, identity.gid)
        Path(above).chmod(0o711)
        yield folder


def _read_through(file: Path) -> None:
    with file.open("rb") as stream:
        while stream.read(_CHUNK_BYTES):
            pass


def _read_s(file: Path, size: int, seed: int) -> float:
    """Return the mean time to read a sample of a file from a random place, s."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        last = os.fstat(descriptor).st_size // size
        places = np.random.default_rng(seed).integers(last, size=_READS) * size
        began_ns = time.perf_counter_ns()
        for place in places.tolist():
            os.pread(descriptor, size, place)
        return (time.perf_counter_ns() - began_ns) * 1e-9 / _READS
    finally:
        os.close(descriptor)
