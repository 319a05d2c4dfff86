"""Iteration times that others measured, beside the twin's jobs, which did not see them.

For: BigScience's Megatron runs, Pollux's steps on 4 × T4 machines, Alibaba's mini-batches; where their data
lie. Not for: collectives, nor for tuning: each fit is of one or two physical values, from other cases than
the predicted ones, and none of them is used elsewhere.

Sizes of BigScience's models are from its scripts (github.com/bigscience-workshop/bigscience,
experiments/gpt2-meg): 4 micro-batches of one sequence of 1024 tokens, tensor 4, a stage per node, activations
computed again; the runs named `perf` have 256 micro-batches of 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from twin.fabric.jobs import Cluster, Job, iteration_s, straggler, transformer_s
from twin.fabric.model import Floats

_TOKENS, _VOCABULARY, _TENSOR = 1024, 50_257, 4
_MEGATRON = {8: (7168, 48), 16: (9216, 64), 32: (12288, 64), 64: (16384, 64)}
"""Nodes → hidden size, layers (30, 65, 116 and 206 billion parameters)."""

_PERF = (16, 8192, 64, 256, 4)
"""Nodes, hidden size, layers, micro-batches, sequences in one (52 billion parameters)."""

_ALPHA_S = 10e-6
"""Assumption, for the data hold no small messages; it is at most about 1 % of any of these iterations."""


_FITTED = 60
"""Steps that a fit of two values looks at."""

_START = np.log([5e9, 1e-4])
"""Where a fit begins: 5 Gbit/s, 100 µs."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A measured iteration and the twin's, which did not see it: seconds, or (alibaba_minibatch_time) its
    slowest worker in units of the mean one."""

    data: str
    case: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """(predicted − measured) / measured."""
        return self.predicted / self.measured - 1


def megatron(folder: Path) -> list[Prediction]:
    """bigscience_ddl: each node count with the GPUs' sustained operations per second from the other three,
    and the 52-billion-parameter run from all four. Bandwidths are the data's own all-reduces."""
    times = pd.read_csv(folder / "megatron_iteration_times.csv")
    cluster = _bigscience_cluster(pd.read_csv(folder / "all_reduce_bench.csv"))
    measured = {nodes: _steady_s(times, f"gpt2_base_n{nodes}_") for nodes in _MEGATRON}
    # Seconds are linear in what an operation takes, so two evaluations give each case's line.
    jobs = {nodes: _gpt(nodes, *shape, 4, 1) for nodes, shape in _MEGATRON.items()}
    fits = {nodes: _operation_s(jobs[nodes], cluster, measured[nodes]) for nodes in jobs}
    found = [
        Prediction(
            "bigscience_ddl",
            f"{nodes} nodes × 4 V100, a stage per node",
            measured[nodes],
            iteration_s(jobs[nodes](_mean(fits[other] for other in fits if other != nodes)), cluster),
        )
        for nodes in jobs
    ]
    perf = _gpt(*_PERF)(_mean(fits.values()))
    case = "16 nodes × 4 V100, 256 micro-batches"
    return [
        *found,
        Prediction("bigscience_ddl", case, _steady_s(times, "ds-off"), iteration_s(perf, cluster)),
    ]


def pollux(folder: Path, left_out: int = 16) -> list[Prediction]:
    """pollux_t4: steps on `left_out` nodes, with the network's rate and latency for each model fitted to
    those on fewer; compute is what one GPU alone took."""
    scale = pd.read_csv(folder / "pollux_scalability.csv")
    alone = pd.read_csv(folder / "pollux_placements.csv", dtype={"placement": "str"})
    alone = alone[alone["placement"] == "1"].sort_values("local_bsz")
    found = []
    for model, rows in scale.groupby("model"):
        single = alone[alone["model"] == model]
        batches = single["local_bsz"]
        rows = rows[rows["local_bsz"].between(batches.min(), batches.max())]
        compute_s = np.interp(rows["local_bsz"], batches, single["step_time_s"] - single["sync_time_s"])
        rows = rows.assign(compute_s=compute_s)
        fewer, more = rows[rows["num_nodes"] < left_out], rows[rows["num_nodes"] >= left_out]
        names = more["num_nodes"], more["num_replicas"], more["local_bsz"]
        predicted = _steps_s(more, _fitted(fewer))
        for nodes, gpus, batch, step_s, ours_s in zip(*names, more["step_time_s"], predicted, strict=True):
            case = f"{model}, {nodes} nodes, {gpus} T4, batch {batch}"
            found.append(Prediction("pollux_t4", case, float(step_s), float(ours_s)))
    return found


