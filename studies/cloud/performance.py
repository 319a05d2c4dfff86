"""How well the twin predicts job performance, on public measurements: each workload is left out in turn.

For: the error of twin.cloud.scaling (step times over GPUs and nodes), twin.cloud.transfer (a step on another
accelerator), twin.cloud.speedup (a submitted run on more accelerators) and a forest over submitted runs; the
page's part and `python -m studies job-performance`. Not for: the models, nor for reading tables
(traces.readers.training). The targets are aims of this project.

Scaling: the model knows a job's step times with all batch sizes on one GPU of one accelerator, and ONE
further point (the probe: the middle batch size at one placement). It predicts all other points without seeing
their times. Accelerator, placement and the model's shape are chosen on the other jobs only.
Transfer: the model knows a row's time on the anchor, the anchor's profile by operation, and the batch and
image size. It predicts the time on the target. Submissions: the model knows a run's benchmark, global batch
size, accelerator (the words of its name), number of accelerators and nodes, round and submitter. It predicts
the time without data that the run shows only at its end (samples to converge).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lab.cloud.input import step_file
from studies.cloud import pipelines, steptimes
from studies.cloud.judged import COLUMNS, Errors, Goal, Judged, cells, held, judged, pooled
from studies.harness import NO_DATA, Asked, table
from traces.readers import training
from traces.readers.training import MeasuredSteps, Profiled, Submissions
from twin.cloud.intervals import conformal
from twin.cloud.scaling import SHAPES, Plan, Scaling, Shape, Steps, apart, choose, suits
from twin.cloud.speedup import SpeedUps, Systems
from twin.cloud.transfer import Forest, Profiles, across
from twinbed import ScenarioError

Real = NDArray[np.float64]
Names = NDArray[np.object_]
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
    """Return the known points: all alone on `accelerator`, and at the cell the middle batch size."""
    name, nodes, gpus, most = cell

    def known(job: Steps) -> NDArray[np.bool_]:
        mask = np.asarray(job.alone & (job.accelerator == accelerator))
        at = (job.accelerator == name) & (job.nodes == nodes) & (job.gpus == gpus) & (job.most == most)
        points = np.flatnonzero(at)
        if not points.size:
            return np.zeros_like(mask)
        mask[points[np.argsort(job.batch[points], kind="stable")][points.size // 2]] = True
        return mask

    return known


def two_nodes(steps: Steps) -> list[Plan]:
    """Return plans with a probe that fills two nodes, where a step waits longest for the network."""

    def filled(job: Steps) -> NDArray[np.bool_]:
        two = (job.nodes == 2) & (job.gpus == 2 * job.most)
        return np.asarray(two & (job.most == job.most[two].max(initial=0)))

    return _plans(steps, filled)


def widest(steps: Steps) -> list[Plan]:
    """Return plans with a probe on the most GPUs and nodes that a job ran on, for the same reason."""

    def most(job: Steps) -> NDArray[np.bool_]:
        gpus = (job.gpus == job.gpus.max(initial=0)) & ~job.alone
        return np.asarray(gpus & (job.nodes == job.nodes[gpus].max(initial=0)))

    return _plans(steps, most)


def _plans(steps: Steps, probes: Plan) -> list[Plan]:
    """Return each pair of an accelerator that a job ran on alone and a placement of a job's probes."""
    alone = sorted(set(map(str, steps.accelerator[steps.alone])))
    cells = {
        (str(job.accelerator[row]), float(job.nodes[row]), float(job.gpus[row]), float(job.most[row]))
        for job in steps.by_job()
        for row in np.flatnonzero(probes(job))
    }
    return [plan(name, cell) for name in alone for cell in sorted(cells)]


