"""Measures how long the shipped jobs take to start, restart, save and end on this machine, and their training
speed under a quota.

For: `twinbed calibrate --pillar cluster`. Not for: whole runs, which are compared with the twin and therefore
never calibrate it. Starts and ends are measured one by one, because the twin computes how they slow each
other. Training is measured in parallel, as it runs in a cluster. Its speed is k·(quota − lost): gangs of one
tell how much of a quota is lost, because they train at half the quota, too.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import numpy as np

from control.scheduler.model import Real, Whole
from lab.ask import shipped
from lab.ask.calibration import Calibration, Value, distribution
from lab.cluster.calibrate.values import PHASES, SIZES, key_of
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
_SAVES_EVERY = 7
"""Steps between two saves of the jobs that are measured. A save right after another one is faster. The jobs
print after every tenth step, which then comes as often after a save as after any other step."""
_TURNS = 3
"""Number of times that training at the quotas takes turns, because the machine's speed changes."""
_MOST_TURNS = 12
"""Most turns, where the steps of a job are so slow that it has not saved yet."""
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
    times_s: dict[str, list[float]] = {f"{what}_x{gpus}_s": [] for what in PHASES for gpus in SIZES}
    end_s: list[float] = []
    beside: list[tuple[float, float]] = []
    half: list[float] = []
    speeds: dict[str, tuple[float, float]] = {}
    for label, batch in zip(STEPS, batches(), strict=True):
        progress(label, 0.0)
        alone = all(gpus == 1 for _, gpus in batch)
        if alone:
            # Ends come first: a program's first start reads its files from the disk, and is not measured.
            end_s += _ends(batch)
        for what, took_s in _phases(batch).items():
            times_s[f"{what}_x{batch[0][1]}_s"] += took_s
        trained = _trained(batch, effort, alone=alone)
        beside.append(trained.beside)
        half += trained.half
        for gang, speed in zip(batch, trained.speeds, strict=True):
            if not all(map(math.isfinite, speed)):
                raise BackendError(f"{gang[0]} did not save; measure for longer, or on a quieter machine")
            speeds[key_of(*gang)] = speed
        progress(label, 1.0)
    works_cores = GPU_CORES - lost_cores(statistics.fmean(half))
    how = f"at a quota of {GPU_CORES:g} cores a process, {effort.seconds:g} s"
    facts = machine.facts()
    return Calibration(
        name,
        facts["kernel"],
        f"{facts['cpus']} × {facts['cpu_model']}",
        datetime.now(UTC).date().isoformat(),
        {
            "machine.cores": Value(float(facts["cpus"]), "cores", "read from the system"),
            "machine.beside_starts": Value(
                min(sum(slowed for slowed, _ in beside) / sum(usual for _, usual in beside), 1.0),
                "1",
                "measured: speed of training while another job starts, relative to the times between starts",
            ),
            "machine.lost_cores": Value(
                GPU_CORES - works_cores,
                "cores",
                "measured: part of every quota without steps, from training at all and at half of it",
            ),
            **{
                f"times.{key}": distribution(took_s, "s", f"measured: from {PHASES[key.partition('_')[0]]}")
                for key, took_s in times_s.items()
            },
            "times.end_s": distribution(
                end_s, "s", "measured: from a job's last step until its processes are gone"
            ),
            **{
                f"training.{key}": Value(per_s / works_cores, "steps/core/s", f"measured: {how}")
                for key, (per_s, _) in speeds.items()
            },
            **{
                f"saves.{key}": Value(save_s * works_cores, "core s", f"measured: {how}")
                for key, (_, save_s) in speeds.items()
            },
        },
        "",
    )


def _phases(batch: Sequence[tuple[str, int]]) -> dict[str, list[float]]:
    """Return the times of the jobs' phases, s. Jobs live one by one, with no other job beside them."""
    took_s: dict[str, list[float]] = {what: [] for what in PHASES}
    with Gangs([training(job, gpus, _FOREVER, _FOREVER) for job, gpus in batch]) as gangs:
        for job in range(len(batch)):
            for start in ("start", "restart"):
                took_s[start].append(_start(gangs, batch, job))
                took_s["leave"].append(_stop(gangs, batch, job))
    return took_s


def lost_cores(half: float) -> float:
    """Return the cores of a quota of GPU_CORES that do no steps. half: speed at half of it, relative to that
    at all of it."""
    half = min(half, 0.5)
    return GPU_CORES * (0.5 - half) / (1 - half)


