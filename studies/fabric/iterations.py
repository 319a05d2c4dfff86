"""Iteration times that others measured, beside predictions of the twin, which did not see them.

For: BigScience's Megatron runs, Pollux's steps on 4 × T4 machines and Alibaba's mini-batches on
docs/results/fabric.md, if their data are given. Not for: collectives, nor for tuning. Each fit gives one or
two physical values from cases that are not predicted, and is used nowhere else.

Sizes of BigScience's models are from its scripts (github.com/bigscience-workshop/bigscience,
experiments/gpt2-meg): 4 micro-batches of one sequence of 1024 tokens, tensor 4, a stage per node, activations
computed again. The runs named `perf` have 256 micro-batches of 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from studies.harness import NO_DATA, table
from twin.fabric.jobs import Cluster, Job, iteration_s, straggler, transformer_s
from twin.fabric.model import Floats

_TOKENS, _VOCABULARY, _TENSOR = 1024, 50_257, 4
_MEGATRON = {8: (7168, 48), 16: (9216, 64), 32: (12288, 64), 64: (16384, 64)}
"""Nodes → hidden size, layers (30, 65, 116 and 206 billion parameters)."""

_PERF = (16, 8192, 64, 256, 4)
"""Nodes, hidden size, layers, micro-batches, sequences in each (52 billion parameters)."""

_ALPHA_S = 10e-6
"""Assumed latency: the data hold no small messages. It is at most about 1 % of any of these iterations."""

_FITTED = 60
"""Number of steps that a fit of two values uses."""

_START = np.log([5e9, 1e-4])
"""Start of a fit: logarithms of 5 Gbit/s and 100 µs."""

_LEFT_OUT = 16
"""Least number of nodes of Pollux's steps that are predicted."""
_MANY = 10
"""Number of cases of a data set above which only each model's errors are shown."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A measured iteration and the twin's prediction of it.

    case: the job in words.
    measured, predicted: times, s; for Alibaba the slowest worker over the mean one.
    """

    case: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """(predicted − measured) / measured."""
        return self.predicted / self.measured - 1


def section(data: Path | None) -> Iterator[str]:
    """Yield the page's paragraphs. data: folder of the public data sets, None where there is none."""
    yield "## Beside iterations that others measured"
    sets = {"bigscience_ddl": megatron, "alibaba_minibatch_time": minibatches, "pollux_t4": pollux}
    known = [name for name in sets if data is not None and (data / name).is_dir()]
    if data is None or not known:
        yield f"{NO_DATA.capitalize()}: `python -m studies fabric --data FOLDER` compares with them."
        return
    for name in known:
        predictions = sets[name](data / name)
        yield f"**{name}**"
        yield (_by_case if len(predictions) <= _MANY else _by_model)(predictions)
    yield (
        "Every fit leaves out what it predicts, and is used nowhere else. For BigScience the GPUs' pace "
        "comes from the other node counts, for Pollux the network from fewer than 16 nodes, for Alibaba the "
        "workers' spread from every other iteration. Values are seconds; for Alibaba they are the slowest "
        "worker over the mean one."
    )


def _by_case(predictions: list[Prediction]) -> str:
    return table(
        ("case", "measured", "twin", "error"),
        (
            (item.case, f"{item.measured:.3f}", f"{item.predicted:.3f}", f"{100 * item.error:+.1f} %")
            for item in predictions
        ),
    )


def _by_model(predictions: list[Prediction]) -> str:
    errors: dict[str, list[float]] = {}
    for item in predictions:
        errors.setdefault(item.case.partition(",")[0], []).append(100 * abs(item.error))
    rows = []
    for model, values in errors.items():
        median, p90 = np.percentile(values, [50, 90])
        rows.append((model, len(values), f"{median:.1f} %", f"{p90:.1f} %"))
    return table(("model", "cases", "median error, absolute", "90th percentile"), rows)


Busy = Callable[[float, float], float]
"""Share of its pace that a GPU reaches, from its part of a layer's width and the tokens of a micro-batch."""


def megatron(folder: Path, busy: Busy = lambda width, tokens: 1.0) -> list[Prediction]:  # noqa: ARG005
    """Return bigscience_ddl's cases. Bandwidths are the data's own all-reduces.

    The GPUs' sustained operations per second come, for each node count, from the other three counts, and for
    the 52-billion-parameter run from all four.
    """
    times = pd.read_csv(folder / "megatron_iteration_times.csv")
    cluster = _bigscience_cluster(pd.read_csv(folder / "all_reduce_bench.csv"))
    measured = {nodes: _steady_s(times, f"gpt2_base_n{nodes}_") for nodes in _MEGATRON}
    # An iteration is linear in the time of an operation, so two evaluations give each case's line.
    jobs = {nodes: _gpt(busy, nodes, *shape, 4, 1) for nodes, shape in _MEGATRON.items()}
    fits = {nodes: _operation_s(jobs[nodes], cluster, measured[nodes]) for nodes in jobs}
    predictions = []
    for nodes, job in jobs.items():
        pace_s = float(np.mean([fits[other] for other in fits if other != nodes]))
        case = f"{nodes} nodes × 4 V100, a stage per node"
        predictions.append(Prediction(case, measured[nodes], iteration_s(job(pace_s), cluster)))
    perf_s = iteration_s(_gpt(busy, *_PERF)(float(np.mean(list(fits.values())))), cluster)
    perf = Prediction("16 nodes × 4 V100, 256 micro-batches", _steady_s(times, "ds-off"), perf_s)
    return [*predictions, perf]


