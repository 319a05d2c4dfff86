"""Configurations of a language model's training: the inputs of a step's time besides the GPU.

For: the questions and measurements of steptime.py, with defaults for missing values. Not for: predicting
times. The default of the micro-batch is the largest divisor of the batch that fits the memory;
`Runs.predicted` marks it. Sources: Brown et al. 2020 (GPT-3) table 2.1 for usual numbers of layers and
widths; Rajbhandari et al. 2020 (ZeRO) §3 for bytes per parameter; Korthikanti et al. 2022 §4 for activations,
without the scores that fused attention never stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from control.jobs import Flags, Real, Whole
from twin.cloud.gpus import Gpu, gpu
from twinbed import InvariantError, ScenarioError

Names = NDArray[np.object_]

SHARDINGS = ("full", "gradients", "none")
"""State that workers shard. full: parameters, gradients and optimiser (ZeRO 3). gradients: the last two (ZeRO
2). none: nothing (ZeRO 0)."""
PRECISIONS = ("bf16", "mixed", "fp8")
"""Precisions. bf16: all in 16 bits. mixed: 16 bits with 32-bit master parameters. fp8: matrix products in 8
bits, the rest as mixed."""
PER_NODE = 8
"""Number of GPUs on a usual host."""
VOCABULARY = 50257
"""Number of tokens in GPT-2's vocabulary, which most open models use."""
_SHAPES = np.array(
    [
        *[(12, 768), (24, 1024), (24, 1536), (24, 2048), (32, 2560)],
        *[(32, 4096), (40, 5140), (48, 7168), (64, 9216), (96, 12288)],
    ],
    dtype=np.float64,
)
"""Numbers of layers and widths of usual models: those of GPT-3, and two between 13 and 175 billion parameters
(MPT, OPT)."""
_STATE_BYTES = 16
"""Bytes per parameter: 16-bit parameter and gradient, 32-bit master copy and two moments (ZeRO §3.1)."""
_UPDATE_BYTES = 28
"""Bytes that an update of Adam moves per parameter: it reads the gradient, and reads and writes the parameter
and two moments, 4 bytes each; half of that in 16 bits."""
_ACTIVATION_BYTES, _RECOMPUTED_BYTES, _LOGIT_BYTES = 34, 2, 8
"""Bytes of activations per token, layer and unit of width; the same with recomputation; bytes per token and
word of the output (a 16-bit logit, its gradient and a 32-bit copy)."""
_ROUNDING = 1e-6
"""Relative difference that is rounding where a table has tokens of all GPUs together."""
_USABLE = 0.9
"""Share of the memory that the allocator can fill without stalls."""


@dataclass(frozen=True)
class Runs:
    """n runs, measured or to be predicted, with an array of length n per quantity.

    model: name of the model. parameters, layers: number of parameters and of layers. width: width of a layer.
    sequence: tokens of a sequence. micro_batch: sequences that a GPU takes at once. accumulation:
    micro-batches of a step. recompute: whether activations are computed again in the backward pass. sharding,
    precision: words of SHARDINGS and PRECISIONS. gpu: name of the GPU. gpus, per_node: GPUs of the job, and
    of one node. flops, flops_16: peak of the precision, and of 16 bits, FLOP/s. memory_bytes_s: bandwidth of
    a GPU's memory, bytes/s. link_bytes_s, network_bytes_s: bandwidth inside a node, and of a node to others,
    bytes/s. predicted: whether the micro-batch is a prediction of what fits the memory. step_s: time of a
    step, s; NaN if it is to be predicted.
    """

    model: Names
    parameters: Real
    layers: Real
    width: Real
    sequence: Real
    micro_batch: Real
    accumulation: Real
    recompute: Flags
    sharding: Names
    precision: Names
    gpu: Names
    gpus: Real
    per_node: Real
    flops: Real
    flops_16: Real
    memory_bytes_s: Real
    link_bytes_s: Real
    network_bytes_s: Real
    predicted: Flags
    step_s: Real

    def __post_init__(self) -> None:
        if len({column.shape for column in self._columns()}) > 1:
            raise InvariantError("runs have columns of different lengths")

    def __len__(self) -> int:
        return int(self.model.size)

    def _columns(self) -> list[Any]:
        return [getattr(self, column.name) for column in fields(self)]

    def take(self, rows: Flags | Whole | Sequence[int]) -> Runs:
        """Return the runs at `rows` (a mask or positions)."""
        at = np.asarray(rows, None if len(rows) else np.int64)
        return Runs(*(column[at] for column in self._columns()))

    def hidden(self) -> Runs:
        """Return the same runs without their times, to be predicted."""
        return replace(self, step_s=np.full(len(self), np.nan))

    @property
    def nodes(self) -> Real:
        """Nodes of each run, float64[n]."""
        return np.asarray(np.ceil(self.gpus / self.per_node))

    @property
    def micro_tokens(self) -> Real:
        """Tokens of a micro-batch on a GPU, float64[n]."""
        return self.micro_batch * self.sequence

    @property
    def tokens(self) -> Real:
        """Tokens of a step on all GPUs, float64[n]."""
        return self.micro_tokens * self.accumulation * self.gpus

    def groups(self, *names: str) -> Names:
        """Return a string for each run that joins its values of these quantities, [n]."""
        if names not in self._groups:
            columns = [getattr(self, name) for name in names]
            rows = ["|".join(map(str, row)) for row in zip(*columns, strict=True)]
            self._groups[names] = np.array(rows, dtype=np.object_)
        return self._groups[names]

    @cached_property
    def _groups(self) -> dict[tuple[str, ...], Names]:
        return {}

    def least_s(self) -> Real:
        """Return the time of a step at the GPU's peak, s, float64[n]."""
        dense, scores = self.operations(np.full(len(self), 6.0))
        return self.accumulation * (dense / self.flops + scores / self.flops_16)

    def update_s(self) -> Real:
        """Return the time of the optimiser's reads and writes at full bandwidth, s, float64[n]."""
        owners = np.where(self.sharding == "none", 1.0, self.gpus)
        moved = np.where(self.precision == "bf16", _UPDATE_BYTES / 2, _UPDATE_BYTES)
        return np.asarray(moved * self.parameters / owners / self.memory_bytes_s)

    def operations(self, passes: Real) -> tuple[Real, Real]:
        """Return the FLOP of a micro-batch in matrix products and in attention scores, two float64[n].

        passes: operations per parameter and token: 6, or 8 with recomputing.
        """
        dense = passes * self.parameters * self.micro_tokens
        return dense, passes * 2 * self.layers * self.width * self.sequence * self.micro_tokens


