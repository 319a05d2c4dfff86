"""A question about the step time of a language model, as a file: its configuration and its measurements.

For: `twinbed predict step FILE.yaml`. Not for: answering (twin.cloud.steptime), nor usual values
(twin.cloud.configurations).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from lab.ask import guard
from lab.ask.problems import validated
from lab.ask.section import Section
from traces.readers import training
from twin.cloud.configurations import PER_NODE, Runs, runs
from twinbed import ScenarioError


class Configured(Section):
    """A configuration of the job. Keys that are not given are as in the question.

    gpus: GPUs of the whole job.
    tokens_per_gpu: tokens of a step on one GPU.
    micro_batch: sequences that a GPU takes at once.
    recompute: whether activations are computed again in the backward pass.
    sharding: what is sharded: full, gradients or none.
    step_s: time of a step, s; not given if it is to be predicted.
    """

    gpus: int = Field(ge=1)
    tokens_per_gpu: float | None = Field(default=None, gt=0)
    micro_batch: float | None = Field(default=None, gt=0)
    recompute: bool | None = None
    sharding: str | None = None
    step_s: float | None = Field(default=None, gt=0)


class Probe(Configured):
    """A measured step of the job.

    step_s: time of a step, s.
    """

    step_s: float = Field(gt=0)


class StepFile(Section):
    """The keys of a question.

    model: name of the model; other runs of the same name improve the prediction.
    parameters: number of parameters.
    sequence: tokens of a sequence.
    gpu: name of the GPU, such as h100_80gb.
    gpus: numbers of GPUs to predict.
    tokens_per_gpu: tokens of a step on one GPU.
    micro_batch: sequences that a GPU takes at once; by default the largest divisor of the batch that fits
        the memory.
    recompute: whether activations are computed again in the backward pass.
    sharding: what is sharded: full, gradients or none.
    precision: bf16, mixed or fp8.
    layers, width: number and width of the model's layers; by default those of usual models of this size.
    per_node: GPUs of a node.
    network_bytes_s: bandwidth of a node to the others, bytes/s; by default that of usual hosts of this GPU.
    probes: measured steps of this job.
    """

    model: str = "mine"
    parameters: float = Field(gt=0)
    sequence: float = Field(gt=0)
    gpu: str
    gpus: list[Annotated[int, Field(ge=1)]] = Field(min_length=1, max_length=1000)
    tokens_per_gpu: float = Field(gt=0)
    micro_batch: float | None = Field(default=None, gt=0)
    recompute: bool = False
    sharding: str = "full"
    precision: str = "mixed"
    layers: float | None = Field(default=None, gt=0)
    width: float | None = Field(default=None, gt=0)
    per_node: float = Field(default=PER_NODE, ge=1)
    network_bytes_s: float | None = Field(default=None, gt=0)
    probes: list[Probe] = Field(default_factory=list, max_length=1000)


def load(path: Path) -> tuple[Runs, Runs]:
    """Return the runs to predict and the measured ones. Raises ScenarioError that names file and key or
    probe.
    """
    file = validated(StepFile, guard.read_keys(path, "keys, `parameters` among them"), str(path))
    question = [Configured(gpus=count) for count in file.gpus]
    return _runs(file, question, f"{path}: gpus"), _runs(file, file.probes, f"{path}: probes")


def measured(path: Path) -> Runs:
    """Return the runs of a table of language models. Raises TraceError or ScenarioError naming the row."""
    rows = training.language_models(path)
    try:
        return runs(
            model=list(rows.model),
            parameters=rows.parameters,
            sequence=rows.sequence,
            gpu_name=list(rows.gpu),
            gpus=rows.gpus,
            tokens_per_gpu=rows.tokens / rows.gpus,
            micro_batch=rows.micro_batch,
            recompute=rows.recompute,
            sharding=list(rows.sharding),
            precision=list(rows.precision),
            step_s=rows.tokens / rows.tokens_per_s,
        )
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _runs(file: StepFile, given: Sequence[Configured], where: str) -> Runs:
    def or_nan(value: float | None) -> float:
        return float("nan") if value is None else value

    try:
        return runs(
            model=[file.model] * len(given),
            parameters=file.parameters,
            sequence=file.sequence,
            gpu_name=[file.gpu] * len(given),
            gpus=[probe.gpus for probe in given],
            tokens_per_gpu=[probe.tokens_per_gpu or file.tokens_per_gpu for probe in given],
            micro_batch=[or_nan(probe.micro_batch or file.micro_batch) for probe in given],
            recompute=[file.recompute if probe.recompute is None else probe.recompute for probe in given],
            sharding=[probe.sharding or file.sharding for probe in given],
            precision=file.precision,
            layers=or_nan(file.layers),
            width=or_nan(file.width),
            per_node=file.per_node,
            network_bytes_s=or_nan(file.network_bytes_s),
            step_s=[or_nan(probe.step_s) for probe in given],
        )
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
