"""Runs scenarios on the twin: a workload in, stored runs out.

For: the road from a RunSpec to a Run in the store; the input is loaded once, and made a workload once per
seed, for all policies; what differs in more than the policy runs side by side (lab.engine.local). Not for:
the physics (twin), the figures' meaning (lab.containers.metrics) or files (lab.runs.store).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lab.ask.scenario import INPUTS, RunSpec, Scenario, build, expand, with_overrides
from lab.containers.input.replay import Replay, Source
from lab.containers.metrics import figures, recorded
from lab.containers.run import tables
from lab.engine.local import cores, run_units
from lab.runs.identity import NOTHING_BEYOND, asked, identified
from lab.runs.store import Run, RunStore
from twin.containers import simulate
from twin.containers.model import Outcome
from twin.containers.serverless_model import ServerlessWorkload
from twinbed import ScenarioError

Progress = Callable[[str, float], None]
"""progress(label, fraction): label is RunSpec.label, fraction of that run 0..1. May raise to cancel."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """The runs that share a workload: every policy of one variant with one seed."""

    specs: tuple[RunSpec, ...]
    store: Path
    fresh: bool


class _Sources:
    """The input last loaded: units that follow each other mostly have the same."""

    def __init__(self) -> None:
        self._asked: object = None
        self._source: Source | None = None

    def load(self, scenario: Scenario) -> Source:
        """The scenario's input."""
        asked = ([getattr(scenario, key) for key in INPUTS], scenario.period_s)
        if self._source is None or asked != self._asked:
            self._source = None
            self._source = load_source(scenario)
            self._asked = asked
            pa.default_memory_pool().release_unused()
        return self._source


def run(spec: RunSpec, store: RunStore, *, progress: Progress | None = None) -> Run:
    """Simulates one run and stores it, replacing an earlier run of the same id.

    Raises TwinbedError for bad input. Whatever `progress` raises, and KeyboardInterrupt, pass through
    with nothing stored of this run.
    """
    return _run_unit(_Sources(), _Unit((spec,), store.root, True), progress)[0]


def run_scenario(
    scenario: Scenario,
    store: RunStore,
    *,
    progress: Progress | None = None,
    jobs: int | None = None,
    fresh: bool = True,
) -> list[Run]:
    """All runs of a scenario, in `expand` order. Runs finished before a failure stay in the store.

    jobs: processes at work at once (default: this process's CPUs; of fabrics one, whose runs are mostly
    shorter than a process takes to start); runs that differ in the policy alone are
    made one after another, by one of them, and a single such group by this process. fresh: False opens a run
    that the store has already instead of simulating it again.
    """
    specs = expand(scenario)
    groups: dict[tuple[str, int], list[int]] = {}
    for index, spec in enumerate(specs):
        groups.setdefault((spec.variant, spec.seed), []).append(index)
    units = [_Unit(tuple(specs[index] for index in group), store.root, fresh) for group in groups.values()]
    usual = cores() if scenario.fabric is None else 1
    workers = min(usual if jobs is None else jobs, len(units))
    if workers > 1:
        found = run_units(_run_alone, units, workers, progress)
    else:
        sources = _Sources()
        found = [_run_unit(sources, unit, progress) for unit in units]
    runs = {
        index: each
        for group, made in zip(groups.values(), found, strict=True)
        for index, each in zip(group, made, strict=True)
    }
    return [runs[index] for index in range(len(specs))]


def whatif_scenario(
    source: str | Path,
    policies: Sequence[str],
    *,
    name: str | None = None,
    format: str | None = None,  # noqa: A002 - the trace's format, named as in traces.load
    options: dict[str, Any] | None = None,
    containers: Sequence[str] | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
    seed: int = 0,
    overrides: Sequence[str] = (),
) -> Scenario:
    """What `twinbed whatif` asks: a trace (path or shipped recording) under each policy (text form).

    name: begins the run ids (default: made from the source's name); overrides: `KEY=VALUE` as in
    `lab.ask.scenario.with_overrides`. Raises ScenarioError.
    """
    trace = {
        "source": str(source),
        "format": format,
        "options": options,
        "containers": None if containers is None else list(containers),
        "start_s": start_s,
        "end_s": end_s,
    }
    raw = {
        "name": name or _slug(str(source)),
        "trace": {key: value for key, value in trace.items() if value is not None},
        "policies": list(policies),
        "seeds": [seed],
    }
    return with_overrides(build(raw, "whatif"), overrides)


def _slug(source: str) -> str:
    stem = Path(source).name.split(".", 1)[0]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")[:64] or "trace"


_own_sources = _Sources()


def _run_alone(unit: _Unit, progress: Progress) -> list[Run]:
    """A unit in a process that lives for such units."""
    return _run_unit(_own_sources, unit, progress)


