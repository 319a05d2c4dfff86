"""A question about the step time of a language model, as a file: its configuration and its measurements.

For: `twinbed predict step FILE.yaml`. Not for: answering (twin.cloud.steptime), nor usual values
(twin.cloud.configurations).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from lab.ask import guard
from lab.ask.problems import validated
from lab.ask.section import Section
from traces.readers import training
from twin.cloud.configurations import PER_NODE, Runs, runs
from twin.cloud.gpus import GPUS, Gpu
from twinbed import ScenarioError
from twinbed.text import counted


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
    flops, flops_8: peak of its 16-bit and of its 8-bit tensor cores, FLOP/s.
    memory_bytes, memory_bytes_s: its memory, bytes, and the bandwidth of that, bytes/s.
    link_bytes_s: bandwidth to the others of its node, one direction, bytes/s. These five are those of the
        named GPU by default. For a GPU that is not known, all but flops_8 are needed, and network_bytes_s.
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
    flops: float | None = Field(default=None, gt=0)
    flops_8: float | None = Field(default=None, gt=0)
    memory_bytes: float | None = Field(default=None, gt=0)
    memory_bytes_s: float | None = Field(default=None, gt=0)
    link_bytes_s: float | None = Field(default=None, gt=0)
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
    try:
        for number, probe in enumerate(file.probes):
            _check_probe(file, probe, number)
        return (
            _runs(file, question, [f"with {counted(count, 'GPU')}" for count in file.gpus]),
            _runs(file, file.probes, [f"probes.{number}" for number in range(len(file.probes))]),
        )
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def measured(path: Path) -> Runs:
    """Return the runs of a table of language models. Raises TraceError or ScenarioError naming the line."""
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
            called=[f"line {line}" for line in rows.line.tolist()],
        )
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _gpu(file: StepFile) -> Gpu:
    """Return the question's GPU. Raises ScenarioError for one that neither the table nor the file knows."""
    keys = [field.name for field in fields(Gpu)]
    own = {key: getattr(file, key) for key in keys if getattr(file, key) is not None}
    if file.gpu in GPUS:
        return replace(GPUS[file.gpu], **own)
    missing = [key for key in keys if key not in own and key != "flops_8"]
    if missing:
        raise ScenarioError(
            f"gpu: no GPU {file.gpu!r} is known; there are {', '.join(GPUS)}. For another one, give "
            f"{', '.join(missing)}"
        )
    return Gpu(**{"flops_8": 0.0, **own})


def _check_probe(file: StepFile, probe: Probe, number: int) -> None:
    """Raise ScenarioError for a micro-batch of several sequences that is larger than the probe's step."""
    micro_batch = probe.micro_batch or file.micro_batch or 1
    tokens = probe.tokens_per_gpu or file.tokens_per_gpu
    if micro_batch > 1 and micro_batch * file.sequence > tokens * (1 + 1e-9):
        raise ScenarioError(
            f"probes.{number}: a micro-batch of {micro_batch:g} sequences of {file.sequence:g} tokens is "
            f"more than the {tokens:g} tokens_per_gpu of a step; correct micro_batch, or give the probe its "
            "tokens_per_gpu"
        )


def _runs(file: StepFile, given: Sequence[Configured], called: Sequence[str]) -> Runs:
    def or_nan(value: float | None) -> float:
        return float("nan") if value is None else value

    return runs(
        model=[file.model] * len(given),
        parameters=file.parameters,
        sequence=file.sequence,
        gpu_name=[file.gpu] * len(given),
        kinds=[_gpu(file)] * len(given),
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
        called=called,
    )
