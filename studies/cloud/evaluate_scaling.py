"""How well step times over GPUs and nodes are told of a job that was never seen, on public measurements.

For: the error of twin/cloud/scaling on measured step times, each job (with its variants) left out in turn.
Not for: the model itself, nor for reading tables. What is measured of a job before it is asked: all its batch
sizes on one GPU of one accelerator, and ONE point elsewhere (the probe: the middle batch size at one
placement); asked is every other point. What is left open there (which accelerator, which of the placements
that a function here allows), and the model's shape, are chosen on the other jobs only. The model is handed
points without their times, and the known ones with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from traces.readers.training import MeasuredSteps
from twin.cloud.scaling import SHAPES, Plan, Scaling, Shape, Steps, choose, errors

Cell = tuple[str, float, float, float]
"""Accelerator, nodes, GPUs, GPUs on the fullest node."""
Errors = dict[str, NDArray[np.float64]]
"""|predicted / measured − 1| of every point that was asked, by workload."""


def steps_of(*tables: MeasuredSteps) -> tuple[Steps, NDArray[np.object_]]:
    """Tables one after the other as the model's steps, and the family of each point."""
    columns = ("job", "accelerator", "nodes", "gpus", "most", "batch", "step_s")
    steps = Steps(*(np.concatenate([getattr(each, name) for each in tables]) for name in columns))
    return steps, np.concatenate([each.family for each in tables])


def plan(accelerator: str, cell: Cell) -> Plan:
    """Known: alone on `accelerator`; at (accelerator, nodes, gpus, most) its middle batch size."""

    def known(job: Steps) -> NDArray[np.bool_]:
        mask = np.asarray(job.alone & (job.accelerator == accelerator))
        here = np.flatnonzero(_at(job, cell))
        if here.size:
            order = here[np.argsort(job.batch[here], kind="stable")]
            mask[order[order.size // 2]] = True
        return mask

    return known


def _at(steps: Steps, cell: Cell) -> NDArray[np.bool_]:
    name, nodes, gpus, most = cell
    at = (steps.accelerator == name) & (steps.nodes == nodes) & (steps.gpus == gpus) & (steps.most == most)
    return np.asarray(at)


def two_nodes(others: Steps) -> list[Plan]:
    """Plans with a probe that fills two nodes: what a step waits for the network is largest there."""
    two = (others.nodes == 2) & (others.gpus == 2 * others.most)
    return _plans(others, two, others.most == others.most[two].max(initial=0))


def widest(others: Steps) -> list[Plan]:
    """Plans with a probe on as many GPUs on as many nodes as other jobs were run on, for the same reason."""
    most = others.gpus == others.gpus.max(initial=0)
    return _plans(others, most, others.nodes == others.nodes[most].max(initial=0))


def _plans(others: Steps, *allowed: NDArray[np.bool_]) -> list[Plan]:
    """Every pair of an accelerator to profile on and an allowed placement that all other jobs were run at."""

    def cells(rows: NDArray[np.bool_]) -> list[Cell]:
        jobs = [
            set(zip(job.accelerator, job.nodes, job.gpus, job.most, strict=True))
            for job in others.take(rows).by_job()
        ]
        common = set.intersection(*jobs) if len(jobs) == len(set(others.job)) else set()
        return sorted((str(name), float(a), float(b), float(c)) for name, a, b, c in common)

    probes = cells(np.logical_and.reduce(allowed))
    return [plan(name, probe) for name, *_ in cells(np.asarray(others.alone)) for probe in probes]


def one_node_and_two(others: Steps) -> list[Plan]:  # noqa: ARG001 (the same whoever the others are)
    """Known: all on one node (which counts as one accelerator), and one point on two nodes."""

    def known(job: Steps) -> NDArray[np.bool_]:
        mask = np.asarray(job.alone).copy()
        mask[np.flatnonzero((job.nodes == 2) & (job.gpus == 2))[:1]] = True
        return mask

    return [known]


def leave_one_out(
    steps: Steps,
    families: NDArray[np.object_],
    candidates: Callable[[Steps], list[Plan]],
    shapes: Sequence[Shape] = SHAPES,
) -> Errors:
    """Errors of every job, its family left out: plan and shape are chosen on the other families.

    Jobs that never ran on one accelerator, and those of which nothing is left to ask, are not judged.
    """
    found: Errors = {}
    judged = _judged(steps, candidates)
    for family in sorted(set(families)):
        rest = judged & (families != family)
        others, groups = steps.take(rest), families[rest]
        there = candidates(others)
        best, shape, _ = choose(others, groups, there, shapes)
        model = Scaling(steps.take(families != family), shape)
        for job in steps.take(judged & (families == family)).by_job():
            known = there[best](job.hidden())
            found[str(job.job[0])] = errors(known, job, model)
    return found


def _judged(steps: Steps, candidates: Callable[[Steps], list[Plan]]) -> NDArray[np.bool_]:
    fit: set[str] = set()
    for job in steps.by_job():
        known = [each(job.hidden()) for each in candidates(job)]
        if known and job.alone.any() and not all(mask.all() for mask in known):
            fit.add(job.job[0])
    return np.array([name in fit for name in steps.job], dtype=np.bool_)
