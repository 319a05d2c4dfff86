"""How well step times over GPUs and nodes are told of a job that was never seen, on public measurements.

For: the error of twin/cloud/scaling on measured step times, each job (with its variants) left out in turn.
Not for: the model itself, nor for reading tables. What is measured of a job before it is asked: all its batch
sizes on one GPU of one accelerator, and ONE point elsewhere (the probe: the middle batch size at one
placement); asked is every other point. Which accelerator and placement those are, and the model's shape, are
chosen on the other jobs only. The model is handed points without their times, and the known ones with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from traces.readers.training import MeasuredSteps
from twin.cloud.scaling import SHAPES, Plan, Scaling, Shape, Steps, choose, errors

Errors = dict[str, NDArray[np.float64]]
"""|predicted / measured − 1| of every point that was asked, by workload."""


def steps_of(*tables: MeasuredSteps) -> tuple[Steps, NDArray[np.object_]]:
    """Tables one after the other as the model's steps, and the family of each point."""
    columns = ("job", "accelerator", "nodes", "gpus", "most", "batch", "step_s")
    steps = Steps(*(np.concatenate([getattr(each, name) for each in tables]) for name in columns))
    return steps, np.concatenate([each.family for each in tables])


def plan(accelerator: str, cell: tuple[str, float, float, float]) -> Plan:
    """Known: alone on `accelerator`; at (accelerator, nodes, gpus, most) its middle batch size."""

    def known(job: Steps) -> NDArray[np.bool_]:
        mask = np.asarray(job.alone & (job.accelerator == accelerator))
        here = np.flatnonzero(_at(job, cell))
        if here.size:
            order = here[np.argsort(job.batch[here], kind="stable")]
            mask[order[order.size // 2]] = True
        return mask

    return known


def _at(steps: Steps, cell: tuple[str, float, float, float]) -> NDArray[np.bool_]:
    name, nodes, gpus, most = cell
    at = (steps.accelerator == name) & (steps.nodes == nodes) & (steps.gpus == gpus) & (steps.most == most)
    return np.asarray(at)


def on_two_nodes(nodes: float, gpus: float, most: float) -> bool:
    """A probe on two nodes that are used alike."""
    return nodes == 2 and gpus == 2 * most


def anywhere(nodes: float, gpus: float, most: float) -> bool:  # noqa: ARG001 (what a probe may be is asked by name)
    """A probe on several GPUs, however placed."""
    return gpus > 1


def plans(others: Steps, allowed: Callable[[float, float, float], bool]) -> list[Plan]:
    """Every pair of an accelerator to profile on and a placement to probe that all other jobs were run at."""
    jobs = list(others.by_job())
    cells = set.intersection(
        *(set(zip(job.accelerator, job.nodes, job.gpus, job.most, strict=True)) for job in jobs)
    )
    alone = sorted({name for name, _, gpus, _ in cells if gpus == 1})
    return [
        plan(str(name), (str(cell[0]), *(float(value) for value in cell[1:])))  # type: ignore[arg-type]
        for name in alone
        for cell in sorted(cells)
        if allowed(*(float(value) for value in cell[1:]))
    ]


def leave_one_out(
    steps: Steps,
    families: NDArray[np.object_],
    allowed: Callable[[float, float, float], bool],
    shapes: Sequence[Shape] = SHAPES,
) -> Errors:
    """Errors of every job, its family left out: plan and shape are chosen on the other families."""
    found: Errors = {}
    for family in sorted(set(families)):
        others, groups = steps.take(families != family), families[families != family]
        candidates = plans(others, allowed)
        best, shape, _ = choose(others, groups, candidates, shapes)
        model = Scaling(others, shape)
        for job in steps.take(families == family).by_job():
            known = candidates[best](job.hidden())
            found[str(job.job[0])] = errors(known, job, model)
    return found