def jobs_left_out(
    steps: Steps, families: Names, candidates: Callable[[Steps], list[Plan]], shapes: Sequence[Shape] = SHAPES
) -> Errors:
    """Return the predictions of every job. Order of plans, shape and interval are chosen on other families.

    A job follows the best plan of other families that suits it, else one with its own placement. A job is not
    judged if it never ran on a single accelerator, or if it has no further point.
    """
    by_job: dict[str, Judged] = {}
    for family in sorted(set(families)):
        others = steps.take(families != family)
        plans = candidates(others)
        rest = families[families != family]
        # With a single other family, its jobs are left out one by one.
        choice = choose(others, rest if len(set(rest)) > 1 else others.job, plans, shapes)
        model = Scaling(others, choice.shape)
        for job in steps.take(families == family).by_job():
            known = choice.known(plans, job)
            own = (mine(job.hidden()) for mine in candidates(job))
            known = known if known.any() else next((mask for mask in own if suits(mask, job)), known)
            if known.any():
                by_job[str(job.job[0])] = judged(apart(known, job, model), choice.width)
    return by_job


def features(table: Submissions) -> Real:
    """Return the features known before a run, float64[n, f]: logs of sizes; names as columns of 0 and 1."""
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


def parts_left_out(table: Submissions, by: Literal["submission", "submitter"]) -> Errors:
    """Return the predictions by benchmark. Every submission (or submitter) is left out once."""
    off, part = _off(table, by)
    return _by_benchmark(table, off, part)


def speed_ups(table: Submissions) -> Errors:
    """Return the predictions of speed-ups by benchmark, submitters left out.

    In each round, a submitter's systems with the same accelerator form a group. The smallest system of a
    group is known, and the speed-ups of the others over it are predicted. An interval is as wide as the
    logarithm of the growth, since the error is one of an exponent.
    """
    keys = zip(table.round, table.submitter, table.benchmark, table.accelerator, strict=True)
    runs = Systems(
        table.benchmark,
        np.array(["/".join(key) for key in keys], dtype=np.object_),
        table.accelerators,
        np.maximum(table.nodes, 1),
        np.nan_to_num(table.batch, nan=1.0),
        table.time_s,
    )
    start, more = runs.steps_up()
    part = _parts(table.submitter)
    off, growth = np.zeros(len(runs)), np.ones(len(runs))
    for number in sorted(set(part[more])):
        model = SpeedUps(runs.take(part != number))
        for row in set(more[part[more] == number]):
            first, asked = runs.take(start[more == row]), runs.take(more[more == row])
            told = model.log_speed_up(first, asked)
            off[row] = np.median(told - np.log(first.time_s / asked.time_s))
            growth[row] = np.log(asked.gpus[0] / first.gpus[0])
    asked_part = np.where(np.isin(np.arange(len(runs)), more), part, PARTS)
    return _by_benchmark(table, off, asked_part, growth)


def _off(table: Submissions, by: str) -> tuple[Real, NDArray[np.int64]]:
    """Return log (predicted / measured) of each row's time, and the part in which it was left out."""
    groups = table.submitter
    if by == "submission":
        keys = zip(table.round, table.submitter, table.system, strict=True)
        groups = np.array(["/".join(key) for key in keys], dtype=np.object_)
    part = _parts(groups)
    known = features(table)
    work = np.log(table.time_s * table.accelerators)
    predicted = np.empty(work.size)
    for number in range(PARTS):
        out = part == number
        predicted[out] = Forest(known[~out], work[~out]).predict(known[out])
    return predicted - work, part


def _parts(groups: Names) -> NDArray[np.int64]:
    """Return the part of each row, the same for all rows of a group."""
    names = np.array(sorted(set(groups)), dtype=np.object_)
    shuffled = names[np.random.default_rng(0).permutation(names.size)]
    parts = {name: position % PARTS for position, name in enumerate(shuffled)}
    return np.array([parts[name] for name in groups])


def _by_benchmark(
    table: Submissions, off: Real, part: NDArray[np.int64], scale: float | Real = 1.0
) -> Errors:
    """Return the predictions of all rows by benchmark. A row's interval comes from the other parts.

    scale: expected size of each row's error, in any unit; intervals are proportional to it.
    """
    size, width = np.abs(off) / scale, np.full(off.size, np.inf)
    for number in range(PARTS):
        others = size[(part != number) & (part < PARTS)]
        width[part == number] = conformal(others) if others.size else np.inf
    width = width * scale
    rows = {str(name): (table.benchmark == name) & (part < PARTS) for name in sorted(set(table.benchmark))}
    return {name: judged(off[mine], width[mine]) for name, mine in rows.items() if mine.any()}


