"""T3: iterations of GPT-2 with faults all the time. For: the definition. Source: figure 3.6."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from studies.experiments.fabric_assumptions import ACK_2_14, ACK_2_20, EDGE, SIGNAL
from studies.experiments.measures import Pick, change, difference, mean, scaled
from studies.experiments.model import Experiment, Figure

_JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "dp": ("Data parallel", {"fabric.training.data": 4}),
    "pp": ("Pipeline parallel", {"fabric.training.pipeline": 4}),
    "pp_tp": ("Pipeline and tensor parallel", {"fabric.training.tensor": 2}),
}
_FAULTS = "fabric.faults.kind"


def _figures(key: str, title: str, where: Mapping[str, Any]) -> Iterator[Figure]:
    with_faults = Pick("thorn", {**where, _FAULTS: "round_robin"})
    without = Pick("thorn", {**where, _FAULTS: "none"})
    for share in (90, 95):
        metric = f"iteration_p{share}_s"
        added = scaled(1000, difference(metric, with_faults, without))
        yield Figure(f"{key}_p{share}_ms", f"{title}: added at p{share}", "ms", 1, added)
        percent = change(metric, with_faults, without)
        yield Figure(f"{key}_p{share}", f"{title}: added at p{share}", "%", 1, percent)
    usual = scaled(1000, mean("iteration_p50_s", without))
    yield Figure(f"{key}_usual", f"{title}: iteration without faults", "ms", 0, usual, detail=True)


T3 = Experiment(
    name="T3",
    title="Iterations of GPT-2 with faults all the time",
    scenario="T3.yaml",
    method=(
        "GPT-2 (124 M parameters, 12 layers) on 4 hosts with a GPU each: 4 replicas, 4 stages, or 2 stages "
        "of 2 GPUs. Assumed, as the source gives no batch: 192 sequences of 1,024 tokens an iteration in "
        "micro-batches of 12, and 60 TFLOP/s sustained. Neighbours have one flow each way. Means of 10 "
        "iterations, as the source's; with faults against without, both with THORN."
    ),
    figures=tuple(figure for key, about in _JOBS.items() for figure in _figures(key, *about)),
    discussion=(
        "What a fault adds is a step, not a slope: one ACK timeout, 1.07 s, in the one iteration that it "
        "meets, so 107 ms in a mean of ten, the same for every job. Which percentile shows it depends on "
        "how many means of ten fit into 40 s: in data parallel only p95 does. The source's figures grow "
        "with the iteration, from 5 to 928 ms, which no stall of a connection does: more of its job must be "
        "slower while a port is down, or its iterations vary by themselves. Ours have no variation of their "
        "own.",
        "With an ACK timeout of 2^14 data parallel comes to 7 and 20 ms and pipeline parallel to 34 ms, "
        "near the source's 5-7 and 55-77 ms; BFD's timers matter less than that exponent. Tensor parallel "
        "iterations are six times as long in the source (7.9 s) as ours, whose batch is assumed.",
    ),
    sensitivity=(*EDGE, ACK_2_14, ACK_2_20, SIGNAL),
    sensitivity_part=("policies=[thorn]",),
)
