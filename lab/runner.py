"""Runs scenarios on the twin: trace in, stored runs out.

For: the road from a RunSpec to a Run in the store; the trace is loaded once, and refined once per
seed, for all policies. Not for: the physics (twin), the figures' meaning (lab.metrics) or files (lab.store).
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lab import tables
from lab.metrics import figures, recorded
from lab.scenario import RunSpec, Scenario, build, expand, with_overrides
from lab.store import SCHEMA, Run, RunStore
from lab.workload import Replay, burstiness, content_sha256, input_trace, prepare
from traces.schema import UsageTrace
from twin.containers import simulate
from twinbed import __version__

Progress = Callable[[str, float], None]
"""progress(label, fraction): label is RunSpec.label, fraction of that run 0..1. May raise to cancel."""

_IDENTITY_DIGITS = 10


@dataclass(frozen=True, slots=True)
class _Input:
    """A loaded trace with its content's hash."""

    trace: UsageTrace
    sha256: str


def run(spec: RunSpec, store: RunStore, *, progress: Progress | None = None) -> Run:
    """Simulates one run and stores it, replacing an earlier run of the same id.

    Raises TwinbedError for bad input. Whatever `progress` raises, and KeyboardInterrupt, pass through
    with nothing stored of this run.
    """
    source = _load(spec.scenario)
    return _simulate(spec, source, _replay(spec, source), store, progress)


def run_scenario(scenario: Scenario, store: RunStore, *, progress: Progress | None = None) -> list[Run]:
    """All runs of a scenario, in `expand` order. Runs finished before a failure stay in the store."""
    specs = expand(scenario)
    source = _load(scenario)
    runs: dict[int, Run] = {}
    for seed in scenario.seeds:
        of_seed = {index: spec for index, spec in enumerate(specs) if spec.seed == seed}
        replay = _replay(next(iter(of_seed.values())), source)
        for index, spec in of_seed.items():
            runs[index] = _simulate(spec, source, replay, store, progress)
            pa.default_memory_pool().release_unused()
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
    `lab.scenario.with_overrides`. Raises ScenarioError.
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


def _load(scenario: Scenario) -> _Input:
    trace = input_trace(scenario)
    pa.default_memory_pool().release_unused()
    return _Input(trace, content_sha256(trace))


def _streams(seed: int) -> tuple[np.random.SeedSequence, np.random.SeedSequence]:
    """(refinement, simulation): the same for every policy, so that policies meet the same luck."""
    refinement, simulation = np.random.SeedSequence(seed).spawn(2)
    return refinement, simulation


def _replay(spec: RunSpec, source: _Input) -> Replay:
    return prepare(spec.scenario, source.trace, _streams(spec.seed)[0])


def _simulate(
    spec: RunSpec, source: _Input, replay: Replay, store: RunStore, progress: Progress | None
) -> Run:
    began = time.perf_counter()
    workload = replay.workload
    outcome = simulate(
        workload,
        spec.policy.make(),
        spec.machine,
        seed=_streams(spec.seed)[1],
        progress=None if progress is None else lambda fraction: progress(spec.label, fraction),
    )
    result = figures(replay, outcome, spec.scenario.price)
    apps = tuple(workload.applications[index].name for index in workload.app)
    written = {
        "summary": tables.summary(result.summary, spec.scenario.price.currency),
        "containers": tables.containers(workload.names, apps, result.per_container),
        "events": tables.events(outcome.events, workload.names),
        "periods": tables.periods(recorded(outcome), workload.names),
    }
    manifest = _manifest(spec, source, replay) | {
        "metrics": {key: None if math.isnan(value) else value for key, value in result.summary.items()},
        "created_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "wall_s": round(time.perf_counter() - began, 3),
    }
    return store.publish(manifest, written)


def _manifest(spec: RunSpec, source: _Input, replay: Replay) -> dict[str, Any]:
    """All that is known of a run before it has run; `identity` is hashed into the id."""
    resolved = spec.resolved()
    trace = resolved.pop("trace")
    resolved["refine"] = asdict(burstiness(spec.scenario))
    identity = {
        "spec": resolved,
        "trace_sha256": source.sha256,
        "calibration_sha256": spec.calibration.sha256,
        "twinbed": __version__,
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    workload = replay.workload
    return {
        "schema": SCHEMA,
        "id": f"{spec.name}-{spec.policy.name}-{digest[:_IDENTITY_DIGITS]}",
        "identity_sha256": digest,
        "name": spec.name,
        "title": spec.scenario.title,
        "question": spec.scenario.question,
        "policy": spec.policy.text,
        "seed": spec.seed,
        "backend": "twin",
        "spec": resolved,
        "inputs": [{"role": "trace", "sha256": source.sha256, **(trace or {"source": "scenario"})}],
        "calibration": {
            "name": spec.calibration.name,
            "kernel": spec.calibration.kernel,
            "cpu": spec.calibration.cpu,
            "date": spec.calibration.date,
            "sha256": spec.calibration.sha256,
            "values": {key: asdict(value) for key, value in spec.calibration.values.items()},
        },
        "workload": {
            "containers": list(workload.names),
            "periods": len(workload.present),
            "period_s": workload.period_s,
            "start_s": source.trace.start_s,
            "host_cores": float(workload.host_cores.max()),
            "applications": [asdict(application) for application in workload.applications],
        },
        "notes": list(replay.notes),
        "versions": {
            "twinbed": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pyarrow": pa.__version__,
        },
    }
