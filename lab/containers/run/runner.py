"""Makes container runs on the twin: a workload in, stored runs out.

For: `Runner`, which loads an input once, and makes a workload of it once per seed, for all policies. Not
for: the physics (twin.containers), the figures (figures.py) or files (lab.runs.store).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from control.allocator.ports import Allocator, Learner
from lab.ask.kind import Progress
from lab.ask.scenario import RunSpec
from lab.containers.input.replay import Replay, Source
from lab.containers.input.sections import ContainerScenario, container_scenario, machine_of
from lab.containers.run import tables
from lab.containers.run.figures import figures, mean_reserved_cores, recorded
from lab.containers.run.in_blocks import InBlocks
from lab.containers.run.side_by_side import Told
from lab.runs import manifest
from lab.runs.manifest import NOTHING_BEYOND, identified
from lab.runs.store import Run, RunStore
from twin.containers.model import Outcome, Workload
from twin.containers.recording import Keep
from twin.containers.run import simulate
from twin.containers.serverless_model import ServerlessWorkload

_RECORDED_CELLS = 30_000_000
"""Container-periods of the series of runs that are made side by side: 60 bytes each."""

_HISTOGRAM_CELLS = 4_000
"""Container-periods that take as much memory as the histograms of a container in a run in blocks."""


class Runner:
    """Implements lab.ask.kind.Runner. It caches the input that was loaded last."""

    def __init__(self) -> None:
        self._asked: object = None
        self._source: Source | None = None

    def __call__(
        self, specs: Sequence[RunSpec], store: RunStore, *, fresh: bool, progress: Progress | None
    ) -> list[Run]:
        """Return the runs. The workload is prepared only if at least one run must be made."""
        first = specs[0]
        scenario = container_scenario(first.scenario)
        source = self._load(scenario)
        runs: dict[int, Run] = {}
        asked: dict[int, tuple[RunSpec, dict[str, Any]]] = {}
        for number, spec in enumerate(specs):
            identity = identity_of(spec, source)
            if not fresh and (stored := store.find(identity["id"])):
                runs[number] = stored
                if progress is not None:
                    progress(spec.label, 1.0)
            else:
                asked[number] = spec, identity
        if asked:
            runs |= _made(asked, source, store, progress)
        return [runs[number] for number in range(len(specs))]

    def _load(self, scenario: ContainerScenario) -> Source:
        asked = (
            scenario.trace,
            scenario.workload,
            scenario.job,
            scenario.services,
            scenario.serverless,
            scenario.profile.arrivals,
        )
        if self._source is None or (asked, scenario.period_s) != self._asked:
            self._source = None
            self._source = load_source(scenario)
            self._asked = (asked, scenario.period_s)
            pa.default_memory_pool().release_unused()
        return self._source


def load_source(scenario: ContainerScenario) -> Source:
    """Return the scenario's input, of whatever sort. Raises TwinbedError."""
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
    """Return the seeds of (workload, simulation), the same for every policy, so that all policies get the
    same random numbers."""
    workload, simulation = np.random.SeedSequence(seed).spawn(2)
    return workload, simulation


def identity_of(spec: RunSpec, source: Source, beyond: Mapping[str, Any] = NOTHING_BEYOND) -> dict[str, Any]:
    """Return the run's identity as lab.runs.manifest.identified; beyond: what else it depends on."""
    resolved = source.settle(container_scenario(spec.scenario), spec.resolved())
    return identified(spec, resolved, source.sha256, beyond)


def store_run(
    spec: RunSpec,
    identity: dict[str, Any],
    source: Source,
    replay: Replay,
    outcome: Outcome,
    store: RunStore,
    backend: Mapping[str, Any],
    began: float,
    blocks: InBlocks | None = None,
) -> Run:
    """Store a finished run with its figures and tables, and return it.

    backend: description of the backend for the manifest; began: `time.perf_counter()` at its start. blocks:
    the object that took the series, if the outcome has no series.
    """
    scenario, workload = container_scenario(spec.scenario), replay.workload
    price, together = scenario.price, _together(scenario, replay)
    seen, stored = (None, None) if blocks is None else (blocks.seen(), blocks.stored())
    result = figures(replay, outcome, price, seen)
    about = {
        "inputs": list(source.inputs),
        "workload": {
            "containers": list(workload.names),
            "periods": len(recorded(outcome).up) if seen is None else seen.rows,
            "period_s": workload.period_s,
            "series_interval_s": together * workload.period_s,
            "host_cores": float(workload.host_cores.max()),
            "applications": [asdict(application) for application in workload.applications],
            **replay.about,
        },
        "reports": outcome.reports,
        "asked": outcome.asked,
        "decide_s": round(outcome.decide_s, 6),
        "given": given(spec, replay),
        "notes": list(replay.notes),
        **backend,
    }
    written = tables.of_run(workload, outcome, result, price.currency, together, stored)
    return manifest.store_run(spec, store, identity, about, result.summary, written, began, result.censored)


def _together(scenario: ContainerScenario, replay: Replay) -> int:
    """Return the number of periods in a row of the stored series."""
    period_s = replay.workload.period_s
    return max(1, round((scenario.series_interval_s or replay.interval_s or period_s) / period_s))


