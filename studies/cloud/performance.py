"""How well the twin predicts job performance, on public measurements: each workload is left out in turn.

For: the error of twin.cloud.scaling (step times over GPUs and nodes), twin.cloud.transfer (a step on another
accelerator) and a forest over submitted runs; the page's part and `python -m studies job-performance`. Not
for: the models, nor for reading tables (traces.readers.training). The targets are aims of this project.

Scaling: of a job are known all its batch sizes on one GPU of one accelerator, and ONE point elsewhere (the
probe: the middle batch size at one placement); every other point is asked. Accelerator, placement and the
model's shape are chosen on the other jobs only. The model gets the asked points without their times.
Transfer: of a row are known its time on the anchor, the anchor's profile by operation, its batch and image
size; its time on the target is asked. Submissions: of a run are known benchmark, global batch size,
accelerator (the words of its name), how many on how many nodes, round and submitter; its time is asked. What
the run shows only at its end (samples to converge) is not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from studies.harness import NO_DATA, Asked, table
from studies.judge import aim
from traces.readers import training
from traces.readers.training import MeasuredSteps, Profiled, Submissions
from twin.cloud.scaling import SHAPES, Plan, Scaling, Shape, Steps, choose, errors
from twin.cloud.transfer import Forest, Profiles, across
from twinbed import ScenarioError

Real = NDArray[np.float64]
Names = NDArray[np.object_]
Errors = dict[str, Real]
"""|predicted / measured − 1| of every asked point, by workload."""

Titled = Iterator[tuple[str, Errors]]
Cell = tuple[str, float, float, float]
"""Accelerator, nodes, GPUs, GPUs on the fullest node."""

PARTS = 10
"""Parts of the submissions, each of which is left out once."""


def steps_of(*tables: MeasuredSteps) -> tuple[Steps, Names]:
    """Return the tables, one after the other, as the model's steps, and the family of each point."""
    columns = ("job", "accelerator", "nodes", "gpus", "most", "batch", "step_s")
    steps = Steps(*(np.concatenate([getattr(part, name) for part in tables]) for name in columns))
    return steps, np.concatenate([part.family for part in tables])


