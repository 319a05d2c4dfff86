"""Runs fabric scenarios on the twin: one scheme, variant and seed after another, stored.

For: the road from a RunSpec with a fabric to a Run in the store. Not for: the measures (sends.py, …), the
physics (twin.fabric) or files (lab.runs.store).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from lab.ask.scenario import RunSpec
from lab.fabric.input import FabricInput, FaultsInput
from lab.fabric.metrics import METRICS
from lab.fabric.run.measured import Measured
from lab.fabric.run.world import World, world
from lab.runs.identity import asked, identified
from lab.runs.store import Run, RunStore
from twin.fabric.bfd import false_downs_per_hour
from twin.fabric.steps import OVERLAYS
from twinbed import InvariantError


def run_one(
    spec: RunSpec, store: RunStore, *, fresh: bool, progress: Callable[[str, float], None] | None = None
) -> Run:
    """Makes the run, or opens it where it is stored already and not wanted fresh. Raises TwinbedError."""
    identity = identified(spec, spec.resolved(), "")
    if not fresh and store.has(identity["id"]):
        found = store.open(identity["id"])
    else:
        began = time.perf_counter()
        where = world(spec)
        measured = _measured(where)
        metrics = _of_fabric(where) | dict(measured.metrics)
        manifest = {
            **identity,
            **asked(spec),
            "backend": "twin",
            "inputs": [],
            "about": about(where.asked),
            "notes": [],
            "metrics": {each.key: _plain(metrics.get(each.key, np.nan)) for each in METRICS},
            "created_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "wall_s": round(time.perf_counter() - began, 3),
        }
        found = store.publish(manifest, {"summary": _summary(manifest["metrics"]), **measured.tables})
    if progress is not None:
        progress(spec.label, 1.0)
    return found


def about(given: FabricInput) -> str:
    """The fabric and its faults in a line."""
    edge = given.topology
    spines = f", {edge.spines} spines" if edge.spines else ""
    if given.fleet is not None:
        whose = {"llama3": "Llama 3's", "stepfun": "StepFun's"}[given.fleet.rates]
        return f"{given.fleet.gpus:,} GPUs for {given.fleet.days:g} days, faults as in {whose} fleet"
    fabric = f"{edge.hosts:,} hosts with {edge.uplinks} uplinks at {edge.tors} ToRs{spines}"
    return f"{fabric}; {_about(given.faults)}"


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
            return f"a port that flaps, {silent}{cycle}"
        case "random":
            often = ", ".join(f"{what} {rate:g}" for what, rate in faults.per_day.items())
            return f"random {silent}faults, a day and device: {often}"
        case "round_robin":
            return f"{silent}port faults in turn, {cycle}"


def _measured(where: World) -> Measured:
    if where.asked.sends is not None:
        from lab.fabric.run import sends

        return sends.measure(where, where.asked.sends)
    if where.asked.collective is not None:
        from lab.fabric.run import collective

        return collective.measure(where, where.asked.collective)
    if where.asked.training is not None:
        from lab.fabric.run import training

        return training.measure(where, where.asked.training)
    if where.asked.fleet is not None:
        from lab.fabric.run import fleet

        return fleet.measure(where, where.asked.fleet)
    raise InvariantError("a fabric scenario without a measure")


def _of_fabric(where: World) -> dict[str, float]:
    if where.scheme not in OVERLAYS or where.asked.fleet is not None:
        return {}
    timers, stalls = where.fabric.timers, where.fabric.control.stalls
    per_host = false_downs_per_hour(timers, stalls, where.topology.uplinks)
    return {"false_downs_per_h": where.topology.hosts * per_host}


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _summary(metrics: dict[str, float | None]) -> pa.Table:
    values = [np.nan if metrics[each.key] is None else metrics[each.key] for each in METRICS]
    return pa.table(
        {
            "metric": pa.array([each.key for each in METRICS]),
            "value": pa.array(np.array(values, np.float64)),
            "unit": pa.array([each.unit for each in METRICS]),
        }
    )