def pairs(table: Profiled) -> list[tuple[str, str]]:
    """Return every (anchor, target) whose anchor was profiled."""
    anchors = [name for name in table.accelerators if name in table.operation_s]
    return [(anchor, target) for anchor in anchors for target in table.accelerators if target != anchor]


def models_left_out(table: Profiled, anchor: str, target: str) -> Errors:
    """Return the predictions of every row by model. It is left out with all its batch and image sizes."""
    columns = {name: table.step_s[:, at] for at, name in enumerate(table.accelerators)}
    known = np.isfinite(columns[anchor]) & np.isfinite(columns[target])
    known &= np.isfinite(table.operation_s[anchor]).all(axis=1)
    sizes = np.column_stack([np.log(table.batch), np.log(table.image_px)])
    everything = Profiles(
        columns[anchor], table.operation_s[anchor], table.idle_s[anchor], sizes, table.operations
    )
    off = {}
    for name in sorted(set(table.job[known])):
        others, mine = known & (table.job != name), known & (table.job == name)
        predicted = across(
            everything.take(others), table.job[others], columns[target][others], everything.take(mine)
        )
        off[str(name)] = np.log(predicted / columns[target][mine])
    return held(off)


def _placements(files: list[Path]) -> Titled:
    tables = [training.placements(files[0]), *(training.scalability(path) for path in files[1:])]
    yield "one GPU and one probe on two nodes", jobs_left_out(*steps_of(*tables), two_nodes)


def _throughputs(files: list[Path]) -> Titled:
    for path in files:
        for source, measured in training.throughputs(path).items():
            yield f"{source}: one GPU and one probe", jobs_left_out(*steps_of(measured), widest)


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
    """A question to a public table.

    title: the question in words.
    evaluate: yields each evaluation's title and errors from the files.
    files: the table's files below the folder of public data sets.
    licence: source and licence.
    goal: aims for the errors.
    """

    title: str
    evaluate: Callable[[list[Path]], Titled]
    files: tuple[str, ...]
    licence: str
    goal: Goal


QUESTIONS = {
    "placements": Question(
        "Step time by placement: all batches on one GPU, one probe that fills two nodes",
        _placements,
        ("pollux_t4/pollux_placements.csv", "pollux_t4/pollux_scalability.csv"),
        "Pollux/AdaptDL, Apache-2.0",
        Goal(median=0.10),
    ),
    "throughputs": Question(
        "Throughput by GPU type, count and placement: one GPU and one probe",
        _throughputs,
        ("gavel_throughputs/gavel_isolated_throughput.csv",),
        "Gavel, MIT",
        Goal(median=0.20),
    ),
    "submissions": Question(
        "Time of a submitted run",
        _submissions,
        ("mlperf_training/mlperf_training_runs.csv.gz",),
        "MLPerf Training logs, Apache-2.0; parsed by us, not verified by MLCommons",
        Goal(median=0.08),
    ),
    "speed-ups": Question(
        "S5: speed-up over a submitter's smallest system with the same accelerator",
        lambda files: iter([("submitters left out", speed_ups(training.submissions(files[0])))]),
        ("mlperf_training/mlperf_training_runs.csv.gz",),
        "MLPerf Training logs, Apache-2.0; parsed by us, not verified by MLCommons",
        Goal(median=0.10),
    ),
    "profiles": Question(
        "Batch time on another GPU from a profile on one",
        _profiles,
        ("profet_cnn_aws_gpu/profet_latency.csv.gz", "profet_cnn_aws_gpu/profet_tf_profile_ops_us.csv.gz"),
        "PROFET, MIT",
        Goal(median=0.08),
    ),
    "nodes": Question(
        "S1: tokens per second by nodes",
        lambda files: steptimes.probed(step_file.measured(files[0])),
        ("mosaic_mpt_throughput/mpt_training_throughput.csv",),
        "MosaicML llm-foundry, Apache-2.0",
        Goal(median=0.05, p90=0.10, signed=0.03),
    ),
    "unprobed": Question(
        "Tokens per second by nodes, nothing of the job known",
        lambda files: steptimes.unprobed(step_file.measured(files[0])),
        ("mosaic_mpt_throughput/mpt_training_throughput.csv",),
        "MosaicML llm-foundry, Apache-2.0",
        Goal(),
    ),
    "own-gpus": Question(
        "Tokens per second on one GPU of ours",
        lambda files: steptimes.on_own_gpus(step_file.measured(files[0])),
        ("mosaic_mpt_throughput/mpt_training_throughput.csv",),
        "MosaicML llm-foundry, Apache-2.0, learned; ours predicted",
        Goal(median=0.08),
    ),
    "pipelines": Question(
        "S2: iterations of BigScience's pipelines",
        lambda files: pipelines.bigscience(files[0].parent, step_file.measured(files[1])),
        ("bigscience_ddl/megatron_iteration_times.csv", "mosaic_mpt_throughput/mpt_training_throughput.csv"),
        "BigScience and MosaicML llm-foundry, Apache-2.0",
        Goal(p90=0.10),
    ),
    "llama": Question(
        "S3: Llama 3's speed of a GPU at twice the GPUs and fixed tokens",
        lambda _: pipelines.llama(),
        (),
        "two figures of arXiv 2407.21783",
        Goal(p90=0.02),
    ),
}


