"""Runs cluster scenarios on this machine: the twin's jobs as real training, under the same schedulers.

For: `--backend testbed`; jobs, tables and figures are those of the twin's runs. Not for: the processes
(testbed.cluster). Runs are made one after another: they would disturb each other.
"""

from __future__ import annotations

import hashlib
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from control.cluster import Outcome, Workload
from control.scheduler import POLICIES
from control.scheduler.model import Cluster, Real
from control.scheduler.ports import Scheduler
from lab.ask import shipped
from lab.ask.calibration import Calibration
from lab.ask.kind import Progress
from lab.ask.scenario import RunSpec, Scenario, expand
from lab.cloud.input import job_file
from lab.cluster.calibrate.values import quota_cores, speed
from lab.cluster.input import ClusterInput, EmulationInput, cluster_of
from lab.cluster.run.jobs import Jobs
from lab.cluster.run.runner import Drawn, blamed, stored
from lab.runs.manifest import identified
from lab.runs.store import Run, RunStore
from testbed.cluster.carrying_out import carry_out
from testbed.cluster.gangs import Gangs, Training
from testbed.cluster.slurm import Backfill, SlurmGangs
from testbed.containers import machine
from twinbed import BackendError, ScenarioError

NAME = "testbed"
_ASK_SLURM_S = 0.3
"""Time between two questions to a Slurm that decides itself, s of this machine."""


def run_scenario(
    scenario: Scenario, store: RunStore, repeat: int, progress: Progress | None, *, fresh: bool = True
) -> list[Run]:
    """Return all runs of a scenario, made here, in `expand` order. fresh: False reuses stored runs.

    Raises BackendError if this machine cannot run it and for input that only the twin can run, ScenarioError
    for bad input. In all cases no process is left running, and the run in progress is not stored.
    """
    return [run(spec, store, repeat, progress, fresh=fresh) for spec in expand(scenario)]


def run(spec: RunSpec, store: RunStore, repeat: int, progress: Progress | None, *, fresh: bool = True) -> Run:
    """Make one run on this machine, as run_scenario does for each run, and return it."""
    began, asked = time.perf_counter(), cluster_of(spec.scenario)
    emulation = emulation_of(spec)
    drawn = Drawn(asked, spec.seed)
    beyond = {"backend": NAME, "repeat": repeat}
    identity = identified(spec, spec.resolved(), drawn.jobs.sha256, beyond)
    if not fresh and (stored_run := store.find(identity["id"])):
        return stored_run
    programs = trainings(asked, emulation, drawn.jobs, spec.calibration)
    label = f"{spec.label} repeat {repeat}" if repeat else spec.label
    cluster, scheduler = drawn.jobs.cluster, drawn.scheduler(spec.policy)
    gangs_of = Gangs(programs) if emulation.slurm == "no" else SlurmGangs(programs, cluster)
    with blamed(spec.policy), gangs_of as gangs:
        if emulation.slurm == "decides":
            assert isinstance(gangs, SlurmGangs)
            scheduler = Backfill(gangs, _ASK_SLURM_S * emulation.compression)
        done = carry_out(
            cluster,
            drawn.jobs.workload,
            [program.steps for program in programs],
            scheduler,
            drawn.timing(spec.calibration),
            gangs,
            compression=emulation.compression,
            quota_cores=lambda _, rate: quota_cores(spec.calibration, emulation.gpu_cores, rate),
            downtime=drawn.downtime,
            until=drawn.until,
            progress=None if progress is None else partial(progress, label),
        )
    if progress is not None:
        progress(label, 1.0)
    whose = {
        **beyond,
        "scheduler_sha256": scheduler_sha256(scheduler),
        "training_speed": training_speed(
            cluster, drawn.with_saves(spec.calibration), done, drawn.timing(spec.calibration).step_s
        ),
        NAME: machine.facts(),
    }
    return stored(spec, store, identity, drawn, done, None, whose, began)


