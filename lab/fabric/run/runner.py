"""Runs of fabric scenarios on the twin: one scheme, variant and seed after another, stored.

For: making a stored Run from a RunSpec with a fabric. Not for: the measurements (sends.py, …), the physics
(twin.fabric) or files (lab.runs.store).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module

import numpy as np
import pyarrow as pa

from lab.ask.scenario import RunSpec
from lab.fabric.input import MEASURES, FabricInput, FaultsInput
from lab.fabric.metrics import METRICS
from lab.fabric.run.measured import Measured
from lab.fabric.run.world import World, build_world
from lab.runs.identity import asked, identified
from lab.runs.store import Run, RunStore
from twin.fabric.bfd import false_downs_per_hour
from twin.fabric.steps import OVERLAYS
from twinbed import InvariantError


def run_one(
    spec: RunSpec, store: RunStore, *, fresh: bool, progress: Callable[[str, float], None] | None = None
) -> Run:
    """Return the run: from the store if it is there and `fresh` is false, else made anew. Raises
    TwinbedError."""
    identity = identified(spec, spec.resolved(), "")
    if not fresh and store.has(identity["id"]):
        run = store.open(identity["id"])
    else:
        began = time.perf_counter()
        world = build_world(spec)
        measured = _measured(world)
        metrics = _of_fabric(world) | dict(measured.metrics)
        manifest = {
            **identity,
            **asked(spec),
            "backend": "twin",
            "inputs": [],
            "about": about(world.asked),
            "notes": [],
            "metrics": {metric.key: _plain(metrics.get(metric.key, np.nan)) for metric in METRICS},
            "created_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "wall_s": round(time.perf_counter() - began, 3),
        }
        run = store.publish(manifest, {"summary": _summary(manifest["metrics"]), **measured.tables})
    if progress is not None:
        progress(spec.label, 1.0)
    return run


def about(fabric: FabricInput) -> str:
    """Return the fabric and its faults in one line."""
    edge = fabric.topology
    spines = f", {edge.spines} spines" if edge.spines else ""
    if fabric.fleet is not None:
        whose = {"llama3": "Llama 3's", "stepfun": "StepFun's"}[fabric.fleet.rates]
        return f"{fabric.fleet.gpus:,} GPUs for {fabric.fleet.days:g} days, faults as in {whose} fleet"
    hosts = f"{edge.hosts:,} hosts with {edge.uplinks} uplinks at {edge.tors} ToRs{spines}"
    return f"{hosts}; {_about(fabric.faults)}"


def _about(faults: FaultsInput) -> str:
    silent = "silent " if faults.silent else ""
    cycle = f"{faults.down_s:g} s down and {faults.up_s:g} s up"
    match faults.kind:
        case "none":
            return "no faults"
        case "single":
            way = {None: "", "out": ", of what it sends", "in": ", of what it receives"}[faults.one_way]
            return f"one {silent}fault of a {faults.what}{way}"
        case "flapping":
            return f"a flapping port, {silent}{cycle}"
        case "random":
            often = ", ".join(f"{kind} {rate:g}" for kind, rate in faults.per_day.items())
            return f"random {silent}faults per device and day: {often}"
        case "round_robin":
            return f"{silent}port faults in turn, {cycle}"


def _measured(world: World) -> Measured:
    for name in MEASURES:
        section = getattr(world.asked, name)
        if section is not None:
            measured: Measured = import_module(f"lab.fabric.run.{name}").measure(world, section)
            return measured
    raise InvariantError("a fabric scenario without a measure")


def _of_fabric(world: World) -> dict[str, float]:
    if world.scheme not in OVERLAYS or world.asked.fleet is not None:
        return {}
    timers, stalls = world.fabric.timers, world.fabric.control.stalls
    per_host = false_downs_per_hour(timers, stalls, world.topology.uplinks)
    return {"false_downs_per_h": world.topology.hosts * per_host}


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _summary(metrics: dict[str, float | None]) -> pa.Table:
    values = [np.nan if metrics[metric.key] is None else metrics[metric.key] for metric in METRICS]
    return pa.table(
        {
            "metric": pa.array([metric.key for metric in METRICS]),
            "value": pa.array(np.array(values, np.float64)),
            "unit": pa.array([metric.unit for metric in METRICS]),
        }
    )
