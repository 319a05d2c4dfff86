"""Makes fabric runs on the twin: one scheme, variant and seed after another.

For: `run_all`, from a RunSpec with a fabric to a Run in the store. Not for: the measurements (sends.py,
…), the physics (twin.fabric) or files (lab.runs.store).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from lab.ask.kind import Progress
from lab.ask.scenario import RunSpec
from lab.fabric import nccl
from lab.fabric.input import MEASURES, FabricInput, FaultsInput
from lab.fabric.metrics import METRICS
from lab.fabric.run import planned
from lab.fabric.run.world import Measured, World, build_world
from lab.runs.manifest import one_by_one, store_run
from lab.runs.metric import summary
from lab.runs.store import Run, RunStore
from twin.fabric.bfd import false_downs_per_hour
from twin.fabric.steps import BY_NCCL, OVERLAYS
from twinbed import InvariantError
from twinbed.text import counted

_UNMET = (
    "A measurement met no fault: it ended before the first one, or none was on its paths. Measure longer, or "
    "set `faults.at_s` to an earlier moment."
)


def run_all(
    specs: Sequence[RunSpec], store: RunStore, *, fresh: bool, progress: Progress | None
) -> list[Run]:
    """Return the stored runs of the specs; implements lab.ask.kind.Runner."""

    def made(spec: RunSpec, identity: Mapping[str, Any], began: float) -> Run:
        world = build_world(spec)
        measured = _measured(world)
        values = dict.fromkeys((metric.key for metric in METRICS), np.nan)
        values |= _false_downs(world) | dict(measured.metrics)
        said = nccl.notes(world.asked.nccl.variables) if world.asked.nccl else []
        if world.asked.sends is not None and world.scheme in BY_NCCL:
            said = [*said, f"{world.scheme}: sends have no NCCL, so it does what `none` does."]
        if world.asked.faults.kind != "none" and values.get("outages") == 0:
            said = [*said, _UNMET]
        about_run = {"backend": "twin", "inputs": [], "about": about(world.asked), "notes": [*said]}
        bounds = measured.censored
        tables = {"summary": summary(METRICS, values, censored=bounds), **measured.tables}
        return store_run(spec, store, identity, about_run, values, tables, began, bounds)

    return one_by_one(specs, store, "", made, fresh=fresh, progress=progress)


def about(fabric: FabricInput) -> str:
    """Return the fabric and its faults in one line."""
    edge = fabric.topology
    spines = f", {edge.spines} spines" if edge.spines else ""
    if fabric.fleet is not None:
        plan = fabric.fleet.plan
        whose = {"llama3": "Llama 3's", "stepfun": "StepFun's"}[fabric.fleet.rates]
        spares, often = counted(fabric.fleet.spares, "spare host"), f"faults as in {whose} fleet"
        gpus, days = f"{fabric.fleet.gpus:,} GPUs", counted(fabric.fleet.days, "day")
        if plan is not None:
            idle = counted(planned.warm(plan, fabric.fleet.gpus) + plan.cold, "spare node")
            return (
                f"{gpus} and {idle} of 8 for {days}, {plan.failures_per_node_day:g} failures of a node a day"
            )
        return f"{gpus} and {spares} of 8 for {days}, {often}"
    hosts = f"{edge.hosts:,} hosts with {edge.uplinks} uplinks at {edge.tors} ToRs{spines}"
    return f"{hosts}; {_about(fabric.faults)}"


_WAYS = {None: "", "out": ", of its sending", "in": ", of its receiving"}


def _about(faults: FaultsInput) -> str:
    silent = "silent " if faults.silent else ""
    cycle = f"{faults.down_s:g} s down and {faults.up_s:g} s up"
    match faults.kind:
        case "none":
            return "no faults"
        case "single":
            return f"one {silent}fault of a {faults.what}{_WAYS[faults.one_way]}"
        case "flapping":
            return f"a flapping {faults.what}, {silent}{cycle}{_WAYS[faults.one_way]}"
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


def _false_downs(world: World) -> dict[str, float]:
    if world.scheme not in OVERLAYS or world.asked.fleet is not None:
        return {}
    timers, stalls = world.fabric.timers, world.fabric.control.stalls
    per_host = false_downs_per_hour(timers, stalls, world.topology.uplinks)
    return {"false_downs_per_h": world.topology.hosts * per_host}
