"""Makes fabric runs on the twin: one scheme, variant and seed after another.

For: `run_all`, from a RunSpec with a fabric to a Run in the store. Not for: the measures (sends.py, …), the
physics (twin.fabric) or files (lab.runs.store).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from lab.ask.kind import Progress
from lab.ask.scenario import RunSpec
from lab.fabric.input import FabricInput, FaultsInput
from lab.fabric.metrics import METRICS
from lab.fabric.run.measured import Measured
from lab.fabric.run.world import World, world
from lab.runs.manifest import identified, store_run
from lab.runs.metric import summary
from lab.runs.store import Run, RunStore
from twin.fabric.bfd import false_downs_per_hour
from twin.fabric.steps import OVERLAYS
from twinbed import InvariantError


def run_all(
    specs: Sequence[RunSpec], store: RunStore, *, fresh: bool, progress: Progress | None
) -> list[Run]:
    """Implements lab.ask.kind.Runner."""
    runs = []
    for spec in specs:
        identity = identified(spec, spec.resolved(), "")
        if not fresh and store.has(identity["id"]):
            runs.append(store.open(identity["id"]))
        else:
            began = time.perf_counter()
            made = world(spec)
            measured = _measured(made)
            values = dict.fromkeys((metric.key for metric in METRICS), np.nan)
            values |= _false_downs(made) | dict(measured.metrics)
            about_run = {"backend": "twin", "inputs": [], "about": about(made.asked), "notes": []}
            tables = {"summary": summary(METRICS, values), **measured.tables}
            runs.append(store_run(spec, store, identity, about_run, values, tables, began))
        if progress is not None:
            progress(spec.label, 1.0)
    return runs


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


def _false_downs(where: World) -> dict[str, float]:
    if where.scheme not in OVERLAYS or where.asked.fleet is not None:
        return {}
    timers, stalls = where.fabric.timers, where.fabric.control.stalls
    per_host = false_downs_per_hour(timers, stalls, where.topology.uplinks)
    return {"false_downs_per_h": where.topology.hosts * per_host}