def training_speed(cluster: Cluster, load: Workload, done: Outcome, step_s: Real | float) -> float | None:
    """Return how fast jobs trained relative to their calibrated speed: the median over the jobs that ran at
    one speed, undisturbed by faults. None without such jobs. step_s: as in Timing; these steps do not count.
    """
    if done.spans is None:
        return None
    job, kind = done.spans.job, cluster.server_type[done.spans.server]
    spread = (done.spans.gpus < load.gpus[job]).astype(np.int64)
    slowest, fastest = np.full(len(load), np.inf), np.zeros(len(load))
    np.minimum.at(slowest, job, load.throughput[job, kind, spread])
    np.maximum.at(fastest, job, load.throughput[job, kind, spread])
    lives = np.unique(np.column_stack((job, done.spans.begin_s)), axis=0)[:, 0].astype(np.int64)
    free = step_s * load.per_s * (1.5 * np.bincount(lives, minlength=len(load)) - 0.5)
    works_s = done.held_s - done.restart_s
    alike = (slowest == fastest) & (works_s > 0) & (done.undone_s == 0) & (done.left_steps == 0)
    alike &= np.isclose(done.held_gpu_s, done.held_s * load.gpus)
    return float(np.median((load.steps - free)[alike] / (works_s * fastest)[alike])) if alike.any() else None


def scheduler_sha256(scheduler: Scheduler) -> str:
    """Return the SHA-256 of the source of the modules of control.scheduler that a scheduler uses; "" if none
    of them decides."""
    own = [scheduler, *vars(scheduler).values()]
    waiting = [name for part in own if (name := type(part).__module__).startswith("control.scheduler.")]
    used: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in used and name.startswith("control.scheduler."):
            used.add(name)
            parts = vars(sys.modules[name]).values()
            waiting += [str(getattr(part, "__module__", getattr(part, "__name__", ""))) for part in parts]
    files = [Path(str(sys.modules[name].__file__)).read_bytes() for name in sorted(used)]
    return hashlib.sha256(b"".join(files)).hexdigest() if files else ""


def emulation_of(spec: RunSpec) -> EmulationInput:
    """Return how this machine emulates the cluster. Raise ScenarioError if the scenario does not state it."""
    emulation = cluster_of(spec.scenario).emulation
    if emulation is None:
        raise ScenarioError(
            f"{spec.name}: cluster.emulation: missing; describe how this machine emulates the cluster, as in "
            "--set 'cluster.emulation={compression: 60, gpu_cores: 0.1}'"
        )
    if emulation.slurm == "decides" and spec.policy.name != "fifo-backfill":
        raise ScenarioError(
            f"{spec.name}: cluster.emulation.slurm: Slurm decides by fifo-backfill, not {spec.policy.name}; "
            "--set 'policies=[fifo-backfill]'"
        )
    known = POLICIES.get(spec.policy.name)
    if known is not None and known.twin_only:
        raise ScenarioError(
            f"{spec.name}: policy {spec.policy.name}: real jobs have no copies; run it on the twin, or "
            "choose another policy"
        )
    return emulation


LEAST_STEPS = 10
"""Least number of training steps of a job."""


def training(job: str, gpus: int, steps: int, every: int) -> Training:
    """Return a shipped job, or a user's job file, as a program with `steps` steps. Raises ScenarioError."""
    path = shipped.path_of("job", job)
    return Training(job_file.load(path).command_line(steps=steps), path.parent, gpus, steps, every)


def trainings(
    asked: ClusterInput, emulation: EmulationInput, jobs: Jobs, calibration: Calibration
) -> list[Training]:
    """Return a program for each job, with the number of steps that fits its duration at speed 1 in compressed
    time.

    Raises ScenarioError for a model that is not a job, or a job too short to be measured; BackendError for
    input whose work has no duration.
    """
    if asked.measured is not None:
        raise BackendError("cluster.measured: its jobs cannot be run here; use --backend twin")
    made = []
    for number, (model, gpus) in enumerate(zip(jobs.models, jobs.workload.gpus.tolist(), strict=True)):
        if not model:
            known = ", ".join(shipped.names("job"))
            raise ScenarioError(f"cluster.models: name jobs that train, for the testbed; shipped are {known}")
        per_s = speed(calibration, model, gpus, emulation.gpu_cores)
        steps = round(float(jobs.workload.steps[number]) / emulation.compression * per_s)
        if steps < LEAST_STEPS:
            raise ScenarioError(
                f"cluster.emulation.compression: job {number} would train {steps} steps; at least "
                f"{LEAST_STEPS} can be seen: make it smaller, or jobs longer"
            )
        every = max(round(asked.checkpoint_s / emulation.compression * per_s), 1)
        made.append(training(model, gpus, steps, every))
    return made
