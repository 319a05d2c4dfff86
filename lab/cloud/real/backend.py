"""Runs market scenarios on this machine: a real training job on emulated machines, under the same policies.

For: `--backend testbed`; markets, tables and figures are those of the twin's runs. Not for: the processes
(testbed.cloud.market). Runs are made one after another: they would disturb each other. Before the first run,
the job trains for some seconds on a machine of each speed (Pace). The scenario gives the time of its work;
the number of steps is chosen so that it takes that time on this machine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from control.market.ports import ON_DEMAND
from lab.ask import shipped
from lab.ask.kind import Progress
from lab.ask.scenario import RunSpec, Scenario, expand
from lab.cloud.input import job_file
from lab.cloud.input.market import CloudEmulationInput, CloudInput, cloud_of
from lab.cloud.run.market import Drawn, drawn
from lab.cloud.run.runner import policy, stored
from lab.runs.manifest import identified
from lab.runs.store import Run, RunStore
from testbed.cloud.market import JOB, Instances, carry_out
from testbed.cluster.gangs import Training
from testbed.containers import machine
from twinbed import BackendError, ScenarioError

NAME = "testbed"
LEAST_STEPS = 50
"""Least number of training steps of a job."""
_PROBE_S, _WITHIN_S, _POLL_S = 10.0, 120.0, 0.02
"""Time in which steps are counted, longest time until the first one, and time between two checks, s."""
_FOREVER = 10**9
_FARTHEST = 2.0
"""Largest factor by which a quota may be corrected to give its speed."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed of a job on this machine.

    steps_per_s: steps per second on machines of speed 1.
    cores: the CPU quota that gives each speed, cores, by speed.
    """

    steps_per_s: float
    cores: dict[float, float]


class Paces:
    """The paces of the questions of one call. Each is measured once."""

    def __init__(self) -> None:
        self._known: dict[str, Pace] = {}

    def of(self, asked: CloudInput, emulation: CloudEmulationInput) -> Pace:
        """Return a question's pace. Raises BackendError for a job that fails, or whose speed does not follow
        its CPU quota."""
        speeds = sorted({kind.speed for kind in asked.types.values()} | {1.0})
        key = f"{asked.job.name} {asked.job.machines} {speeds} {emulation}"
        if key not in self._known:
            rates = {speed: _rate(asked, emulation, emulation.cores * speed) for speed in speeds}
            cores = {
                speed: emulation.cores * speed * speed * rates[1.0] / rate for speed, rate in rates.items()
            }
            for speed, quota in cores.items():
                asked_cores = emulation.cores * speed
                if not 1 / _FARTHEST <= quota / asked_cores <= _FARTHEST:
                    raise BackendError(
                        f"{asked.job.name} does {rates[speed]:.3g} steps/s at {asked_cores:g} cores and "
                        f"{rates[1.0]:.3g} at {emulation.cores:g}: its CPU does not decide its speed; make "
                        "cloud.emulation.cores smaller"
                    )
            self._known[key] = Pace(rates[1.0], cores)
        return self._known[key]


def _rate(asked: CloudInput, emulation: CloudEmulationInput, cores: float) -> float:
    """Return the steps per second of the job on machines with this quota."""
    program = _program(asked, _FOREVER, _FOREVER)
    with Instances([program], emulation.network_bps) as machines:
        machines.start(JOB, {}, cores)
        began = time.monotonic()
        while not machines.look(JOB).begun:
            if time.monotonic() > began + _WITHIN_S:
                raise BackendError(f"{asked.job.name} does not take a step within {_WITHIN_S:g} s")
            time.sleep(_POLL_S)
        before, began = machines.look(JOB).done, time.monotonic()
        time.sleep(_PROBE_S)
        return max(machines.look(JOB).done - before, 1) / (time.monotonic() - began)


def run_scenario(
    scenario: Scenario, store: RunStore, repeat: int, progress: Progress | None, *, fresh: bool = True
) -> list[Run]:
    """Return all runs of a scenario, made here, in `expand` order. fresh: False reuses stored runs.

    Raises BackendError if this machine cannot run it, ScenarioError for bad input. In both cases no process
    is left running, and the run in progress is not stored.
    """
    paces = Paces()
    return [run(spec, store, repeat, progress, paces, fresh=fresh) for spec in expand(scenario)]


def run(
    spec: RunSpec,
    store: RunStore,
    repeat: int,
    progress: Progress | None,
    paces: Paces,
    *,
    fresh: bool = True,
) -> Run:
    """Make one run on this machine, as run_scenario does for each run, and return it."""
    began, asked = time.perf_counter(), cloud_of(spec.scenario)
    emulation = emulation_of(spec)
    shared = drawn(asked, spec.seed, spec.calibration)
    beyond = {"backend": NAME, "repeat": repeat}
    identity = identified(spec, spec.resolved(), shared.sha256, beyond)
    if not fresh and (stored_run := store.find(identity["id"])):
        return stored_run
    pace = paces.of(asked, emulation)
    program = training(shared, emulation, pace)
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
            quota_cores=lambda place: pace.cores[_speed(asked, shared, place)],
            progress=None if progress is None else partial(progress, label),
        )
    if progress is not None:
        progress(label, 1.0)
    whose = {**beyond, NAME: {**machine.facts(), "steps_per_s": pace.steps_per_s}}
    return stored(spec, store, identity, shared, done, shared.optimum_usd, whose, began)


def emulation_of(spec: RunSpec) -> CloudEmulationInput:
    """Return how this machine emulates the market. Raises ScenarioError if the scenario does not state it."""
    asked = cloud_of(spec.scenario)
    if asked.emulation is None:
        raise ScenarioError(
            f"{spec.name}: cloud.emulation: missing; describe how this machine emulates the market, as in "
            "--set 'cloud.emulation={compression: 60, cores: 0.1}'"
        )
    if not asked.job.name:
        known = ", ".join(shipped.names("job"))
        raise ScenarioError(f"{spec.name}: cloud.job.name: missing; name a job that trains: {known}")
    return asked.emulation


def training(shared: Drawn, emulation: CloudEmulationInput, pace: Pace) -> Training:
    """Return the job as a program, with the number of steps that fits its work in compressed time.

    Raises ScenarioError for a job that is too short to be measured.
    """
    asked = shared.asked
    per_s = asked.types[asked.on_demand].speed * pace.steps_per_s / emulation.compression
    steps, every = round(shared.terms.work_s * per_s), max(round(shared.timing.every_s * per_s), 1)
    if steps < LEAST_STEPS:
        raise ScenarioError(
            f"cloud.emulation.compression: the job would train {steps} steps; at least {LEAST_STEPS} can be "
            "seen: make it smaller, or the job longer"
        )
    return _program(asked, steps, every)


def _program(asked: CloudInput, steps: int, every: int) -> Training:
    path = shipped.path_of("job", asked.job.name)
    command = job_file.load(path).command_line(steps=steps)
    return Training(command, path.parent, asked.job.machines, steps, every)


def _speed(asked: CloudInput, shared: Drawn, place: int) -> float:
    """Return the speed of the machines of a place, relative to the reference machine."""
    kind = asked.on_demand if place == ON_DEMAND else shared.market.zones[place].type
    return asked.types[kind].speed