def plan(accelerator: str, cell: Cell) -> Plan:
    """Return what is known: alone on `accelerator`; at the cell its middle batch size."""
    name, nodes, gpus, most = cell

    def known(job: Steps) -> NDArray[np.bool_]:
        mask = np.asarray(job.alone & (job.accelerator == accelerator))
        at = (job.accelerator == name) & (job.nodes == nodes) & (job.gpus == gpus) & (job.most == most)
        points = np.flatnonzero(at)
        if points.size:
            order = points[np.argsort(job.batch[points], kind="stable")]
            mask[order[order.size // 2]] = True
        return mask

    return known


def two_nodes(others: Steps) -> list[Plan]:
    """Return plans with a probe that fills two nodes, where a step waits longest for the network."""
    two = (others.nodes == 2) & (others.gpus == 2 * others.most)
    return _plans(others, two & (others.most == others.most[two].max(initial=0)))


def widest(others: Steps) -> list[Plan]:
    """Return plans with a probe on the most GPUs and nodes that other jobs ran on, for the same reason."""
    most = others.gpus == others.gpus.max(initial=0)
    return _plans(others, most & (others.nodes == others.nodes[most].max(initial=0)))


def _plans(others: Steps, allowed: NDArray[np.bool_]) -> list[Plan]:
    """Return each pair of an accelerator to profile on and an allowed placement that all other jobs ran
    at."""

    def cells(rows: NDArray[np.bool_]) -> list[Cell]:
        jobs = [
            set(zip(job.accelerator, job.nodes, job.gpus, job.most, strict=True))
            for job in others.take(rows).by_job()
        ]
        common = set.intersection(*jobs) if len(jobs) == len(set(others.job)) else set()
        return sorted((str(name), float(a), float(b), float(c)) for name, a, b, c in common)

    probes = cells(allowed)
    return [plan(name, probe) for name, *_ in cells(np.asarray(others.alone)) for probe in probes]


def one_node_and_two(others: Steps) -> list[Plan]:  # noqa: ARG001 (the same whoever the others are)
    """Return the plan that knows all on one node (it counts as one accelerator) and a point on two nodes."""

    def known(job: Steps) -> NDArray[np.bool_]:
        mask = np.asarray(job.alone).copy()
        mask[np.flatnonzero((job.nodes == 2) & (job.gpus == 2))[:1]] = True
        return mask

    return [known]


def jobs_left_out(
    steps: Steps, families: Names, candidates: Callable[[Steps], list[Plan]], shapes: Sequence[Shape] = SHAPES
) -> Errors:
    """Return the errors of every job. Plan and shape are chosen on the other families.

    Jobs that never ran on one accelerator, and those of which nothing is left to ask, are not judged.
    """
    fit: set[str] = set()
    for job in steps.by_job():
        masks = [known(job.hidden()) for known in candidates(job)]
        if masks and job.alone.any() and not all(mask.all() for mask in masks):
            fit.add(job.job[0])
    judged = np.array([name in fit for name in steps.job], dtype=np.bool_)
    by_job: Errors = {}
    for family in sorted(set(families)):
        rest = judged & (families != family)
        others = steps.take(rest)
        plans = candidates(others)
        best, shape, _ = choose(others, families[rest], plans, shapes)
        model = Scaling(steps.take(families != family), shape)
        for job in steps.take(judged & (families == family)).by_job():
            by_job[str(job.job[0])] = errors(plans[best](job.hidden()), job, model)
    return by_job


def features(table: Submissions) -> Real:
    """Return what is known before a run, float64[n, f]: sizes in logs, names as columns of zeros and ones."""
    words = [
        frozenset(re.findall(r"[a-z]+\d+[a-z]*|\d+[a-z]*|[a-z]+", name.lower())) for name in table.accelerator
    ]
    vocabulary = sorted(frozenset().union(*words))
    spoken = np.array([[word in name for word in vocabulary] for name in words], dtype=np.float64)
    rounds = {name: position for position, name in enumerate(sorted(set(table.round)))}
    sizes = np.column_stack(
        [
            np.log(np.nan_to_num(table.batch, nan=1.0)),
            np.log(table.accelerators),
            np.log(np.maximum(table.nodes, 1)),
            table.per_node,
            [rounds[name] for name in table.round],
        ]
    )
    return np.column_stack([sizes, spoken, _one_hot(table.benchmark), _one_hot(table.submitter)])


def _one_hot(names: Names) -> Real:
    return np.asarray(names[:, None] == np.array(sorted(set(names)), dtype=np.object_), np.float64)


def parts_left_out(table: Submissions, by: Literal["submission", "submitter"], seed: int = 0) -> Errors:
    """Return the errors by benchmark. Every submission (or submitter) is left out once, with all its rows.

    seed: of the random division into PARTS.
    """
    groups = table.submitter
    if by == "submission":
        keys = zip(table.round, table.submitter, table.system, strict=True)
        groups = np.array(["/".join(key) for key in keys], dtype=np.object_)
    names = np.array(sorted(set(groups)), dtype=np.object_)
    shuffled = names[np.random.default_rng(seed).permutation(names.size)]
    parts = {name: position % PARTS for position, name in enumerate(shuffled)}
    part = np.array([parts[name] for name in groups])
    known = features(table)
    work = np.log(table.time_s * table.accelerators)
    predicted = np.empty(work.size)
    for number in range(PARTS):
        out = part == number
        predicted[out] = Forest(known[~out], work[~out], seed).predict(known[out])
    off = np.abs(np.exp(predicted - work) - 1)
    return {str(name): off[table.benchmark == name] for name in sorted(set(table.benchmark))}


def pairs(table: Profiled) -> list[tuple[str, str]]:
    """Return every (anchor, target) whose anchor was profiled."""
    anchors = [name for name in table.accelerators if name in table.operation_s]
    return [(anchor, target) for anchor in anchors for target in table.accelerators if target != anchor]


def models_left_out(table: Profiled, anchor: str, target: str, seed: int = 0) -> Errors:
    """Return the errors of every row by model. That model is left out with all its batch and image sizes."""
    columns = {name: table.step_s[:, at] for at, name in enumerate(table.accelerators)}
    known = np.isfinite(columns[anchor]) & np.isfinite(columns[target])
    known &= np.isfinite(table.operation_s[anchor]).all(axis=1)
    sizes = np.column_stack([np.log(table.batch), np.log(table.image_px)])
    everything = Profiles(columns[anchor], table.operation_s[anchor], table.idle_s[anchor], sizes)
    by_model: Errors = {}
    for name in sorted(set(table.job[known])):
        others, mine = known & (table.job != name), known & (table.job == name)
        predicted = across(
            everything.take(others), table.job[others], columns[target][others], everything.take(mine), seed
        )
        by_model[str(name)] = np.abs(predicted / columns[target][mine] - 1)
    return by_model


def _placements(files: list[Path]) -> Titled:
    tables = [training.placements(files[0]), *(training.scalability(path) for path in files[1:])]
    yield "one GPU and one probe on two nodes", jobs_left_out(*steps_of(*tables), two_nodes)


def _throughputs(files: list[Path]) -> Titled:
    for path in files:
        for source, measured in training.throughputs(path).items():
            yield f"{source}: one GPU and one probe", jobs_left_out(*steps_of(measured), widest)


def _nodes(files: list[Path]) -> Titled:
    steps, families = steps_of(training.by_node(files[0]))
    yield "one node and one probe on two", jobs_left_out(steps, families, one_node_and_two)


def _profiles(files: list[Path]) -> Titled:
    profiled = training.profiled(*files)
    for anchor, target in pairs(profiled):
        yield f"{anchor} → {target}", models_left_out(profiled, anchor, target)


def _submissions(files: list[Path]) -> Titled:
    submitted = training.submissions(files[0])
    yield "submissions left out", parts_left_out(submitted, "submission")
    yield "submitters left out", parts_left_out(submitted, "submitter")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a public table.

    evaluate: yields each evaluation's title and errors from the files
    licence: source and licence; target: the median error aimed at, None for no aim
    """

    title: str
    evaluate: Callable[[list[Path]], Titled]
    files: tuple[str, ...]
    licence: str
    target: float | None


QUESTIONS = {
    "placements": Question(
        "Step time by placement: all batches on one GPU, one probe that fills two nodes",
        _placements,
        ("pollux_t4/pollux_placements.csv", "pollux_t4/pollux_scalability.csv"),
        "Pollux/AdaptDL, Apache-2.0",
        0.10,
    ),
    "throughputs": Question(
        "Throughput by GPU type, count and placement: one GPU and one probe",
        _throughputs,
        ("gavel_throughputs/gavel_isolated_throughput.csv",),
        "Gavel, MIT",
        0.20,
    ),
    "submissions": Question(
        "Time of a submitted run",
        _submissions,
        ("mlperf_training/mlperf_training_runs.csv.gz",),
        "MLPerf Training logs, Apache-2.0; parsed by us, not verified by MLCommons",
        0.08,
    ),
    "profiles": Question(
        "Batch time on another GPU from a profile on one",
        _profiles,
        ("profet_cnn_aws_gpu/profet_latency.csv.gz", "profet_cnn_aws_gpu/profet_tf_profile_ops_us.csv.gz"),
        "PROFET, MIT",
        0.08,
    ),
    "nodes": Question(
        "Tokens per second by nodes: one node and one probe on two",
        _nodes,
        ("mosaic_mpt_throughput/mpt_training_throughput.csv",),
        "MosaicML llm-foundry, Apache-2.0",
        None,
    ),
}


def _files(question: Question, data: Path | None) -> list[Path]:
    """Return the question's files, none if one of them is not there."""
    files = [] if data is None else [data / name for name in question.files]
    return files if all(file.exists() for file in files) else []


def section(data: Path | None, questions: Sequence[Question] = tuple(QUESTIONS.values())) -> Iterator[str]:
    """Yield the page's part: a row for each evaluation, or one that says that the data is not there."""
    rows: list[Sequence[object]] = []
    for question in questions:
        files = _files(question, data)
        if not files:
            rows.append([question.title, question.licence, *[""] * 5, NO_DATA])
        for title, by_workload in question.evaluate(files) if files else ():
            pooled = np.concatenate(list(by_workload.values()))
            median, target = float(np.median(pooled)), question.target
            figures = [len(by_workload), pooled.size, f"{median:.3f}", f"{pooled.mean():.3f}"]
            wanted = "" if target is None else f"≤ {target:.2f}"
            verdict = aim(None if target is None else median <= target)
            rows.append([f"{question.title} ({title})", question.licence, *figures, wanted, verdict])
    yield "## Job performance on public measurements"
    heads = ("asked", "data", "workloads", "points", "median", "mean", "target (median)", "verdict")
    yield table(heads, rows, left=2)
    yield (
        "Errors are |predicted / measured − 1|. Every workload is left out whole (of submitted runs: every "
        "submission, or submitter), and what is chosen is chosen on the others. The text in brackets says "
        "what is known."
    )


def make(asked: Asked) -> int:
    """Print the errors of every workload. asked.only: the names of the questions."""
    for name in asked.only or QUESTIONS:
        if name not in QUESTIONS:
            raise ScenarioError(f"job-performance: no question {name!r}; there are {', '.join(QUESTIONS)}")
        files = _files(QUESTIONS[name], asked.data)
        if not files:
            print(f"{name}: {NO_DATA}")
        for title, by_workload in QUESTIONS[name].evaluate(files) if files else ():
            print(f"{title}\n{'workload':28}{'points':>8}{'median':>9}{'mean':>9}")
            for workload, points, median, mean in summary(by_workload):
                print(f"{workload[:27]:28}{points:8d}{median:9.3f}{mean:9.3f}", flush=True)
    return 0


def summary(by_workload: Errors) -> list[tuple[str, int, float, float]]:
    """Return rows (workload, points, median, mean), one of all points, and one of the workloads' medians."""
    named = [
        *by_workload.items(),
        ("all points", np.concatenate(list(by_workload.values()))),
        ("workloads' medians", np.array([np.median(values) for values in by_workload.values()])),
    ]
    return [(name, values.size, float(np.median(values)), float(values.mean())) for name, values in named]
