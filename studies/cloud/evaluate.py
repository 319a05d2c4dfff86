"""`python -m studies.cloud.evaluate KIND FILE…`: the error of the twin's job performance on public
measurements.

For: printing what the evaluate_* modules return, per workload and over all. Not for: evaluating (each of
those says what is known and what is asked). The kind says what a table holds; no data set is known by name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies.cloud import evaluate_scaling, evaluate_submissions, evaluate_transfer
from traces.readers import training
from twinbed import TwinbedError

Errors = dict[str, NDArray[np.float64]]
Titled = Iterator[tuple[str, Errors]]


def _placements(files: list[Path]) -> Titled:
    tables = [training.placements(files[0]), *(training.scalability(path) for path in files[1:])]
    steps, families = evaluate_scaling.steps_of(*tables)
    yield (
        "one GPU and one probe on two nodes",
        evaluate_scaling.leave_one_out(steps, families, evaluate_scaling.two_nodes),
    )


def _throughputs(files: list[Path]) -> Titled:
    for path in files:
        for source, table in training.throughputs(path).items():
            steps, families = evaluate_scaling.steps_of(table)
            yield (
                f"{source}: one GPU and one probe",
                evaluate_scaling.leave_one_out(steps, families, evaluate_scaling.widest),
            )


def _nodes(files: list[Path]) -> Titled:
    steps, families = evaluate_scaling.steps_of(training.by_node(files[0]))
    yield (
        "one node and one probe on two",
        evaluate_scaling.leave_one_out(steps, families, evaluate_scaling.one_node_and_two),
    )


def _profiles(files: list[Path]) -> Titled:
    table = training.profiled(*files)
    for anchor, target in evaluate_transfer.pairs(table):
        yield f"{anchor} → {target}", evaluate_transfer.leave_one_out(table, anchor, target)


def _submissions(files: list[Path]) -> Titled:
    table = training.submissions(files[0])
    yield "submissions left out", evaluate_submissions.leave_parts_out(table, "submission")
    yield "submitters left out", evaluate_submissions.leave_parts_out(table, "submitter")


KINDS: dict[str, tuple[Callable[[list[Path]], Titled], str]] = {
    "placements": (_placements, "step times by placement, then any by nodes and replicas"),
    "throughputs": (_throughputs, "steps per second by accelerator, count and placement"),
    "nodes": (_nodes, "tokens per second by whole nodes"),
    "profiles": (_profiles, "batch latencies by accelerator, and the profiles by operation"),
    "submissions": (_submissions, "runs that were submitted"),
}


def summary(errors: Errors) -> list[tuple[str, int, float, float]]:
    """Rows (workload, points, median, mean), then one of all points and one of the workloads' medians."""
    rows = [(name, each.size, float(np.median(each)), float(each.mean())) for name, each in errors.items()]
    pooled = np.concatenate(list(errors.values()))
    medians = np.array([row[2] for row in rows])
    rows.append(("all points", pooled.size, float(np.median(pooled)), float(pooled.mean())))
    rows.append(("workloads' medians", medians.size, float(np.median(medians)), float(medians.mean())))
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Prints a table per evaluation; exit 0, or 2 with one line if a file is not what it should be."""
    parser = argparse.ArgumentParser(prog="python -m studies.cloud.evaluate", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for name, (_, text) in KINDS.items():
        kinds.add_parser(name, help=text).add_argument("files", nargs="+", type=Path)
    given = parser.parse_args(arguments)
    try:
        for title, errors in KINDS[given.kind][0](given.files):
            print(f"{title}\n{'workload':28}{'points':>8}{'median':>9}{'mean':>9}")
            for name, points, median, mean in summary(errors):
                print(f"{name[:27]:28}{points:8d}{median:9.3f}{mean:9.3f}", flush=True)
    except TwinbedError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