def _files(question: Question, data: Path | None) -> list[Path] | None:
    """Return the question's files, None if one of them is not there."""
    if data is None and question.files:
        return None
    files = [data / name for name in question.files] if data else []
    return files if all(file.exists() for file in files) else None


def section(data: Path | None, questions: Sequence[Question] = tuple(QUESTIONS.values())) -> Iterator[str]:
    """Yield the page's part: a row for each evaluation, or one that states that the data are missing."""
    rows: list[Sequence[object]] = []
    for question in questions:
        files = _files(question, data)
        if files is None:
            rows.append([question.title, question.licence, *[""] * (len(COLUMNS) - 1), NO_DATA])
        for title, by_workload in question.evaluate(files) if files is not None else ():
            rows.append([f"{question.title} ({title})", question.licence, *cells(by_workload, question.goal)])
    yield "## Job performance on public measurements"
    yield table(("asked", "data", *COLUMNS), rows, left=2)
    yield (
        "Errors are predicted / measured − 1: median and p90 of their sizes, and their signed mean. For "
        "tokens per second and pipelines they are errors of the step's time, so plus means too slow. Every "
        "workload is left out whole (for submitted runs every submission or submitter). All choices and the "
        "90 % intervals come from the other workloads. The text in brackets names the known data."
    )


def make(asked: Asked) -> int:
    """Print the errors of every workload. asked.only: the names of the questions."""
    for name in asked.only or QUESTIONS:
        if name not in QUESTIONS:
            raise ScenarioError(f"job-performance: no question {name!r}; there are {', '.join(QUESTIONS)}")
        files = _files(QUESTIONS[name], asked.data)
        if files is None:
            print(f"{name}: {NO_DATA}")
        for title, by_workload in QUESTIONS[name].evaluate(files) if files is not None else ():
            print(f"{title}\n{'workload':36}{'points':>8}{'median':>9}{'p90':>9}{'mean':>9}{'held':>7}")
            for workload, points, *figures, share in summary(by_workload):
                median, p90, mean = figures
                print(
                    f"{workload[:35]:36}{points:8d}{median:9.3f}{p90:9.3f}{mean:+9.3f}{share:7.0%}",
                    flush=True,
                )
    return 0


def summary(by_workload: Errors) -> list[tuple[str, int, float, float, float, float]]:
    """Return rows of each workload and of all points: name, points, median, p90, signed mean, share held."""
    named = {**by_workload, "all points": pooled(by_workload)}
    return [
        (
            name,
            part.error.size,
            float(np.median(np.abs(part.error))),
            float(np.quantile(np.abs(part.error), 0.9)),
            float(part.error.mean()),
            float(part.inside.mean()),
        )
        for name, part in named.items()
        if part.error.size
    ]
