"""Tokens per second of language models by number of nodes: jobs, sizes and GPUs left out.

For: S1's rows of the page. Not for: the model (twin.cloud.steptime). The probes of a job are its runs on the
two smallest numbers of GPUs (of only two numbers, the smaller); its other runs are predicted. The model
learns nothing from left-out runs except from the probes. Our own measurements are of one GPU (gpu_steps.py);
their probes are the runs with the two smallest micro-batches, of one micro-batch each, without recomputation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from studies.cloud.judged import Errors, Judged
from twin.cloud.configurations import Runs, runs
from twin.cloud.steptime import CHANGES, CONSTANT, JOB, StepTimes, jobs, two_narrowest

OWN = Path(__file__).with_name("gpu_steps.csv")
"""Our own measurements, made by gpu_steps.py on an H100 and an H200."""
_DRIVERS = {"NVIDIA H100 80GB HBM3": "h100_80gb", "NVIDIA H200": "h200_141gb"}
"""The driver's name of a GPU → its name in the table of GPUs."""
_LATER = ("gpt2-large", "gpt2-xl", "wide", "wider")
"""Shapes that were measured after the law was settled."""
_LEFT_OUT = {"a job": JOB, "a size": ("model",), "a GPU": ("gpu",)}


def probed(known: Runs) -> Iterator[tuple[str, Errors]]:
    """Yield the predictions with probes, for each kind of left-out runs, in all and by regime."""
    for title, quantities in _LEFT_OUT.items():
        points = _left_out(known, quantities, probed=True)
        yield f"{title} left out", _errors(points)
        for regime in (CONSTANT, CHANGES):
            part = [point for point in points if point[1] == regime]
            yield f"{title} left out, configuration {regime}", _errors(part)


def unprobed(known: Runs) -> Iterator[tuple[str, Errors]]:
    """Yield the predictions of the same runs without probes, for each kind of left-out runs."""
    for title, quantities in _LEFT_OUT.items():
        yield f"{title} left out", _errors(_left_out(known, quantities, probed=False))


def on_own_gpus(known: Runs) -> Iterator[tuple[str, Errors]]:
    """Yield the predictions of our own measurements by GPU, without and with probes."""
    model, measured = StepTimes(known), own()
    later = np.isin(measured.model, _LATER)
    for kind in sorted(set(measured.gpu)):
        for part, shapes in (("MPT's shapes", ~later), ("other shapes", later)):
            mine = list(jobs(measured.take(shapes & (measured.gpu == kind))))
            without = [point for job in mine for point in _asked(model, job.take([]), job)]
            yield f"{kind}, {part}, no probe", _errors(without)
            smallest = [np.isin(job.micro_batch, np.unique(job.micro_batch)[:2]) for job in mine]
            probed = [
                narrow & ~job.recompute & (job.accumulation == 1)
                for narrow, job in zip(smallest, mine, strict=True)
            ]
            points = [
                point
                for probes, job in zip(probed, mine, strict=True)
                if not probes.all() and probes.any()
                for point in _asked(model, job.take(probes), job.take(~probes))
            ]
            yield f"{kind}, {part}, two probes", _errors(points)


def own(path: Path = OWN) -> Runs:
    """Return our own measurements that fitted the memory."""
    rows = pd.read_csv(path).dropna(subset="step_s")
    return runs(
        model=list(rows.model),
        parameters=rows.parameters,
        sequence=rows.sequence,
        gpu_name=[_DRIVERS[name] for name in rows.gpu],
        gpus=1.0,
        tokens_per_gpu=rows.sequence * rows.micro_batch * rows.accumulation,
        micro_batch=rows.micro_batch,
        recompute=rows.recompute,
        sharding="none",
        layers=rows.layers,
        width=rows.width,
        per_node=1.0,
        step_s=rows.step_s,
    )


_Point = tuple[str, str, float, bool]
"""Job, regime, error, and whether the interval holds it."""


def _left_out(known: Runs, quantities: tuple[str, ...], *, probed: bool) -> list[_Point]:
    words = known.groups(*quantities)
    points: list[_Point] = []
    for word in sorted(set(words)) if len(set(words)) > 1 else ():
        out = words == word
        model = StepTimes(known.take(~out))
        for job in jobs(known.take(out)):
            probes = two_narrowest(job)
            if probes.any():
                points += _asked(model, job.take(probes if probed else []), job.take(~probes))
    return points


def _asked(model: StepTimes, probes: Runs, asked: Runs) -> list[_Point]:
    answer = model.answer(probes, asked.hidden())
    _, like = model.step_s(probes, asked.hidden())
    error = answer.step_s / asked.step_s - 1
    inside = (answer.low_s <= asked.step_s) & (asked.step_s <= answer.high_s)
    regime = np.where(like, CONSTANT, CHANGES)
    names = asked.groups(*JOB)
    return [
        (str(names[row]), str(regime[row]), float(error[row]), bool(inside[row])) for row in range(len(asked))
    ]


def _errors(points: list[_Point]) -> Errors:
    by_job: dict[str, list[_Point]] = {}
    for point in points:
        by_job.setdefault(point[0], []).append(point)
    return {
        job: Judged(np.array([own[2] for own in mine]), np.array([own[3] for own in mine], dtype=np.bool_))
        for job, mine in by_job.items()
    }
