"""Read measurements of training: step times by GPUs and placement, profiles on accelerators, submitted runs.

For: the public tables with which the twin's job performance is compared, as plain arrays. Not for: the
comparison, nor models. A table is recognised by its columns, never by its name. Sources: Pollux/AdaptDL (OSDI
2021, Apache-2.0): one digit of a placement is the GPUs on one node; Gavel (OSDI 2020, MIT) and Shockwave
(NSDI 2023, MIT): steps per second of all workers together, spread over one GPU per node unless consolidated;
PROFET (CLOUD 2022, MIT); MosaicML's llm-foundry (Apache-2.0); MLPerf Training results (Apache-2.0; parsed
from logs, not verified by MLCommons).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traces.readers import table
from twinbed import TraceError

_PRECISIONS = {"bf16": "bf16", "amp_bf16": "mixed", "amp_fp8": "fp8"}
_SHARDINGS = {"FULL_SHARD": "full", "SHARD_GRAD_OP": "gradients", "NO_SHARD": "none"}
_YES_OR_NO = {"True": True, "False": False}
_DIGITS = "[1-9]{1,1000}"

Real = NDArray[np.float64]
Names = NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class MeasuredSteps:
    """n measured step times. Arrays are names[n] or float64[n].

    job: name of a model with its fixed settings (batch, precision…)
    family: name of the model
    accelerator: kind of GPU
    nodes, gpus: numbers of nodes and GPUs of the job
    most: number of GPUs on the fullest node
    batch: samples per GPU and step
    step_s: time of a step, s
    """

    job: Names
    family: Names
    accelerator: Names
    nodes: Real
    gpus: Real
    most: Real
    batch: Real
    step_s: Real


@dataclass(frozen=True, slots=True)
class LanguageModels:
    """n measured rates of language models in training. Arrays are names[n], float64[n] or bool[n].

    model: name of the model, such as 3b
    gpu: kind of GPU
    precision: bf16, mixed or fp8
    sharding: full, gradients or none
    recompute: whether activations are computed again
    parameters, sequence: number of parameters of the model, and tokens of a sequence
    gpus: number of GPUs of the job
    micro_batch: sequences that a GPU takes at once
    tokens: tokens of a step on all GPUs
    tokens_per_s: measured rate of all GPUs, tokens/s
    line: line of each run in its file, int64[n]
    """

    model: Names
    gpu: Names
    precision: Names
    sharding: Names
    recompute: NDArray[np.bool_]
    parameters: Real
    sequence: Real
    gpus: Real
    micro_batch: Real
    tokens: Real
    tokens_per_s: Real
    line: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Profiled:
    """n jobs on k accelerators.

    job: name of the model, names[n]
    batch: samples per step, float64[n]
    image_px: edge of an image, pixels, float64[n]
    accelerators: k names
    step_s: median time of a step, s, float64[n, k]; NaN if not measured
    operations: names of o kinds of operation
    operation_s: profiled accelerator → time of a step in each kind of operation, s, float64[n, o]; NaN if not
    profiled
    idle_s: profiled accelerator → idle time in a step, s, float64[n]
    """

    job: Names
    batch: Real
    image_px: Real
    accelerators: tuple[str, ...]
    step_s: Real
    operations: tuple[str, ...]
    operation_s: dict[str, Real]
    idle_s: dict[str, Real]


@dataclass(frozen=True, slots=True)
class Submissions:
    """n results of submitted systems, one row for each system and benchmark.

    round, submitter, system, benchmark, accelerator: names[n]
    accelerators, nodes, per_node: numbers of accelerators, of nodes, and of accelerators per node, float64[n]
    batch: global batch, float64[n]; NaN if not logged
    time_s: median time to train of its runs, s, float64[n]
    """

    round: Names
    submitter: Names
    system: Names
    benchmark: Names
    accelerator: Names
    accelerators: Real
    nodes: Real
    per_node: Real
    batch: Real
    time_s: Real


def _names(column: Iterable[object]) -> Names:
    return np.array([str(value) for value in column], dtype=np.object_)


def _numbers(frame: pd.DataFrame, column: str) -> Real:
    return frame[column].to_numpy(np.float64)


def placements(path: Path) -> MeasuredSteps:
    """Return a table with the columns model, placement, local_bsz, step_time_s.

    Raises TraceError, which names file, line and column.
    """
    frame = table.read_known(
        path, ("model", "placement", "local_bsz", "step_time_s"), model="str", placement="str"
    )
    wrong = ~frame["placement"].str.fullmatch(_DIGITS).to_numpy(np.bool_)
    table.refuse(path, frame["placement"], wrong, "a digit above 0 per node")
    per_node = [[int(digit) for digit in text] for text in frame["placement"]]
    return _steps(
        frame,
        [len(gpus) for gpus in per_node],
        [sum(gpus) for gpus in per_node],
        [max(gpus) for gpus in per_node],
    )


def scalability(path: Path) -> MeasuredSteps:
    """Return a table with the columns model, num_nodes, num_replicas, local_bsz, step_time_s.

    GPUs are taken to be spread over the nodes as evenly as possible.
    """
    columns = ("model", "num_nodes", "num_replicas", "local_bsz", "step_time_s")
    frame = table.read_known(path, columns, model="str")
    table.refuse(path, frame["num_nodes"].astype("str"), ~(frame["num_nodes"] > 0).to_numpy(), "above zero")
    nodes, gpus = _numbers(frame, "num_nodes"), _numbers(frame, "num_replicas")
    return _steps(frame, nodes, gpus, np.ceil(gpus / nodes))


def _steps(
    frame: pd.DataFrame, nodes: Iterable[float], gpus: Iterable[float], most: Iterable[float]
) -> MeasuredSteps:
    job = _names(frame["model"])
    return MeasuredSteps(
        job,
        job,
        np.full(job.size, "GPU", dtype=np.object_),
        np.array(list(nodes), dtype=np.float64),
        np.array(list(gpus), dtype=np.float64),
        np.array(list(most), dtype=np.float64),
        _numbers(frame, "local_bsz"),
        _numbers(frame, "step_time_s"),
    )


def throughputs(path: Path) -> dict[str, MeasuredSteps]:
    """Return source → step times, from a table of throughputs.

    A job is a model with its batch size. Rows without a batch size, rows that did not run (throughput 0) and
    the spread copy of a single GPU are left out.
    """
    text = {"source": "str", "gpu": "str", "placement": "str", "model": "str"}
    columns = (*text, "batch_size", "num_gpus", "throughput_steps_per_s")
    frame = table.read_known(path, columns, **text)
    spread = frame["placement"] != "consolidated"
    ran = frame["batch_size"].notna() & (frame["throughput_steps_per_s"] > 0)
    frame = frame[ran & ~(spread & (frame["num_gpus"] == 1))]
    tables: dict[str, MeasuredSteps] = {}
    for source, rows in frame.groupby("source"):
        gpus, batch = _numbers(rows, "num_gpus"), _numbers(rows, "batch_size")
        nodes = np.where(rows["placement"] == "consolidated", 1.0, gpus)
        family = _names(rows["model"])
        job = np.array(
            [f"{name} {size:g}" for name, size in zip(family, batch, strict=True)], dtype=np.object_
        )
        step_s = gpus / _numbers(rows, "throughput_steps_per_s")
        tables[str(source)] = MeasuredSteps(
            job, family, _names(rows["gpu"]), nodes, gpus, gpus / nodes, batch, step_s
        )
    return tables


def language_models(path: Path) -> LanguageModels:
    """Return a table of language models by number of GPUs.

    Raises TraceError, which names file, line and column. Unknown words are refused, too.
    """
    text = {"model": "str", "gpu": "str", "precision": "str", "sharding_strategy": "str"}
    numbers = {
        "numparams": "parameters",
        "seqlen_tokens": "sequence",
        "num_gpus": "gpus",
        "microbatchsize": "micro_batch",
        "globalbatchsize_tokens": "tokens",
        "throughput_tok_per_s": "tokens_per_s",
    }
    again = "activation_checkpointing"
    frame = table.read_known(
        path, (*text, *numbers, again), tuple(numbers), **text, activation_checkpointing="str"
    )
    for name in numbers:
        table.refuse(path, frame[name].astype("str"), ~(frame[name] > 0).to_numpy(), "above zero")
    for name, words in (("precision", _PRECISIONS), ("sharding_strategy", _SHARDINGS), (again, _YES_OR_NO)):
        table.refuse(
            path, frame[name], ~frame[name].isin(list(words)).to_numpy(), f"one of {', '.join(words)}"
        )
    return LanguageModels(
        model=_names(frame["model"]),
        gpu=_names(frame["gpu"]),
        precision=_names(frame["precision"].map(_PRECISIONS)),
        sharding=_names(frame["sharding_strategy"].map(_SHARDINGS)),
        recompute=frame[again].map(_YES_OR_NO).to_numpy(np.bool_),
        line=frame.index.to_numpy(np.int64),
        **{own: _numbers(frame, name) for name, own in numbers.items()},
    )


def profiled(latencies: Path, profiles: Path) -> Profiled:
    """Return jobs with their step times (latencies) and their profiles on some accelerators (profiles).

    Raises TraceError, which names file, line and column.
    """
    key = ["model", "batchsize", "image_px"]
    columns = (*key, "instance_type", "batch_latency_s")
    frame = table.read_known(latencies, columns, model="str", instance_type="str")
    measured = frame.groupby([*key, "instance_type"])["batch_latency_s"].median().unstack()
    kinds = [name for name in table.header(profiles) if name.startswith("Device_") and name != "Device_IDLE"]
    if not kinds:
        raise TraceError(f"{profiles}: no column Device_*, expected µs of each kind of operation")
    columns = (*key, "anchor_instance", "Device_IDLE", *kinds)
    seen = table.read_known(profiles, columns, model="str", anchor_instance="str")
    anchors = {str(name): rows.set_index(key) for name, rows in seen.groupby("anchor_instance")}
    anchors = {name: rows.reindex(measured.index) for name, rows in anchors.items()}
    return Profiled(
        _names(measured.index.get_level_values("model")),
        measured.index.get_level_values("batchsize").to_numpy(np.float64),
        measured.index.get_level_values("image_px").to_numpy(np.float64),
        tuple(str(name) for name in measured.columns),
        measured.to_numpy(np.float64),
        tuple(kinds),
        {name: rows[kinds].to_numpy(np.float64) / 1e6 for name, rows in anchors.items()},
        {name: _numbers(rows, "Device_IDLE") / 1e6 for name, rows in anchors.items()},
    )


def submissions(path: Path) -> Submissions:
    """Return the successful results of the closed division.

    A result that was submitted again (with the same time) counts once, in its first round. Raises TraceError,
    which names file, line and column.
    """
    key = ["round", "submitter", "system", "benchmark", "accelerator", "num_accelerators"]
    text = dict.fromkeys([*key[:-1], "division", "status"], "str")
    numbers = ("num_accelerators", "nodes", "accelerators_per_node", "global_batch_size", "time_to_train_s")
    frame = table.read_known(path, (*text, *numbers), **text)
    frame = frame[
        (frame["division"] == "closed") & (frame["status"] == "success") & (frame["accelerator"] != "N/A")
    ]
    rows = frame.groupby(key, as_index=False).agg(
        {
            "time_to_train_s": "median",
            "global_batch_size": "median",
            "nodes": "first",
            "accelerators_per_node": "first",
        }
    )
    rows = rows.sort_values("round", kind="stable")
    rows = rows.drop_duplicates(["benchmark", "accelerator", "num_accelerators", "time_to_train_s"])
    return Submissions(
        round=_names(rows["round"]),
        submitter=_names(rows["submitter"]),
        system=_names(rows["system"]),
        benchmark=_names(rows["benchmark"]),
        accelerator=_names(rows["accelerator"]),
        accelerators=_numbers(rows, "num_accelerators"),
        nodes=_numbers(rows, "nodes"),
        per_node=_numbers(rows, "accelerators_per_node"),
        batch=_numbers(rows, "global_batch_size"),
        time_s=_numbers(rows, "time_to_train_s"),
    )