def joined(*parts: Runs) -> Runs:
    """Return the runs of all parts, one part after the other."""
    return Runs(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Runs)))


def runs(
    *,
    parameters: ArrayLike,
    sequence: ArrayLike,
    gpu_name: Sequence[str],
    kinds: Sequence[Gpu] | None = None,
    gpus: ArrayLike,
    tokens_per_gpu: ArrayLike,
    model: Sequence[str] | None = None,
    micro_batch: ArrayLike = np.nan,
    recompute: ArrayLike = False,
    sharding: Sequence[str] | str = "full",
    precision: Sequence[str] | str = "mixed",
    layers: ArrayLike = np.nan,
    width: ArrayLike = np.nan,
    per_node: ArrayLike = PER_NODE,
    network_bytes_s: ArrayLike = np.nan,
    step_s: ArrayLike = np.nan,
    called: Sequence[str] | None = None,
) -> Runs:
    """Return n runs. Missing values and NaN get the usual value.

    gpu_name: names of GPUs, [n]. kinds: their data, [n]; by default those of gpus.GPUS. tokens_per_gpu:
    tokens of a step on one GPU. called: what errors call the runs, [n]; by default row 1 and so on. The other
    arguments are the fields of Runs. All arguments broadcast to length n. Raises ScenarioError, with the run,
    for unknown words, a size that is not above zero, 8 bits on a GPU without them, a model that does not fit
    the memory, a batch to be predicted that is below its micro-batch, and a measured step that is faster than
    the GPU's peak.
    """
    kinds = [gpu(name) for name in gpu_name] if kinds is None else kinds
    count = len(kinds)
    called = [f"row {row + 1}" for row in range(count)] if called is None else called
    real = {
        name: np.broadcast_to(np.asarray(value, np.float64), count).copy()
        for name, value in {
            "parameters": parameters, "sequence": sequence, "gpus": gpus, "tokens_per_gpu": tokens_per_gpu,
            "micro_batch": micro_batch, "layers": layers, "width": width, "per_node": per_node,
            "network_bytes_s": network_bytes_s, "step_s": step_s,
        }.items()
    }  # fmt: skip
    words = {
        "sharding": _words("sharding", sharding, SHARDINGS, called),
        "precision": _words("precision", precision, PRECISIONS, called),
    }
    for name, values in real.items():
        optional = name in ("micro_batch", "layers", "width", "network_bytes_s", "step_s")
        _refuse(~(values > 0) & ~(np.isnan(values) & optional), f"{name} must be above zero", called)
    usual = usual_shape(real["parameters"], real["sequence"])
    shape = [
        np.where(np.isnan(real[name]), usual[at], real[name]) for at, name in enumerate(("layers", "width"))
    ]
    eight = words["precision"] == "fp8"
    flops_8, flops_16 = (np.array([getattr(kind, name) for kind in kinds]) for name in ("flops_8", "flops"))
    _refuse(eight & (flops_8 == 0), "this GPU has no fp8; take precision mixed", called)
    network = np.array([kind.network_bytes_s for kind in kinds])
    again = np.broadcast_to(np.asarray(recompute, np.bool_), count).copy()
    memory = np.array([kind.memory_bytes for kind in kinds])
    state = _state_bytes(real, words["sharding"]) / np.where(words["precision"] == "bf16", 2, 1)
    largest = _largest(state, real, shape, again, words["sharding"], memory)
    asked = np.isnan(real["micro_batch"])
    _refuse(
        asked & (largest < 1), "one sequence does not fit the memory; use recompute, or more GPUs", called
    )
    unseen = np.isnan(real["step_s"])  # A measured run fitted, so its states were smaller.
    _refuse(
        unseen & (state > memory),
        "the model's state does not fit the memory; shard it, or use more GPUs",
        called,
    )
    batch = real["tokens_per_gpu"] / real["sequence"]
    fitting = np.array(list(map(_dividing, batch, largest)))
    taken = np.where(asked, fitting, real["micro_batch"])
    # GPUs that share a sequence have fewer tokens each than a micro-batch, as in measured tables.
    _refuse(
        unseen & (batch < taken * (1 - _ROUNDING)),
        "a micro-batch is larger than tokens_per_gpu / sequence allows; give more tokens_per_gpu",
        called,
    )
    names = [f"{size:.3g}" for size in real["parameters"]] if model is None else list(model)
    made = Runs(
        model=np.array(names, dtype=np.object_),
        parameters=real["parameters"],
        layers=shape[0],
        width=shape[1],
        sequence=real["sequence"],
        micro_batch=taken,
        accumulation=np.maximum(batch / taken, 1.0),
        recompute=again,
        sharding=words["sharding"],
        precision=words["precision"],
        gpu=np.array(list(gpu_name), dtype=np.object_),
        gpus=real["gpus"],
        per_node=real["per_node"],
        flops=np.where(eight, flops_8, flops_16),
        flops_16=flops_16,
        memory_bytes_s=np.array([kind.memory_bytes_s for kind in kinds]),
        link_bytes_s=np.array([kind.link_bytes_s for kind in kinds]),
        network_bytes_s=np.where(np.isnan(real["network_bytes_s"]), network, real["network_bytes_s"]),
        predicted=asked,
        step_s=real["step_s"],
    )
    _refuse(
        made.step_s < made.least_s(),
        "this step is faster than the GPU's peak; check GPU and precision",
        called,
    )
    return made


