"""Predicts models in pipelines, BigScience's iterations and Llama 3's loss of speed, by laws of other jobs.

For: rows S2 and S3 of the page. Not for: pipelines themselves (twin.fabric.jobs), nor the laws
(twin.cloud.steptime). Sources: Llama 3 (arXiv 2407.21783) table 4, its first two rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from studies.cloud.judged import Errors, held
from studies.fabric.iterations import megatron
from twin.cloud.configurations import Runs
from twin.cloud.performance import pipelined
from twin.cloud.steptime import StepTimes

_GPU = "v100_32gb"
"""BigScience's GPU (Jean Zay)."""
_STAGES, _SEQUENCES, _INTERLEAVED = 16, (32, 16), 8
"""Llama 3 405B: stages; sequences of a pipeline on 8,192 and 16,384 GPUs; parts of a stage. The source prints
no number of parts; its 126 layers and two for the ends make eight of one layer."""
_TFLOPS = (430.0, 400.0)
"""Llama 3's speed of a GPU on 8,192 and 16,384 GPUs, TFLOP/s."""


def bigscience(folder: Path, others: Runs) -> Iterator[tuple[str, Errors]]:
    """Yield the errors of BigScience's runs.

    The GPUs' pace comes from BigScience's runs on other numbers of nodes, their saturation from `others`.
    """
    model = StepTimes(others)
    for title, chosen in (
        ("other node counts known", slice(0, -1)),
        ("4 times their tokens", slice(-1, None)),
    ):
        cases = megatron(folder, lambda width, tokens: float(model.busy(tokens, width, _GPU)))
        yield title, held({case.case: np.log([case.predicted / case.measured]) for case in cases[chosen]})


def llama() -> Iterator[tuple[str, Errors]]:
    """Yield the error of Llama 3's speed at twice the GPUs and fixed tokens, the first row known."""
    fewer, more = (float(pipelined(_STAGES, sequences, _INTERLEAVED)) for sequences in _SEQUENCES)
    error = np.log([more / fewer / (_TFLOPS[1] / _TFLOPS[0])])
    yield "8,192 GPUs known, eight parts of a stage assumed", held({"16,384 GPUs": error})
