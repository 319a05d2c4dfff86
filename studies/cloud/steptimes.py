"""Tokens per second of language models by number of nodes: jobs, sizes and GPUs left out.

For: S1's rows of the page. Not for: the model (twin.cloud.steptime). The probes of a job are its runs on the
two smallest numbers of GPUs (of only two numbers, the smaller); its other runs are predicted. The model
learns nothing from left-out runs except from the probes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from studies.cloud.judged import Errors, Judged
from twin.cloud.configurations import Runs
from twin.cloud.steptime import CHANGES, CONSTANT, JOB, StepTimes, jobs, two_narrowest

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
