"""Turns the section `services` of a scenario into the twin's requests: application, arrivals, hosts, peaks,
ceilings.

For: the inputs that all policies of such a scenario share, including the profile of its peaks. Not for:
reading applications (application.py), arrivals (arrivals.py), nor the use of the profile by policies. Every
assumption becomes a note on the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from control.allocator import make
from control.allocator.model import PAGE_BYTES, Application, History
from lab.containers.calibrate.values import load_calibration
from lab.containers.input.ceilings import applications, given_threads, profile_peaks
from lab.containers.input.replay import Replay
from lab.containers.input.sections import ContainerScenario, Profile, ServicesInput
from lab.containers.input.services.application import AppSpec, load_app
from lab.containers.input.services.arrivals import ArrivalSpec, generate
from lab.containers.input.services.costs import beside, with_program
from lab.containers.input.services.graph import CompiledApp, compile_graph, mean_cores
from lab.containers.run.figures import recorded
from twin.containers.model import Floats, Machine
from twin.containers.requests.model import NO_TIMEOUT, Arrivals, Client, RequestWorkload
from twin.containers.run import simulate
from twinbed import ScenarioError
from twinbed.files import MIB, open_regular

DEFAULT_HOST_CORES = 20.0
"""Cores of a host if the scenario does not state them: those of the hosts in Escra's evaluation."""
_MOST_BYTES = 1024 * MIB
"""Largest file of arrivals: a hundred million timestamps."""
_NO_CEILING_BYTES = 1 << 62
_PROSE = {"title", "source", "assumptions"}


@dataclass(frozen=True, slots=True)
class ServicesSource:
    """An application and the load on it; implements lab.containers.input.replay.Source."""

    app: AppSpec
    asked: ServicesInput
    sha256: str
    inputs: tuple[dict[str, Any], ...]

    def settle(self, scenario: ContainerScenario, resolved: dict[str, Any]) -> dict[str, Any]:
        """Replace the application's path by its name, and the arrivals by their shortest form."""
        services = resolved["services"] | {"app": self.app.name, "arrivals": _shortly(self.asked.arrivals)}
        profile = resolved["profile"]
        if scenario.profile.arrivals is not None:
            profile |= {"arrivals": _shortly(scenario.profile.arrivals)}
        plain = {key: value for key, value in resolved.items() if key != "refine"}
        return plain | {"services": services, "profile": profile}

    def prepare(self, scenario: ContainerScenario, machine: Machine, seed: np.random.SeedSequence) -> Replay:
        """Return the containers on their hosts, with their load and their profiled peaks.

        The profiling run has random numbers of its own. Raises ScenarioError for threads of an unknown
        container.
        """
        load, phases, other_load, other_run = seed.spawn(4)
        asked, app = self.asked, self.app
        compiled = compile_graph(app, asked.cpu_scale)
        costs = load_calibration(scenario.calibration).costs() if asked.program == "twinbed" else None
        if costs is not None:
            compiled = with_program(compiled, costs)
        arrivals = generate(asked.arrivals, asked.duration_s, compiled.weights, load)
        others = generate(
            scenario.profile.arrivals or asked.arrivals, asked.duration_s, compiled.weights, other_load
        )
        if arrivals.at_s.size == 0 or others.at_s.size == 0:
            raise ScenarioError(
                f"{scenario.name}: services.arrivals: no request arrives in {asked.duration_s:g} s "
                f"({_shortly(asked.arrivals)}); a higher rate or a longer duration_s is needed"
            )
        if scenario.draw:
            phases = np.random.SeedSequence(phases.entropy, spawn_key=(*phases.spawn_key, scenario.draw))
        unlimited = _workload(scenario, asked, compiled, others, phases)
        if costs is not None:
            unlimited = beside(unlimited, costs, len(others.at_s) / asked.duration_s)
        profile, history = profiled(unlimited, machine, other_run, scenario.profile)
        ceilings = applications(
            scenario,
            (app.name,),
            profile.app,
            profile.peak_cores,
            profile.peak_bytes,
            float(unlimited.cores_of_host.sum()),
        )
        workload = replace(
            profile,
            arrivals=arrivals,
            applications=ceilings,
            host_memory_bytes=scenario.most_bytes,
            report_interval_s=scenario.report_interval_s or 0.0,
        )
        needed = mean_cores(compiled, len(arrivals.at_s) / asked.duration_s)
        about = {
            "start_s": 0.0,
            "application": app.name,
            "arrivals": _shortly(asked.arrivals),
            "requests": len(arrivals.at_s),
            "hosts": asked.hosts,
        }
        notes = [*_notes(scenario, asked, app), *_saturation(workload, needed)]
        return Replay(
            workload,
            np.ones(len(workload.names), np.bool_),
            tuple(notes),
            about,
            history if scenario.profile.history else None,
        )


