"""`python -m studies.cloud.results`: docs/results/cloud.md, the cloud pillar's figures beside its targets.

For: job performance and recommenders on public measurements (by leave-one-workload-out), our own measured
table, and the sources' experiments. Not for: evaluating (evaluate*.py and predicting.py say what is known and
asked). Where a table is not on this machine its row says so. No measurement of data without a stated licence
is repeated here (recommender_part.py). Source of targets: SPEC §3.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from studies.cloud import evaluate, measured_part, recommender_part

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results" / "cloud.md"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a public table: its kind (evaluate.KINDS), files, source with licence, and target."""

    title: str
    kind: str
    files: tuple[str, ...]
    licence: str
    target: float | None


QUESTIONS = (
    Question(
        "Step time by placement: all batches on one GPU, one probe that fills two nodes",
        "placements",
        ("pollux_t4/pollux_placements.csv", "pollux_t4/pollux_scalability.csv"),
        "Pollux/AdaptDL, Apache-2.0",
        0.10,
    ),
    Question(
        "Throughput by GPU type, count and placement: one GPU and one probe",
        "throughputs",
        ("gavel_throughputs/gavel_isolated_throughput.csv",),
        "Gavel, MIT",
        0.20,
    ),
    Question(
        "Time of a submitted run",
        "submissions",
        ("mlperf_training/mlperf_training_runs.csv.gz",),
        "MLPerf Training logs, Apache-2.0; parsed by us, not verified by MLCommons",
        0.08,
    ),
    Question(
        "Batch time on another GPU from a profile on one",
        "profiles",
        ("profet_cnn_aws_gpu/profet_latency.csv.gz", "profet_cnn_aws_gpu/profet_tf_profile_ops_us.csv.gz"),
        "PROFET, MIT",
        0.08,
    ),
    Question(
        "Tokens per second by nodes: one node and one probe on two",
        "nodes",
        ("mosaic_mpt_throughput/mpt_training_throughput.csv",),
        "MosaicML llm-foundry, Apache-2.0",
        None,
    ),
)


def verdict(value: float, target: float | None) -> str:
    """What a cell says: reached, missed, or a dash without a target."""
    if target is None:
        return "–"
    return "reached" if value <= target else "missed"


def performance(data: Path, questions: Sequence[Question] = QUESTIONS) -> list[str]:
    """The table of job performance, a row per evaluation; a row that says so for data that is not there."""
    lines = [
        "## Job performance on public measurements",
        "",
        "Every workload (of submitted runs: submission, or submitter) is left out whole; what is chosen",
        "is chosen on the others. Errors are |predicted / measured − 1|; each evaluation says what is known.",
        "",
        "| asked | data | workloads | points | median | mean | target (median) | verdict |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for question in questions:
        files = [data / name for name in question.files]
        if not all(path.exists() for path in files):
            lines.append(f"| {question.title} | {question.licence} | | | | | | no data on this machine |")
            continue
        for title, errors in evaluate.KINDS[question.kind][0](files):
            pooled = np.concatenate(list(errors.values()))
            median = float(np.median(pooled))
            target = "" if question.target is None else f"≤ {question.target:.2f}"
            lines.append(
                f"| {question.title} ({title}) | {question.licence} | {len(errors)} | {pooled.size} "
                f"| {median:.3f} | {pooled.mean():.3f} | {target} | {verdict(median, question.target)} |"
            )
    return lines


def page(parts: Sequence[Callable[[], list[str]]]) -> str:
    """The whole page."""
    lines = [
        "<!-- Made by `make results-cloud`; edit lab/cloud, not this file. -->",
        "",
        "# Cloud: figures beside their targets",
    ]
    for part in parts:
        lines += ["", *part()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes the page."""
    given = os.environ.get("TWINBED_DATA")
    data = Path(given) if given else ROOT.parent / "shared" / "data"
    parts = [
        lambda: performance(data),
        lambda: recommender_part.table(data),
        measured_part.table,
        measured_part.experiments,
    ]
    PAGE.write_text(page(parts), encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
