"""`fleet` and `intervals`: the cost of faults of edge and hosts for whole fleets, and how often to save.

For: the definitions, and the assumptions behind them that are changed one at a time. Not for: the physics
(twin.fabric). The questions are ours; the source of T1 to T5 only estimates. None of the declared values was
chosen by its results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from studies.experiments.measures import Pick, difference, mean, scaled
from studies.experiments.model import Experiment, Figure, Measure, changes, figures, written

SIZES = (16, 1024, 8192, 16384, 32768)
_SCHEMES = {"none": "no scheme", "bond": "bond", "reroute": "rerouting", "thorn": "THORN"}


def _percent(scheme: str, where: Mapping[str, Any]) -> Measure:
    return scaled(100, mean("effective_share", Pick(scheme, where)))


def _fleet(gpus: int) -> tuple[Figure, ...]:
    where = {"fabric.fleet.gpus": gpus}
    none, thorn = Pick("none", where), Pick("thorn", where)
    rows: list[tuple[Any, ...]] = [
        (f"effective_{scheme}", f"Effective time, {title}", "%", 2, _percent(scheme, where))
        for scheme, title in _SCHEMES.items()
    ]
    rows += [
        ("deaths_none", "Deaths, no scheme", "1", 1, mean("deaths", none)),
        ("deaths_thorn", "Deaths, THORN", "1", 1, mean("deaths", thorn)),
        ("saved", "GPU-hours that THORN saves", "h", 0, difference("lost_gpu_h", none, thorn)),
        (
            "money", "Money that THORN saves", "1,000 USD", 1,
            scaled(1e-3, difference("lost_cost", none, thorn)),
        ),
        ("interval", "Checkpoint interval, THORN", "s", 0, mean("checkpoint_interval_s", thorn)),
    ]  # fmt: skip
    return figures(*rows, aside=f"{gpus:,}")


FLEET = Experiment(
    **written("fleet"),
    scenario="fleet.yaml",
    figures=tuple(figure for gpus in SIZES for figure in _fleet(gpus)),
    sensitivity=changes(
        {
            "start 60 s": "fabric.fleet.init_s=60.0",
            "start 1,800 s": "fabric.fleet.init_s=1800.0",
            "repair 1 h": "fabric.fleet.repair_s=3600.0",
            "save every hour": "fabric.fleet.checkpoint_interval_s=3600.0",
            "save every 10 min": "fabric.fleet.checkpoint_interval_s=600.0",
            "degraded 7.2 s": "fabric.fleet.degraded_iteration_s=7.2",
            "StepFun's faults": "fabric.fleet.rates=stepfun",
            "no spares": "fabric.fleet.spares=0",
            "plain timer": "fabric.retry_profile=plain",
            "NCCL 2.13": "fabric.nccl.version=2.13.4",
        }
    ),
    sensitivity_part=("vary.fabric.fleet.gpus=[16384]",),
    curve="GPUs",
)


def _saves(interval_s: float) -> tuple[Figure, ...]:
    where = {"fabric.fleet.checkpoint_interval_s": interval_s}
    lost = scaled(1e-6, mean("lost_cost", Pick("thorn", where)))
    return figures(
        ("effective_none", "Effective time, no scheme", "%", 2, _percent("none", where)),
        ("effective_thorn", "Effective time, THORN", "%", 2, _percent("thorn", where)),
        ("lost", "Money lost, THORN", "1,000,000 USD", 2, lost),
        aside=f"{interval_s:,.0f} s",
    )


INTERVALS = Experiment(
    **written("intervals"),
    scenario="intervals.yaml",
    figures=tuple(
        figure
        for interval_s in (120.0, 300.0, 684.0, 1800.0, 3600.0, 7200.0)
        for figure in _saves(interval_s)
    ),
    curve="Work between two saves",
)
