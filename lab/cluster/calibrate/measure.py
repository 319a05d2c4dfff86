"""Measures how long the shipped jobs take to start, restart and end on this machine, and their training speed
under a quota.

For: `twinbed calibrate --pillar cluster`. Not for: whole runs, which are compared with the twin and therefore
never calibrate it. Starts and ends are measured one by one, because the twin computes how they slow each
other. Training is measured in parallel, as it runs in a cluster.
"""

from __future__ import annotations

import statistics
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
    beside = 1.0
    for label, batch in zip(STEPS, batches(), strict=True):
        progress(label, 0.0)
        alone = all(gpus == 1 for _, gpus in batch)
        if alone:
            # Ends come first: a program's first start reads its files from the disk, and is not measured.
            end_s += _ends(batch)
            starts, restarts = _starts(batch)
            start_s += starts
            restart_s += restarts
        per_core_s, slowed = _trained(batch, effort, beside=alone)
        beside = min(beside, slowed)
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
            "machine.beside_starts": Value(
                beside, "1", "measured: speed of training while another job starts, relative to otherwise"
            ),
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


def _starts(batch: Sequence[tuple[str, int]]) -> tuple[list[float], list[float]]:
    """Return the times of starts and of restarts, s. Jobs start one by one, with no other job beside them."""
    starts, restarts = [], []
    with Gangs([training(job, gpus, _FOREVER, _FOREVER) for job, gpus in batch]) as gangs:
        for job in range(len(batch)):
            starts.append(_start(gangs, batch, job))
            restarts.append(_stop(gangs, batch, job) + _start(gangs, batch, job))
            _stop(gangs, batch, job)
    return starts, restarts


def _trained(batch: Sequence[tuple[str, int]], effort: Effort, *, beside: bool) -> tuple[list[float], float]:
    """Return steps per second and core of each job, trained in parallel, and their speed while one more job
    starts again and again, relative to that, at most 1.

    beside: whether the second is measured; without it, it is 1.
    """
    jobs, more = range(len(batch)), len(batch)
    with Gangs(
        [training(job, gpus, _FOREVER, _FOREVER) for job, gpus in (*batch, (batch[0][0], 1))]
    ) as gangs:
        for job in jobs:
            _start(gangs, batch, job)
        done, took_s = _steps_in(gangs, jobs, lambda: time.sleep(effort.seconds))
        rates = [max(steps, 1) / took_s / GPU_CORES for steps in done]
        slowed, slowed_s = [0] * len(batch), 0.0
        while beside and slowed_s < effort.seconds:
            steps, took_s = _steps_in(gangs, jobs, lambda: _start(gangs, batch, more))
            slowed, slowed_s = [a + b for a, b in zip(slowed, steps, strict=True)], slowed_s + took_s
            _stop(gangs, batch, more)
    if not beside:
        return rates, 1.0
    shares = [steps / slowed_s / GPU_CORES / rate for steps, rate in zip(slowed, rates, strict=True)]
    return rates, min(statistics.fmean(shares), 1.0)


def _steps_in(gangs: Gangs, jobs: Sequence[int], act: Callable[[], object]) -> tuple[list[int], float]:
    """Return the steps that jobs take while something is done, and the time that it takes, s."""
    before, began = [gangs.look(job).done for job in jobs], time.monotonic()
    act()
    took_s = time.monotonic() - began
    return [gangs.look(job).done - done for job, done in zip(jobs, before, strict=True)], took_s


def _start(gangs: Gangs, batch: Sequence[tuple[str, int]], job: int) -> float:
    """Start a job. Return the time until its first step, s."""
    gangs.start(job, {}, GPU_CORES)
    return _until(gangs, batch, lambda: gangs.look(job).begun)


def _stop(gangs: Gangs, batch: Sequence[tuple[str, int]], job: int) -> float:
    """Stop a job. Return the time until its processes are gone, s."""
    gangs.stop(job)
    return _until(gangs, batch, lambda: not gangs.look(job).alive)


def _ends(batch: Sequence[tuple[str, int]]) -> list[float]:
    """Return the time from each job's last step until its processes are gone, s. They run one by one."""
    ends = []
    with Gangs([training(job, gpus, _SHORT, _FOREVER) for job, gpus in batch]) as gangs:
        for job in range(len(batch)):
            _start(gangs, batch, job)
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