def load_source(scenario: ContainerScenario) -> ServicesSource:
    """Return the scenario's application and load. Raises ScenarioError for an error in either."""
    asked = scenario.services
    if asked is None:
        raise ScenarioError(f"{scenario.name}: no services")
    app = load_app(asked.app)
    # The hashes cover the content, not the location of files or their descriptions.
    shape = _sha256(app.model_dump_json(exclude=_PROSE).encode())
    inputs: tuple[dict[str, Any], ...] = (
        {"role": "application", "sha256": shape, "source": asked.app},
        _arrivals("arrivals", asked.arrivals),
    )
    if scenario.profile.arrivals is not None:
        inputs += (_arrivals("profile arrivals", scenario.profile.arrivals),)
    return ServicesSource(
        app, asked, _sha256("".join(source["sha256"] for source in inputs).encode()), inputs
    )


def _arrivals(role: str, spec: ArrivalSpec) -> dict[str, Any]:
    """Return arrivals as an input of the manifest."""
    pattern = spec.model_dump(mode="json")
    plain = json.dumps(pattern | ({"file": _file_sha256(pattern["file"])} if "file" in pattern else {}))
    return {"role": role, "sha256": _sha256(plain.encode()), "source": "scenario", **pattern}


def _workload(
    scenario: ContainerScenario,
    asked: ServicesInput,
    compiled: CompiledApp,
    arrivals: Arrivals,
    seed: np.random.SeedSequence,
) -> RequestWorkload:
    """Return the containers before their peaks are known: peaks are 0, and the hosts are the only ceiling."""
    count = len(compiled.names)
    cores = DEFAULT_HOST_CORES if scenario.host_cores is None else scenario.host_cores
    offsets = np.random.default_rng(seed).integers(asked.phases, size=count)
    return RequestWorkload(
        names=compiled.names,
        applications=(Application(scenario.name, cores * asked.hosts, _NO_CEILING_BYTES),),
        app=np.zeros(count, np.int64),
        period_s=scenario.period_s,
        periods=max(1, round(asked.duration_s / scenario.period_s)),
        threads=given_threads(scenario, compiled.names, compiled.threads),
        host=np.arange(count) % asked.hosts,
        cores_of_host=np.full(asked.hosts, cores),
        host_cores=np.full(count, cores),
        peak_cores=np.zeros(count),
        peak_bytes=np.zeros(count, np.int64),
        phase_s=np.asarray(offsets * (scenario.period_s / asked.phases), np.float64),
        graph=compiled.graph,
        arrivals=arrivals,
        client=Client(
            connections=asked.connections,
            queue=asked.client_queue,
            timeout_s=NO_TIMEOUT if asked.client_timeout_s is None else asked.client_timeout_s,
        ),
    )