def minibatches(folder: Path) -> list[Prediction]:
    """alibaba_minibatch_time: the slowest worker over the mean one, on average over every second iteration of
    each job, from the spread of the iterations between."""
    rows = pd.read_csv(folder / "job_minibatch_time_norm.csv.gz")
    found = []
    for job, of_job in rows.groupby("job"):
        table = (
            of_job.pivot_table(index="time", columns="worker", values="batch_time_norm").dropna().to_numpy()
        )
        table = table[table.mean(axis=1) > 0]
        paces = table / table.mean(axis=1, keepdims=True)
        cv = float(np.sqrt(np.mean(paces[::2].var(axis=1, ddof=1))))
        workers = table.shape[1]
        measured = float(paces[1::2].max(axis=1).mean())
        found.append(
            Prediction(
                "alibaba_minibatch_time", f"job {job}, {workers} workers", measured, straggler(cv, workers)
            )
        )
    return found


def _bigscience_cluster(reduces: pd.DataFrame) -> Cluster:
    """Bus bandwidth is what the busiest link carries: the network's of several nodes, NVLink's of one."""
    bandwidth = reduces.groupby("log")["busbw_gbps"].median() * 1e9
    return Cluster(
        gpus_per_host=4,
        rate_bps=float(bandwidth["bandwidth/n16_32gb_all_reduce_bench.txt"]),
        alpha_s=_ALPHA_S,
        inside_rate_bps=float(bandwidth["bandwidth/n1_32gb_all_reduce_bench.txt"]),
        inside_alpha_s=_ALPHA_S,
    )


def _steady_s(times: pd.DataFrame, name: str) -> float:
    """Median iteration of a log without its first entry, the warm-up."""
    rows = times[times["log"].str.contains(name, regex=False)]
    return float(rows["elapsed_ms_per_iteration"].iloc[1:].median()) / 1000


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _gpt(nodes: int, hidden: int, layers: int, micro_batches: int, sequences: int) -> Callable[[float], Job]:
    """A function of the seconds that a GPU needs for one operation."""
    parameters = layers * (12 * hidden**2 + 13 * hidden) + (_VOCABULARY + _TOKENS) * hidden
    tokens = sequences * _TOKENS
    return lambda operation_s: Job(
        parameters=parameters,
        layers=layers,
        micro_batches=micro_batches,
        micro_batch_s=transformer_s(parameters, tokens, 1 / operation_s, recompute=True),
        activation_bytes=2.0 * tokens * hidden,
        pipeline=nodes,
        tensor=_TENSOR,
    )


def _operation_s(job: Callable[[float], Job], cluster: Cluster, measured_s: float) -> float:
    low, high = 1e-14, 1e-13
    low_s, high_s = (iteration_s(job(each), cluster) for each in (low, high))
    return low + (measured_s - low_s) * (high - low) / (high_s - low_s)


def _fitted(rows: pd.DataFrame) -> Floats:
    """log(rate, latency) for the least squared log error of at most _FITTED of the steps, evenly taken."""
    some = rows.iloc[:: -(-len(rows) // _FITTED)]
    logs = np.log(some["step_time_s"].to_numpy())
    return np.asarray(least_squares(lambda values: np.log(_steps_s(some, values)) - logs, _START).x)


def _steps_s(rows: pd.DataFrame, logs: Floats) -> Floats:
    """float64[rows]: steps of data parallel jobs. Models' sizes are not in the data: 10^8 parameters for all,
    so a fitted rate is in units of that size."""
    rate_bps, alpha_s = np.exp(logs)
    found = []
    columns = (rows[name].tolist() for name in ("num_replicas", "num_nodes", "compute_s"))
    for gpus, nodes, work_s in zip(*columns, strict=True):
        cluster = Cluster(-(-gpus // nodes), rate_bps, alpha_s, 1e12, 0.0)
        found.append(iteration_s(Job(1e8, 1, 1, work_s, 0.0, data=gpus), cluster))
    return np.array(found)
