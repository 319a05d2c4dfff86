"""Runs scenarios on this machine: real containers under a policy.

For: `--backend testbed`; the store, tables and figures are those of the twin's runs. Not for: the containers'
programs (lab.containers.real.deployments) nor the control loop (testbed.containers.host.loop). Runs are made
one after another: they would disturb each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from lab.ask.kind import Progress
from lab.ask.scenario import RunSpec, Scenario, expand
from lab.containers.calibrate.probe import probe
from lab.containers.input.blocks import whole
from lab.containers.input.replay import Replay, Source
from lab.containers.input.sections import ContainerScenario, container_scenario, machine_of
from lab.containers.real.deployments import deployed
from lab.containers.real.outcome import Busy, outcome, request_log
from lab.containers.run.runner import identity_of, load_source, policy_of, store_run, streams
from lab.runs.store import Run, RunStore
from testbed.containers import machine as here
from testbed.containers import ownership
from testbed.containers.cgroup.drivers import QUOTA_PERIOD_US, detect
from testbed.containers.host import loop
from testbed.containers.host.observed import LoopTimes, Observed
from testbed.containers.load.plan import LoadResult
from twin.containers.model import Outcome, Workload
from twin.containers.requests.model import RequestWorkload
from twinbed import BackendError, InvariantError

NAME = "testbed"
CLIENT_GRACE_S = 2.0
"""Time from the end of the schedule until a load generator that still runs is stopped, s."""

ON_TIME_S = 0.010
"""Largest delay with which a tick of the control loop counts as on time, s."""

_ABSENT = ("burst_s", "network_delay_s", "telemetry_loss")
"""Keys of `machine` that no machine has here; all others are times, which this machine takes itself."""


def run(
    spec: RunSpec, store: RunStore, *, repeat: int = 0, progress: Progress | None = None, fresh: bool = True
) -> Run:
    """Carry out one run on this machine and store it, replacing an earlier run of the same id.

    repeat: number of the run among equal runs; it is part of the id. fresh: False reuses a stored run.

    Raises BackendError if the machine refuses (without root or cgroups this is before anything is started)
    and for scenarios that only the twin can run, ScenarioError for bad input. After an error, also one of
    `progress`, and after KeyboardInterrupt no process is left running and the run is not stored.
    """
    began = time.perf_counter()
    scenario = on_this_machine(spec.scenario)
    spec = replace(spec, scenario=scenario)
    source = load_source(scenario)
    identity = identity_of(spec, source, {"backend": NAME, "repeat": repeat})
    if not fresh and (stored_run := store.find(identity["id"])):
        return stored_run
    check()
    replay = source.prepare(scenario, machine_of(spec), streams(spec.seed)[0])
    if isinstance(replay.workload, Workload):
        replay = replace(replay, workload=whole(replay.workload))
    if not isinstance(replay.workload, Workload | RequestWorkload):
        raise BackendError(f"{spec.name}: pods of a function cannot be run here; use --backend twin")
    fit = probe(spec.calibration)
    label = f"{spec.label} repeat {repeat}" if repeat else spec.label
    outcome, about = _carry_out(spec, source, replay, None if progress is None else partial(progress, label))
    whose = {"backend": NAME, "repeat": repeat, NAME: about | {"probe": fit.plain()}}
    if any(fit.misfits()):
        replay = replace(replay, notes=(*replay.notes, fit.sentence))
    return store_run(spec, identity, source, replay, outcome, store, whose, began)


def run_scenario(
    scenario: Scenario, store: RunStore, repeat: int, progress: Progress | None = None
) -> list[Run]:
    """Return all runs of a scenario, in `expand` order; otherwise as `run`."""
    return [run(spec, store, repeat=repeat, progress=progress) for spec in expand(scenario)]


def check() -> None:
    """Raise BackendError, with the cure, where containers cannot be run on this machine."""
    detect()


def on_this_machine(question: Scenario) -> ContainerScenario:
    """Return the scenario with this machine's properties: one host, its CPUs, the service program.

    Raises BackendError for conditions that it cannot meet.
    """
    scenario, cores = container_scenario(question), float(os.cpu_count() or 1)
    for problem in _unmet(scenario, cores):
        raise BackendError(f"{scenario.name}: {problem}")
    changes: dict[str, Any] = {"host_cores": cores}
    if scenario.services is None:
        changes["hosts"] = 1
    else:
        changes["services"] = scenario.services.model_copy(update={"program": "twinbed"})
    return scenario.model_copy(update=changes)


def _unmet(scenario: ContainerScenario, cores: float) -> Iterator[str]:
    """Yield each condition that this machine, which has `cores` cores, cannot meet, with the cure."""
    if scenario.serverless is not None:
        yield "serverless scenarios cannot be run here; use --backend twin"
    if scenario.host_cores not in (None, cores):
        yield (
            f"host_cores: {scenario.host_cores:g}, and this machine has {cores:g}; "
            f"--set host_cores={cores:g} asks the question for this machine"
        )
    period_s = QUOTA_PERIOD_US / 1e6
    if scenario.period_s != period_s:
        yield (
            f"period_s: {scenario.period_s:g}, and containers here have CFS periods of {period_s:g}; "
            f"--set period_s={period_s:g} asks the question for this machine"
        )
    if scenario.draw:
        yield f"draw: {scenario.draw}, and nobody chooses it here; leave it out, or use --backend twin"
    for key in _ABSENT:
        if value := getattr(scenario.machine, key):
            yield f"machine.{key}: {value:g}, and this machine has none; leave it out, or use --backend twin"
    for key, value in scenario.machine.model_dump(exclude={*_ABSENT}, exclude_none=True).items():
        if key != "restart_cpu_s" or not scenario.profile.cold_start:  # The profile is the twin's.
            yield (
                f"machine.{key}: {value:g}, and this machine takes its own time; leave it out, or use "
                "--backend twin"
            )
    services_hosts = None if scenario.services is None else scenario.services.hosts
    for key, hosts in (("hosts", scenario.hosts), ("services.hosts", services_hosts)):
        if hosts not in (None, 1):
            yield f"{key}: {hosts}, and this machine is one; --set {key}=1 asks the question for this machine"
    if scenario.cpu_weight is not None:
        yield "cpu_weight: the testbed has only the weights that a policy decides"
    if scenario.hpa is not None:
        yield "hpa: the testbed starts no replicas; use --backend twin"


def _carry_out(
    spec: RunSpec, source: Source, replay: Replay, progress: Callable[[float], None] | None
) -> tuple[Outcome, dict[str, Any]]:
    workload = replay.workload
    assert isinstance(workload, Workload | RequestWorkload)
    periods = workload.periods if isinstance(workload, RequestWorkload) else len(workload.present)
    duration_s = periods * workload.period_s
    busy = Busy()

    def on_tick(tick: loop.Progress) -> None:
        busy.note(tick.elapsed_s)
        if progress is not None:
            progress(min(tick.elapsed_s / duration_s, 1.0))

    policy = policy_of(spec, replay)
    with ownership.temporary_directory() as folder, deployed(spec, source, replay, policy, folder) as made:
        # If there is a client, it ends the run itself and must not be stopped while it ends.
        patience_s = duration_s + (0.0 if made.load is None else CLIENT_GRACE_S)
        settings = loop.Settings(
            period_s=workload.period_s,
            duration_s=patience_s,
            logs=folder,
            host_memory_bytes=workload.host_memory_bytes,
            report_interval_s=workload.report_interval_s,
        )
        observed = loop.control(
            made.containers,
            workload.applications,
            policy,
            settings,
            client=made.client,
            on_tick=on_tick,
            profile=replay.profile if policy.given.profile else None,
            service_level=made.service_level,
        )
        load = None if made.load is None else made.load()
    if observed.names != workload.names:
        raise InvariantError(f"{spec.name}: containers came back as {', '.join(observed.names)}")
    log = None if load is None else request_log(load, len(workload.names))
    return outcome(observed, periods, log), _about(observed, load, busy)


def _about(observed: Observed, load: LoadResult | None, busy: Busy) -> dict[str, Any]:
    """Return the manifest's fields on the machine, the control loop and the load generator. others_cores: CPU
    used by everything outside the run's containers, including control loop and generator."""
    used_cores, stolen_cores = busy.cores()
    lasted_s = max(len(observed.series.up), 1) * observed.period_s
    about = {
        "machine": {**here.facts(), **observed.facts},
        "others_cores": round(max(used_cores - float(observed.done_s.sum()) / lasted_s, 0.0), 4),
        "stolen_cores": round(stolen_cores, 4),
        "telemetry": observed.telemetry,
        "began_s": round(observed.began_s, 3),
        "exit_codes": list(observed.exit_codes),
        "loop": _times(observed.times),
    }
    return about if load is None else about | {"client": _client(load)}


def _client(load: LoadResult) -> dict[str, Any]:
    return {"cpu_s": round(load.cpu_s, 4), "requests": len(load.at_s), **_spread("late", load.late_s)}


def _times(times: LoopTimes) -> Mapping[str, Any]:
    late, write, grant = times.lateness_s, times.write_s, times.grant_s
    return {
        "ticks": len(late), "on_time_share": float(np.mean(late <= ON_TIME_S)) if len(late) else None,
        **_spread("lateness", late), "writes": len(write), **_spread("write", write), "grants": len(grant),
        **_spread("grant", grant), "own_cores": round(times.own_cores, 5), "skipped": times.skipped,
        "lost": times.lost,
    }  # fmt: skip


def _spread(name: str, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> dict[str, float | None]:
    wanted = {"p50": 0.5, "p99": 0.99}
    return {
        f"{name}_{key}_s": float(np.quantile(values, share)) if len(values) else None
        for key, share in wanted.items()
    }