def usual_shape(parameters: Real, sequence: Real) -> tuple[Real, Real]:
    """Return the usual layers and width of models with this many parameters, two float64[n].

    Sizes between two usual models are interpolated. The embeddings of words and positions are counted.
    """
    layers, width = _SHAPES.T
    sizes = 12 * layers * width**2 + (VOCABULARY + sequence[:, None]) * width
    logs = [
        [
            np.interp(np.log(own), np.log(row), np.log(column))
            for own, row in zip(parameters, sizes, strict=True)
        ]
        for column in (layers, width)
    ]
    return np.exp(np.array(logs[0])), np.exp(np.array(logs[1]))


def _largest(
    state: Real, real: dict[str, Real], shape: list[Real], again: Flags, sharding: Names, memory: Real
) -> Real:
    """Return float64[n]: the largest micro-batch that fits the memory, in whole sequences; 0 if none does.

    state: bytes of parameters, gradients and optimiser on each GPU.
    """
    layers, width = shape
    # Full sharding gathers two layers at a time: the computed layer and the next one.
    held = state + np.where(sharding == "full", 4 * real["parameters"] / layers, 0.0)
    kept = np.where(again, _RECOMPUTED_BYTES * layers + _ACTIVATION_BYTES, _ACTIVATION_BYTES * layers)
    per_token = kept * width + _LOGIT_BYTES * VOCABULARY
    return np.maximum(np.floor((_USABLE * memory - held) / (per_token * real["sequence"])), 0.0)


def _state_bytes(real: dict[str, Real], sharding: Names) -> Real:
    """Return float64[n]: bytes of parameters, gradients and optimiser on each GPU, in mixed precision."""
    sharded = np.where(sharding == "full", _STATE_BYTES, _STATE_BYTES - 2.0)
    sharded = np.where(sharding == "none", 0.0, sharded)
    return np.asarray(real["parameters"] * (sharded / real["gpus"] + _STATE_BYTES - sharded))


def _dividing(batch: float, largest: float) -> float:
    """Return the largest micro-batch up to `largest` that divides a GPU's batch, in sequences. A batch that
    is not a whole number of sequences has none: its last micro-batch is smaller."""
    most = max(int(min(largest, batch)), 1)
    if not batch.is_integer():
        return most
    return next(size for size in range(most, 0, -1) if batch % size == 0)


def _words(key: str, given: Sequence[str] | str, known: tuple[str, ...], called: Sequence[str]) -> Names:
    words = np.array([given] * len(called) if isinstance(given, str) else list(given), dtype=np.object_)
    for run, word in zip(called, words, strict=True):
        if word not in known:
            raise ScenarioError(f"{run}: {key} {word!r} is not one of {', '.join(known)}")
    return words


def _refuse(bad: Flags, problem: str, called: Sequence[str]) -> None:
    if bad.any():
        raise ScenarioError(f"{called[int(np.argmax(bad))]}: {problem}")