def pollux(folder: Path) -> list[Prediction]:
    """Return pollux_t4's steps on at least _LEFT_OUT nodes.

    For each model the network's rate and latency are fitted to steps on fewer nodes; compute is what one GPU
    alone took.
    """
    scale = pd.read_csv(folder / "pollux_scalability.csv")
    alone = pd.read_csv(folder / "pollux_placements.csv", dtype={"placement": "str"})
    alone = alone[alone["placement"] == "1"].sort_values("local_bsz")
    predictions = []
    for model, rows in scale.groupby("model"):
        single = alone[alone["model"] == model]
        batches = single["local_bsz"]
        rows = rows[rows["local_bsz"].between(batches.min(), batches.max())]
        compute_s = np.interp(rows["local_bsz"], batches, single["step_time_s"] - single["sync_time_s"])
        rows = rows.assign(compute_s=compute_s)
        fewer, more = rows[rows["num_nodes"] < _LEFT_OUT], rows[rows["num_nodes"] >= _LEFT_OUT]
        names = more["num_nodes"], more["num_replicas"], more["local_bsz"]
        predicted = _steps_s(more, _fitted(fewer))
        for nodes, gpus, batch, step_s, ours_s in zip(*names, more["step_time_s"], predicted, strict=True):
            case = f"{model}, {nodes} nodes, {gpus} T4, batch {batch}"
            predictions.append(Prediction(case, float(step_s), float(ours_s)))
    return predictions


def minibatches(folder: Path) -> list[Prediction]:
    """Return alibaba_minibatch_time's jobs: the slowest worker over the mean one.

    The mean over every second iteration of each job is predicted from the spread of the iterations between.
    """
    rows = pd.read_csv(folder / "job_minibatch_time_norm.csv.gz")
    predictions = []
    for job, of_job in rows.groupby("job"):
        pivot = of_job.pivot_table(index="time", columns="worker", values="batch_time_norm")
        times = pivot.dropna().to_numpy()
        times = times[times.mean(axis=1) > 0]
        paces = times / times.mean(axis=1, keepdims=True)
        cv = float(np.sqrt(np.mean(paces[::2].var(axis=1, ddof=1))))
        workers = times.shape[1]
        measured = float(paces[1::2].max(axis=1).mean())
        predictions.append(Prediction(f"job {job}, {workers} workers", measured, straggler(cv, workers)))
    return predictions


def _bigscience_cluster(reduces: pd.DataFrame) -> Cluster:
    """Return the cluster. The busiest link carries bus bandwidth: the network's, or NVLink's in one node."""
    bandwidth = reduces.groupby("log")["busbw_gbps"].median() * 1e9
    return Cluster(
        gpus_per_host=4,
        rate_bps=float(bandwidth["bandwidth/n16_32gb_all_reduce_bench.txt"]),
        alpha_s=_ALPHA_S,
        inside_rate_bps=float(bandwidth["bandwidth/n1_32gb_all_reduce_bench.txt"]),
        inside_alpha_s=_ALPHA_S,
    )


def _steady_s(times: pd.DataFrame, name: str) -> float:
    """Return the median iteration of a log without its first entry, the warm-up."""
    rows = times[times["log"].str.contains(name, regex=False)]
    return float(rows["elapsed_ms_per_iteration"].iloc[1:].median()) / 1000


def _gpt(
    busy: Busy, nodes: int, hidden: int, layers: int, micro_batches: int, sequences: int
) -> Callable[[float], Job]:
    """Return a function from the seconds that a GPU needs for one operation to the job."""
    parameters = layers * (12 * hidden**2 + 13 * hidden) + (_VOCABULARY + _TOKENS) * hidden
    tokens = sequences * _TOKENS
    share = busy(hidden / _TENSOR, tokens)
    return lambda operation_s: Job(
        parameters=parameters,
        layers=layers,
        micro_batches=micro_batches,
        micro_batch_s=transformer_s(parameters, tokens, share / operation_s, recompute=True),
        activation_bytes=2.0 * tokens * hidden,
        pipeline=nodes,
        tensor=_TENSOR,
    )


def _operation_s(job: Callable[[float], Job], cluster: Cluster, measured_s: float) -> float:
    low, high = 1e-14, 1e-13
    low_s, high_s = (iteration_s(job(operation_s), cluster) for operation_s in (low, high))
    return low + (measured_s - low_s) * (high - low) / (high_s - low_s)


def _fitted(rows: pd.DataFrame) -> Floats:
    """Return log(rate, latency) with the least squared log error of at most _FITTED steps, evenly taken."""
    some = rows.iloc[:: -(-len(rows) // _FITTED)]
    logs = np.log(some["step_time_s"].to_numpy())
    return np.asarray(least_squares(lambda values: np.log(_steps_s(some, values)) - logs, _START).x)


def _steps_s(rows: pd.DataFrame, logs: Floats) -> Floats:
    """Return the steps of data parallel jobs, float64[rows], s.

    The data do not give the models' sizes. All have 10^8 parameters here, so a fitted rate is in units of
    that size.
    """
    rate_bps, alpha_s = np.exp(logs)
    columns = (rows[name].tolist() for name in ("num_replicas", "num_nodes", "compute_s"))
    return np.array(
        [
            iteration_s(
                Job(1e8, 1, 1, work_s, 0.0, data=gpus),
                Cluster(-(-gpus // nodes), rate_bps, alpha_s, 1e12, 0.0),
            )
            for gpus, nodes, work_s in zip(*columns, strict=True)
        ]
    )
