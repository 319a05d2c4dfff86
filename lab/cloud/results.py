"""`python -m lab.cloud.results`: docs/results/cloud.md, the cloud pillar's figures beside its targets.

For: job performance on public measurements (by leave-one-workload-out) and FC²'s experiments F1–F4. Not for:
evaluating (evaluate*.py say what is known and asked). Where a table is not on this machine its row says so.
Data with a licence that does not allow copying figures is not named here. Source of targets: SPEC §3.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from control.recommender import fc2
from lab.cloud import convnet, evaluate
from traces.catalogue import catalogue

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results" / "cloud.md"
REGION = "ap-southeast-1"
CAP = 6
"""Most workers in every experiment of FC² (§8)."""


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


@dataclass(frozen=True, slots=True)
class Choice:
    """One experiment of FC²: what may be chosen at a batch size, and what the source's Scala-Opt chose."""

    experiment: str
    types: tuple[str, ...]
    server: str
    batch: int
    source: tuple[str, int]


CPU = ("m4.xlarge", "t2.xlarge", "c4.xlarge")
HIGH = ("g3.4xlarge", "p2.xlarge", "c4.8xlarge")
CHOICES = (
    Choice("F1", CPU, "m4.large", 64, ("t2.xlarge", 2)),
    Choice("F1", CPU, "m4.large", 128, ("t2.xlarge", 3)),
    Choice("F2", (*CPU, "p2.xlarge"), "m4.large", 128, ("p2.xlarge", 2)),
    Choice("F2", (*CPU, "p2.xlarge"), "m4.large", 512, ("p2.xlarge", 3)),
    Choice("F2", (*CPU, "p2.xlarge"), "m4.large", 1280, ("p2.xlarge", 5)),
    Choice("F3", HIGH, "m4.2xlarge", 128, ("g3.4xlarge", 2)),
    Choice("F3", HIGH, "m4.2xlarge", 512, ("g3.4xlarge", 4)),
    Choice("F4", HIGH, "m4.10xlarge", 128, ("g3.4xlarge", 6)),
    Choice("F4", HIGH, "m4.10xlarge", 512, ("g3.4xlarge", 6)),
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


def choices(rows: Sequence[Choice] = CHOICES) -> list[str]:
    """The table of FC²'s experiments: ours beside the source's, and what Time-Opt would cost."""
    listings = catalogue.load().types(REGION)
    lines = [
        "## FC²: what Scala-Opt chooses",
        "",
        "Prices and sizes are the catalogue's; what one worker takes of its server's port comes from",
        "`lab/cloud/convnet.py`: no number in it is fitted to the source's, but its counts were known",
        "when the form was chosen, so this is no blind test. At most 6 workers. Cost is against",
        "Time-Opt (the dearest type, 6 workers) for the same number of images.",
        "",
        "| experiment | batch | ours | source | type | count | cost to Time-Opt's | time to Time-Opt's |",
        "| --- | ---: | --- | --- | --- | --- | ---: | ---: |",
    ]
    for row in rows:
        ours, theirs = (_plan(rule, row, listings) for rule in (fc2.Rule.SCALE, fc2.Rule.TIME))
        bandwidth = listings[row.server].network_bps
        time, base = (
            convnet.run_s(listings[each.worker], row.batch, each.count, bandwidth, images=1e6)
            for each in (ours, theirs)
        )
        cost = time * ours.price_usd_h / (base * theirs.price_usd_h) - 1
        name, count = row.source
        lines.append(
            f"| {row.experiment} | {row.batch} | {ours.count} × {ours.worker} | {count} × {name} "
            f"| {'same' if ours.worker == name else 'other'} | {'same' if ours.count == count else 'other'} "
            f"| {cost:+.0%} | {time / base - 1:+.0%} |"
        )
    return lines


def _plan(rule: fc2.Rule, row: Choice, listings: dict[str, catalogue.Listing]) -> fc2.Plan:
    host = listings[row.server]
    workers = [
        fc2.Worker(
            name, listings[name].price_usd_h, convnet.use_bps(listings[name], row.batch, host.network_bps)
        )
        for name in row.types
    ]
    return fc2.plan(rule, workers, fc2.Server(host.name, host.price_usd_h, host.network_bps), cap=CAP)


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
    PAGE.write_text(page([lambda: performance(data), choices]), encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
