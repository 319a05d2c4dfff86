"""The page's part on iterations that others measured: each case, or the errors of each model's cases.

For: docs/results/fabric.md, where the public data lie. Not for: predicting (iteration_data.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from studies.fabric.iteration_data import Prediction, megatron, minibatches, pollux

_SETS = {"bigscience_ddl": megatron, "alibaba_minibatch_time": minibatches, "pollux_t4": pollux}
_MANY = 10
"""Cases of a data set beyond which only each model's errors are shown."""


def section(data: Path | None) -> Iterator[str]:
    """Markdown paragraphs; data: folder of the public data sets, None where they are not at hand."""
    yield "## Beside iterations that others measured"
    there = {} if data is None else {name: data / name for name in _SETS if (data / name).is_dir()}
    if not there:
        yield "Not made: `TWINBED_DATA=FOLDER make results-fabric` compares with the public data sets there."
        return
    yield (
        "What is predicted was left out of every fit, and no fit is used anywhere else: of BigScience the "
        "GPUs' pace is from the other node counts, of Pollux the network is from fewer than 16 nodes, of "
        "Alibaba the workers' spread is from every other iteration. Seconds; of Alibaba the slowest worker "
        "over the mean one."
    )
    for name, folder in there.items():
        found = _SETS[name](folder)
        yield f"**{name}**"
        yield "\n".join(_each(found) if len(found) <= _MANY else _by_model(found))


def _each(found: list[Prediction]) -> Iterator[str]:
    yield "| case | measured | twin | error |"
    yield "|---|---:|---:|---:|"
    for each in found:
        yield f"| {each.case} | {each.measured:.3f} | {each.predicted:.3f} | {100 * each.error:+.1f} % |"


def _by_model(found: list[Prediction]) -> Iterator[str]:
    yield "| model | cases | median error, absolute | 90th percentile |"
    yield "|---|---:|---:|---:|"
    for model in dict.fromkeys(_model(each) for each in found):
        errors = [100 * abs(each.error) for each in found if _model(each) == model]
        median, p90 = np.percentile(errors, [50, 90])
        yield f"| {model} | {len(errors)} | {median:.1f} % | {p90:.1f} % |"


def _model(prediction: Prediction) -> str:
    return prediction.case.partition(",")[0]
