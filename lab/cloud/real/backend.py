"""Runs market scenarios on this machine: a real training job on emulated machines, under the same policies.

For: `--backend testbed`; markets, tables and figures are those of the twin's runs. Not for: the processes
(testbed.cloud.market). Runs are made one after another: they would disturb each other.
"""

from __future__ import annotations

import time
from functools import partial

from control.market.ports import ON_DEMAND
from lab.ask import shipped
from lab.ask.calibration import Calibration
from lab.ask.kind import Progress
from lab.ask.scenario import RunSpec, Scenario, expand
from lab.cloud.input import job_file
from lab.cloud.input.market import CloudEmulationInput, CloudInput, cloud_of
from lab.cloud.run.market import Drawn, drawn
from lab.cloud.run.runner import policy, stored
from lab.cluster.calibrate.values import speed
from lab.runs.manifest import identified
from lab.runs.store import Run, RunStore
from testbed.cloud.market import Instances, carry_out
from testbed.cluster.gangs import Training
from testbed.containers import machine
from twinbed import ScenarioError

NAME = "testbed"
LEAST_STEPS = 50
"""Fewest steps of training that may stand for a job."""


def run_scenario(
    scenario: Scenario, store: RunStore, repeat: int, progress: Progress | None, *, fresh: bool = True
) -> list[Run]:
    """Return all runs of a scenario, made here, in `expand` order. fresh: False opens stored runs.

    Raises BackendError where this machine refuses, ScenarioError for bad input. Then nothing is left
    running, and nothing stored of the run at work.
    """
    return [run(spec, store, repeat, progress, fresh=fresh) for spec in expand(scenario)]


def run(spec: RunSpec, store: RunStore, repeat: int, progress: Progress | None, *, fresh: bool = True) -> Run:
    """Return one run; otherwise as run_scenario."""
    began, asked = time.perf_counter(), cloud_of(spec.scenario)
    emulation = emulation_of(spec)
    shared = drawn(asked, spec.seed, spec.calibration)
    beyond = {"backend": NAME, "repeat": repeat}
    identity = identified(spec, spec.resolved(), shared.sha256, beyond)
    if not fresh and store.has(identity["id"]):
        return store.open(identity["id"])
    program = training(shared, emulation, spec.calibration)
    label = f"{spec.label} repeat {repeat}" if repeat else spec.label
    with Instances([program], emulation.network_bps) as machines:
        done = carry_out(
            shared.market,
            shared.terms,
            shared.timing,
            policy(spec.policy, shared),
            machines,
            program,
            compression=emulation.compression,
            quota_cores=lambda place: emulation.cores * _speed(asked, shared, place),
            progress=None if progress is None else partial(progress, label),
        )
    if progress is not None:
        progress(label, 1.0)
    whose = {**beyond, NAME: machine.facts()}
    return stored(spec, store, identity, shared, done, shared.optimum_usd, whose, began)


def emulation_of(spec: RunSpec) -> CloudEmulationInput:
    """Return how this machine stands for the market. Raises ScenarioError if the scenario does not say."""
    asked = cloud_of(spec.scenario)
    if asked.emulation is None:
        raise ScenarioError(
            f"{spec.name}: cloud.emulation: missing; say how this machine stands for the market, as in "
            "--set 'cloud.emulation={compression: 60, cores: 0.1}'"
        )
    if not asked.job.name:
        known = ", ".join(shipped.names("job"))
        raise ScenarioError(f"{spec.name}: cloud.job.name: missing; name a job that trains: {known}")
    return asked.emulation


def training(shared: Drawn, emulation: CloudEmulationInput, calibration: Calibration) -> Training:
    """Return the job as a program: as many steps as its work, compressed, has room for.

    Raises ScenarioError for a job whose speed nobody measured, or one too short to be seen.
    """
    asked = shared.asked
    per_core_s = speed(calibration, asked.job.name, asked.job.machines)
    per_s = emulation.cores * asked.types[asked.on_demand].speed * per_core_s / emulation.compression
    steps, every = round(shared.terms.work_s * per_s), max(round(shared.timing.every_s * per_s), 1)
    if steps < LEAST_STEPS:
        raise ScenarioError(
            f"cloud.emulation.compression: the job would train {steps} steps; at least {LEAST_STEPS} can be "
            "seen: make it smaller, or the job longer"
        )
    path = shipped.path_of("job", asked.job.name)
    command = job_file.load(path).command_line(steps=steps)
    return Training(command, path.parent, asked.job.machines, steps, every)


def _speed(asked: CloudInput, shared: Drawn, place: int) -> float:
    """Return the speed of the machines of a place."""
    kind = asked.on_demand if place == ON_DEMAND else shared.market.zones[place].type
    return asked.types[kind].speed