@dataclass(frozen=True, slots=True)
class _Trained:
    """How jobs train in parallel, by job.

    speeds: steps per second between saves, and the time of a save, s. half: speed at half the quota, relative
    to the usual speed. beside: speed while one more job starts, and in the times between its starts, both
    relative to the usual speed, as the sum over the jobs. For gangs of two they are empty and 0.
    """

    speeds: list[tuple[float, float]]
    half: list[float]
    beside: tuple[float, float] = (0.0, 0.0)


def _trained(batch: Sequence[tuple[str, int]], effort: Effort, *, alone: bool) -> _Trained:
    """Train a batch in parallel, with saves. alone: whether its gangs are of one."""
    jobs, more = range(len(batch)), len(batch)
    programs = [training(job, gpus, _FOREVER, _SAVES_EVERY) for job, gpus in (*batch, (batch[0][0], 1))]
    with Gangs(programs) as gangs:
        for job in jobs:
            _start(gangs, batch, job)
        if not alone:
            return _Trained(_speeds(gangs, batch, effort, GPU_CORES)[0], [])
        speeds, halved = _speeds(gangs, batch, effort, GPU_CORES, GPU_CORES / 2)
        for job in jobs:
            gangs.limit(job, GPU_CORES)
        # Starts and times without one take turns, because the machine's speed changes.
        slowed, between, slowed_s, between_s = np.zeros(len(batch)), np.zeros(len(batch)), 0.0, 0.0
        while slowed_s < effort.seconds:
            steps, took_s = _steps_in(gangs, jobs, lambda: _start(gangs, batch, more))
            slowed, slowed_s = slowed + steps, slowed_s + took_s
            _stop(gangs, batch, more)
            steps, took_s = _steps_in(gangs, jobs, partial(_wait, gangs, batch, took_s))
            between, between_s = between + steps, between_s + took_s
    usual_s = np.array([1 / per_s + save_s / _SAVES_EVERY for per_s, save_s in speeds])
    half = [less / per_s for (less, _), (per_s, _) in zip(halved, speeds, strict=True)]
    return _Trained(speeds, half, (float(slowed @ usual_s) / slowed_s, float(between @ usual_s) / between_s))


def _speeds(
    gangs: Gangs, batch: Sequence[tuple[str, int]], effort: Effort, *quotas: float
) -> list[list[tuple[float, float]]]:
    """Return steps per second between saves and the time of a save, s, of each job under each quota.

    All jobs take _TURNS turns at each quota, and more, up to _MOST_TURNS, until each has saved at the first
    quota.
    """
    jobs = range(len(batch))
    rows: list[list[list[Real]]] = [[[] for _ in jobs] for _ in quotas]
    for turn in range(_MOST_TURNS * len(quotas)):
        place = turn % len(quotas)
        enough = turn >= _TURNS * len(quotas)
        if place == 0 and enough and all(np.vstack(of_job)[:, 1].any() for of_job in rows[0]):
            break
        for job in jobs:
            gangs.limit(job, quotas[place])
        first = [gangs.look(job).done for job in jobs]
        time.sleep(effort.seconds / _TURNS)
        for job in jobs:
            rows[place][job].append(_steps(gangs.step_ends_ns(job), first[job]))
    return [[_speed(np.vstack(of_job)) for of_job in by_job] for by_job in rows]


def _steps(ends_ns: Whole, first: int) -> Real:
    """Return how long each step took, s, and whether a save came before it, float64[steps, 2]. ends_ns: ends
    of the steps; first: number of steps that do not count."""
    took_s = np.diff(ends_ns[first:]) / 1e9
    return np.column_stack((took_s, np.arange(first + 1, first + 1 + took_s.size) % _SAVES_EVERY == 0))


def _speed(steps: Real) -> tuple[float, float]:
    """Return steps per second between saves, and the time of a save, s; NaN for what was not seen."""
    took_s, saved = steps[:, 0], steps[:, 1] > 0
    plain_s, after_save_s = (
        float(some.mean()) if some.size else math.nan for some in (took_s[~saved], took_s[saved])
    )
    return 1 / plain_s, max(after_save_s - plain_s, 0.0)


def _steps_in(gangs: Gangs, jobs: Sequence[int], act: Callable[[], object]) -> tuple[Real, float]:
    """Return the steps that jobs take while something is done, float64[jobs], and the time that it takes,
    s."""
    before, began = np.array([gangs.look(job).done for job in jobs], float), time.monotonic()
    act()
    took_s = time.monotonic() - began
    return np.array([gangs.look(job).done for job in jobs], float) - before, took_s


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


def _wait(gangs: Gangs, batch: Sequence[tuple[str, int]], seconds: float) -> None:
    """Wait, and look at all jobs as while one of them starts."""
    end = time.monotonic() + seconds
    _until(gangs, batch, lambda: time.monotonic() >= end)


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