def _notes(scenario: ContainerScenario, asked: ServicesInput, app: AppSpec) -> Iterator[str]:
    profile = scenario.profile
    load = "the same load" if profile.arrivals is None else f"the load {_shortly(profile.arrivals)}"
    start = ", which begins with the start of every container" if profile.cold_start else ""
    yield (
        f"Peaks are those of a profiling run without limits, under {load} with other random numbers{start}: "
        f"CPU is the largest mean over {profile.interval_s:g} s."
    )
    if asked.program == "twinbed":
        yield (
            "The testbed's service program, control loop and load generator cost further CPU time, memory "
            "and network, by the calibration."
        )
    if scenario.host_cores is None:
        yield f"Hosts of {DEFAULT_HOST_CORES:g} cores are assumed; set host_cores to change it."
    if asked.hosts > 1:
        yield f"Containers are spread over the {asked.hosts} hosts in turn, in the application's order."
    if app.assumptions:
        yield f"The CPU times of {app.name} are assumptions; its file says how they were made."
    if app.source:
        yield f"{app.name}: {' '.join(app.source.split())}"


def _saturation(workload: RequestWorkload, needed_cores: Floats) -> Iterator[str]:
    """Yield a note on each container and host that has more work on average than its CPUs can do."""
    most = np.minimum(workload.threads, workload.host_cores)
    for index in np.flatnonzero(needed_cores > most):
        yield (
            f"{workload.names[index]} is saturated whatever its limits are: it needs "
            f"{needed_cores[index]:.3g} cores on average and can use {most[index]:g} at most."
        )
    per_host = np.bincount(workload.host, needed_cores, len(workload.cores_of_host))
    for index in np.flatnonzero(per_host > workload.cores_of_host):
        yield (
            f"Host {index + 1} is saturated whatever the limits are: its containers need "
            f"{per_host[index]:.3g} cores on average and it has {workload.cores_of_host[index]:g}."
        )


def _shortly(arrivals: ArrivalSpec) -> str:
    """Return the kind of arrivals and values that are not its defaults, as `exponential rate_rps=250`."""
    given = arrivals.model_dump(mode="json", exclude={"kind"}, exclude_defaults=True)
    named = given | ({"file": Path(given["file"]).name} if "file" in given else {})
    return " ".join([arrivals.kind, *(f"{key}={_plainly(value)}" for key, value in named.items())])


def _plainly(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _file_sha256(path: str) -> str:
    with open_regular(path, _MOST_BYTES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def profiled(
    workload: RequestWorkload, machine: Machine, seed: np.random.SeedSequence, asked: Profile
) -> tuple[RequestWorkload, History]:
    """Return the workload with the peaks of its containers in a run without limits, and their use in it.

    The CPU peak is the largest mean over asked.interval_s (lab.containers.input.ceilings.profile_peaks). The
    memory peak is the largest amount at a period's end, at least a page. All containers have the same phase,
    because without a quota the phase makes no difference and many phases cost time. The machine's delays do
    not change peaks. With asked.cold_start, every container burns the CPU of its start
    (machine.restart_cpu_s, on all its threads) before the first request.
    """
    together = replace(workload, phase_s=np.zeros_like(workload.phase_s))
    series = recorded(simulate(together, make("unlimited", {}), machine, seed=seed))
    usage, memory = series.usage_cores.astype(np.float64), series.memory_bytes
    if asked.cold_start:
        start = start_up(workload, machine.restart_cpu_s)
        usage, memory = np.concatenate((start, usage)), np.concatenate((memory[: len(start)], memory))
    peaks = replace(
        workload,
        peak_cores=profile_peaks(usage, workload.period_s, asked.interval_s),
        peak_bytes=np.maximum(memory.max(axis=0), PAGE_BYTES),
    )
    return peaks, History(usage, memory, workload.period_s)


def start_up(workload: RequestWorkload, cpu_s: float) -> Floats:
    """Return float64[T, N]: cores used while all containers start, each burning cpu_s on all its threads."""
    cores = np.minimum(workload.threads, workload.host_cores)
    rows = int(np.ceil(cpu_s / (cores.min() * workload.period_s))) if cpu_s > 0 else 0
    before_s = np.arange(rows)[:, None] * (cores * workload.period_s)
    burnt_s: Floats = np.clip(cpu_s - before_s, 0.0, cores * workload.period_s)
    return burnt_s / workload.period_s
