"""Measures how long the shipped jobs take to start, restart and end on this machine, and their training speed
under a quota.

For: `twinbed calibrate --pillar cluster`. Not for: whole runs, which are compared with the twin and therefore
never calibrate it. Jobs are measured in parallel, as they run in a cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lab.ask import shipped
from lab.ask.calibration import Calibration, Value, distribution
from lab.cluster.calibrate.values import key_of
from lab.cluster.real.backend import training
from testbed.cluster.gangs import Gangs
from testbed.containers import machine
from twinbed import BackendError

HEAD = """Head of the file: results of `twinbed calibrate --pillar cluster`. The `value` of a time is the
    median."""
GPU_CORES = 0.1
"""CPU quota of each process that is measured, cores."""
CORES = 0.8
"""Most quota of the jobs that are measured side by side, cores."""
SIZES = (1, 2)
"""GPUs of the gangs that are measured."""
_FOREVER = 10**9
_SHORT = 6
"""Steps of the jobs whose end is measured."""
_POLL_S, _WITHIN_S = 0.02, 120.0


@dataclass(frozen=True, slots=True)
class Effort:
    """The amount of measuring. seconds: time in which steps are counted, s."""

    seconds: float


THOROUGH, QUICK = Effort(30.0), Effort(8.0)


def batches() -> list[list[tuple[str, int]]]:
    """Return the jobs with the sizes of their gangs, in the groups that are measured in parallel."""
    made: list[list[tuple[str, int]]] = []
    for size in SIZES:
        count = int(CORES / (size * GPU_CORES) + 1e-9)
        names = [(name, size) for name in shipped.names("job")]
        made += [names[first : first + count] for first in range(0, len(names), count)]
    return made


STEPS = tuple(f"gangs {number}" for number in range(1, len(batches()) + 1))


def calibrate(name: str, effort: Effort, progress: Callable[[str, float], None]) -> Calibration:
    """Measure and return a calibration. Raises BackendError if this machine cannot, with nothing left."""
    start_s: list[float] = []
    restart_s: list[float] = []
    end_s: list[float] = []
    speeds: dict[str, Value] = {}
    for label, batch in zip(STEPS, batches(), strict=True):
        progress(label, 0.0)
        # Processes that start together share the cores. The twin computes that for larger gangs.
        alone = all(gpus == 1 for _, gpus in batch)
        # Ends come first: the first start of a program reads its files from the disk, and is not measured.
        end_s += _ends(batch) if alone else []
        starts, restarts, per_core_s = _measure(batch, effort)
        if alone:
            start_s += starts
            restart_s += restarts
        for (job, gpus), rate in zip(batch, per_core_s, strict=True):
            said = f"measured: at a quota of {GPU_CORES:g} cores a process, {effort.seconds:g} s"
            speeds[f"training.{key_of(job, gpus)}"] = Value(rate, "steps/core/s", said)
        progress(label, 1.0)
    facts = machine.facts()
    return Calibration(
        name,
        facts["kernel"],
        f"{facts['cpus']} × {facts['cpu_model']}",
        datetime.now(UTC).date().isoformat(),
        {
            "machine.cores": Value(float(facts["cpus"]), "cores", "read from the system"),
            "times.start_s": distribution(
                start_s, "s", "measured: from a job's first start to its first step"
            ),
            "times.restart_s": distribution(
                restart_s, "s", "measured: from SIGTERM until the job, started again, took a step"
            ),
            "times.end_s": distribution(
                end_s, "s", "measured: from a job's last step until its processes are gone"
            ),
            **speeds,
        },
        "",
    )


def _measure(
    batch: Sequence[tuple[str, int]], effort: Effort
) -> tuple[list[float], list[float], list[float]]:
    """Return starts and restarts, s, and steps per second and core of each job."""
    starts, restarts = [], []
    with Gangs([training(job, gpus, _FOREVER, _FOREVER) for job, gpus in batch]) as gangs:

        def start(job: int) -> float:
            gangs.start(job, {}, GPU_CORES)
            return _until(gangs, batch, lambda: gangs.look(job).begun)

        starts = [start(job) for job in range(len(batch))]
        before, began = [gangs.look(job).done for job in range(len(batch))], time.monotonic()
        time.sleep(effort.seconds)
        took_s = time.monotonic() - began
        rates = [max(gangs.look(job).done - done, 1) / took_s / GPU_CORES for job, done in enumerate(before)]
        for job in range(len(batch)):
            gangs.stop(job)
            gone_s = _until(gangs, batch, lambda job=job: not gangs.look(job).alive)  # type: ignore[misc]
            restarts.append(gone_s + start(job))
    return starts, restarts, rates


def _ends(batch: Sequence[tuple[str, int]]) -> list[float]:
    """Return the time from each job's last step until its processes are gone, s. They run one by one."""
    ends = []
    with Gangs([training(job, gpus, _SHORT, _FOREVER) for job, gpus in batch]) as gangs:
        for job in range(len(batch)):
            gangs.start(job, {}, GPU_CORES)
            _until(gangs, batch, lambda job=job: gangs.look(job).done >= _SHORT)  # type: ignore[misc]
            ends.append(_until(gangs, batch, lambda job=job: not gangs.look(job).alive))  # type: ignore[misc]
    return ends


def _until(gangs: Gangs, batch: Sequence[tuple[str, int]], reached: Callable[[], bool]) -> float:
    """Wait and look at all jobs until something is reached. Return the time that it took, s."""
    began = time.monotonic()
    while not reached():
        if time.monotonic() > began + _WITHIN_S:
            names = ", ".join(job for job, _ in batch)
            raise BackendError(f"one of {names} neither starts nor ends within {_WITHIN_S:g} s")
        for number in range(len(batch)):
            gangs.look(number)
        time.sleep(_POLL_S)
    return time.monotonic() - began