def _run_unit(sources: _Sources, unit: _Unit, progress: Progress | None) -> list[Run]:
    """Makes, or finds, the unit's runs; the workload is prepared only if one of them is to be made."""
    first, store = unit.specs[0], RunStore(unit.store)
    if first.scenario.fabric is not None:
        from lab.fabric.run.runner import run_one

        return [run_one(spec, store, fresh=unit.fresh, progress=progress) for spec in unit.specs]
    source = sources.load(first.scenario)
    replay: Replay | None = None
    runs = []
    for spec in unit.specs:
        identity = identity_of(spec, source)
        if not unit.fresh and store.has(identity["id"]):
            runs.append(store.open(identity["id"]))
            if progress is not None:
                progress(spec.label, 1.0)
            continue
        if replay is None:
            replay = source.prepare(first.scenario, first.machine, streams(first.seed)[0])
        runs.append(_simulate(spec, identity, source, replay, store, progress))
        pa.default_memory_pool().release_unused()
    return runs


def load_source(scenario: Scenario) -> Source:
    """The scenario's input, of whatever kind; raises TwinbedError, as for a fabric, which has none."""
    if scenario.fabric is not None:
        raise ScenarioError(f"{scenario.name}: fabric: fabrics run on the twin only; leave --backend out")
    if scenario.services is not None:
        from lab.containers.input.services.prepare import load_source as load_services

        return load_services(scenario)
    if scenario.serverless is not None:
        from lab.containers.input.services.functions import load_source as load_function

        return load_function(scenario)
    if scenario.job is not None:
        from lab.containers.real.recorded import load_source as load_job

        return load_job(scenario)
    from lab.containers.input.workload import load_source as load_trace

    return load_trace(scenario)


def streams(seed: int) -> tuple[np.random.SeedSequence, np.random.SeedSequence]:
    """(workload, simulation): the same for every policy, so that policies meet the same luck."""
    workload, simulation = np.random.SeedSequence(seed).spawn(2)
    return workload, simulation


def _simulate(
    spec: RunSpec,
    identity: dict[str, Any],
    source: Source,
    replay: Replay,
    store: RunStore,
    progress: Progress | None,
) -> Run:
    began = time.perf_counter()
    outcome = _outcome(spec, replay, None if progress is None else partial(progress, spec.label))
    return store_run(spec, identity, source, replay, outcome, store, {"backend": "twin"}, began)


def store_run(
    spec: RunSpec,
    identity: dict[str, Any],
    source: Source,
    replay: Replay,
    outcome: Outcome,
    store: RunStore,
    backend: Mapping[str, Any],
    began: float,
) -> Run:
    """Figures, tables and manifest of a finished run, into the store.

    backend: what the manifest is to say of who carried it out; began: `time.perf_counter()` at its start.
    """
    result = figures(replay, outcome, spec.scenario.price)
    manifest = (
        identity
        | _manifest(spec, source, replay, outcome)
        | dict(backend)
        | {
            "metrics": {key: None if math.isnan(value) else value for key, value in result.summary.items()},
            "created_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "wall_s": round(time.perf_counter() - began, 3),
        }
    )
    return store.publish(
        manifest, tables.of_run(replay.workload, outcome, result, spec.scenario.price.currency)
    )


def _outcome(spec: RunSpec, replay: Replay, progress: Callable[[float], None] | None) -> Outcome:
    workload, policy, seed = replay.workload, spec.policy.make(), streams(spec.seed)[1]
    if isinstance(workload, ServerlessWorkload):
        from twin.containers.serverless import simulate_serverless

        return simulate_serverless(workload, policy, spec.machine, seed=seed, progress=progress).outcome
    return simulate(workload, policy, spec.machine, seed=seed, progress=progress)


def identity_of(spec: RunSpec, source: Source, beyond: Mapping[str, Any] = NOTHING_BEYOND) -> dict[str, Any]:
    """What tells the run from every other, and the id made of it. beyond: what else it depends on."""
    resolved = source.settle(spec.scenario, spec.resolved())
    return identified(spec, resolved, source.sha256, beyond)


def _manifest(spec: RunSpec, source: Source, replay: Replay, outcome: Outcome) -> dict[str, Any]:
    """All else that is known of a run, except its figures."""
    workload = replay.workload
    return {
        **asked(spec),
        "inputs": list(source.inputs),
        "workload": {
            "containers": list(workload.names),
            "periods": len(recorded(outcome).up),
            "period_s": workload.period_s,
            "host_cores": float(workload.host_cores.max()),
            "applications": [asdict(application) for application in workload.applications],
            **replay.about,
        },
        "reports": outcome.reports,
        "decide_s": round(outcome.decide_s, 6),
        "notes": list(replay.notes),
    }