def _made(
    asked: Mapping[int, tuple[RunSpec, dict[str, Any]]],
    source: Source,
    store: RunStore,
    progress: Progress | None,
) -> dict[int, Run]:
    """Make and store runs that differ only in the policy. Each workload is prepared once for all of them."""
    first = next(iter(asked.values()))[0]
    scenario, machine = container_scenario(first.scenario), machine_of(first)
    replay = source.prepare(scenario, machine, streams(first.seed)[0])
    others = _refined_otherwise(first, source, scenario.refine.repeats if replay.refined else 0)
    told, in_blocks = Told(progress, 1 + len(others)), _in_blocks(replay)
    refinements: dict[int, dict[str, list[float]]] = {number: {} for number in asked}

    def repeat(number: int, kind: str, other: Replay) -> None:
        outcome = _simulated(asked[number][0], other, told, record=False)
        refinements[number].setdefault(kind, []).append(mean_reserved_cores(outcome, other))

    def make(number: int) -> Run:
        spec, identity = asked[number]
        began = time.perf_counter()
        blocks = InBlocks(replay, _together(scenario, replay)) if in_blocks else None
        outcome = _simulated(spec, replay, told, keep=None if blocks is None else blocks.take)
        made: dict[str, Any] = {"backend": "twin"}
        if others:
            made["refinement"] = refinements[number]
        run = store_run(spec, identity, source, replay, outcome, store, made, began, blocks)
        pa.default_memory_pool().release_unused()
        return run

    if in_blocks and others:
        # The workloads are small, and one thread makes each of them.
        ready = told.side_by_side([prepare for _, prepare in others])
        others = [(kind, partial(ready.pop, 0)) for kind, _ in others]
    for kind, prepare in others:
        other = prepare()
        told.side_by_side([partial(repeat, number, kind, other) for number in asked], in_step=in_blocks)
        # Only one workload that is refined otherwise is in memory at a time.
        del other
    most = max(1, _RECORDED_CELLS // max(1, _cells(scenario, replay)))
    makes = [partial(make, number) for number in asked]
    return dict(zip(asked, told.side_by_side(makes, most, in_step=in_blocks), strict=True))


def _in_blocks(replay: Replay) -> bool:
    return isinstance(replay.workload, Workload) and replay.workload.blocks is not None


def _cells(scenario: ContainerScenario, replay: Replay) -> int:
    """Return the container-periods that a run of a trace keeps at a time; 0 for a run of another sort."""
    workload = replay.workload
    if not isinstance(workload, Workload):
        return 0
    count, rows = len(workload.names), workload.periods
    if workload.blocks is not None:
        rows = workload.blocks.block_rows + rows // _together(scenario, replay) + _HISTOGRAM_CELLS
    return rows * count


def _refined_otherwise(spec: RunSpec, source: Source, repeats: int) -> list[tuple[str, Callable[[], Replay]]]:
    """Return the settings that refine the trace with other random numbers (`seeds`), and with flat samples
    (`flat`); empty without repeats."""
    scenario, machine = container_scenario(spec.scenario), machine_of(spec)
    level = scenario.model_copy(update={"refine": scenario.refine.model_copy(update={"cv": 0.0})})
    seeds = np.random.SeedSequence((spec.seed, 1)).spawn(repeats)
    ways = [("seeds", partial(source.prepare, scenario, machine, seed)) for seed in seeds]
    return [*ways, ("flat", partial(source.prepare, level, machine, streams(spec.seed)[0]))] if ways else []


def policy_of(spec: RunSpec, replay: Replay) -> Allocator:
    """Return a fresh allocator that has learnt from the profile, if there is one and it can."""
    policy: Allocator = spec.policy.make()
    if replay.history is not None and isinstance(policy, Learner):
        policy.learn(replay.history)
    return policy


def given(spec: RunSpec, replay: Replay) -> str:
    """Return the inputs that the policy received before the run, besides the global limits, in words."""
    policy, history = spec.policy.make(), replay.history
    told = policy.given
    parts = ["profiled peaks"] * told.peaks + ["profiled usage"] * told.profile
    if told.history:
        warm = history is not None and isinstance(policy, Learner)
        length_s = len(history.usage_cores) * history.period_s if history is not None and warm else 0.0
        parts.append(f"a warm history of {length_s:g} s" if length_s else "a cold history")
    return ", ".join([*parts, *([told.more] if told.more else [])]) or "nothing"


def _simulated(
    spec: RunSpec, replay: Replay, told: Told, *, record: bool = True, keep: Keep | None = None
) -> Outcome:
    workload, policy = replay.workload, policy_of(spec, replay)
    progress = partial(told.tell, spec.label)
    seed, machine = streams(spec.seed)[1], machine_of(spec)
    if isinstance(workload, ServerlessWorkload):
        from twin.containers.serverless import simulate_serverless

        return simulate_serverless(workload, policy, machine, seed=seed, progress=progress).outcome
    profile = replay.profile if policy.given.profile else None
    return simulate(
        workload, policy, machine, seed=seed, record=record, progress=progress, profile=profile, keep=keep
    )
