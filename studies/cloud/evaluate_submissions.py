"""How well the time of a submitted training run is told from other submissions, on public results.

For: the error of a forest over a table of submissions, whole submissions (or all of a submitter's) left out
in ten parts. Not for: reading tables. Known of a run: benchmark, global batch size, accelerator (the words of
its name), how many on how many nodes, round and submitter; asked: its time. What the run itself shows only at
its end (samples to converge) is not used. A result handed in again in a later round is there once.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from traces.readers.training import Submissions
from twin.cloud.transfer import Forest

Errors = dict[str, NDArray[np.float64]]
Names = NDArray[np.object_]
Real = NDArray[np.float64]

PARTS = 10


def features(table: Submissions) -> Real:
    """What is known before a run, float64[n, f]: sizes in logs, names as columns of zeros and ones."""
    words = [
        frozenset(re.findall(r"[a-z]+\d+[a-z]*|\d+[a-z]*|[a-z]+", name.lower())) for name in table.accelerator
    ]
    vocabulary = sorted(frozenset().union(*words))
    spoken = np.array([[word in each for word in vocabulary] for each in words], dtype=np.float64)
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


def leave_parts_out(table: Submissions, by: Literal["submission", "submitter"], seed: int = 0) -> Errors:
    """|predicted / measured − 1| by benchmark; every submission (or submitter) is left out once.

    seed: of the random parting into ten.
    """
    groups = table.submitter
    if by == "submission":
        keys = zip(table.round, table.submitter, table.system, strict=True)
        groups = np.array(["/".join(key) for key in keys], dtype=np.object_)
    names = np.array(sorted(set(groups)), dtype=np.object_)
    parts = dict(
        zip(names[np.random.default_rng(seed).permutation(names.size)], np.arange(names.size), strict=True)
    )
    part = np.array([parts[name] % PARTS for name in groups])
    known = features(table)
    work = np.log(table.time_s * table.accelerators)
    told = np.empty(work.size)
    for each in range(PARTS):
        out = part == each
        told[out] = Forest(known[~out], work[~out], seed).predict(known[out])
    off = np.abs(np.exp(told - work) - 1)
    return {str(name): off[table.benchmark == name] for name in sorted(set(table.benchmark))}
