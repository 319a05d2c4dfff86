"""Runs a market scenario on both backends and compares the job's cost and end.

For: `twinbed validate` of a market scenario. Not for: running (lab.cloud.run, lab.cloud.real). A cell is one
variant, policy and seed: both backends meet the same market. RULE was fixed before the first result was
known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lab.ask.kind import Progress
from lab.ask.scenario import Scenario, expand
from lab.cloud.real import backend
from lab.runs.formats import Column, Record, Result
from lab.runs.runner import run_scenario
from lab.runs.store import Run, RunStore

LIMIT, SHARE = 0.05, 0.80
RULE = (
    f"A cell agrees where cost and finish time of the twin each differ by at most {LIMIT:.0%} from the "
    f"testbed's mean over its repeats. The twin agrees where at least {SHARE:.0%} of the cells do."
)


@dataclass(frozen=True, slots=True)
class Compared:
    """One policy on one market.

    twin: cost, US$, and finish time, h.
    testbed: cost and finish time of each run.
    starts: number of machines started by the twin, and by the testbed on average.
    """

    variant: str
    policy: str
    seed: int
    twin: tuple[float, float]
    testbed: tuple[tuple[float, float], ...]
    starts: tuple[float, float]

    @property
    def mean(self) -> tuple[float, float]:
        """Mean cost and finish time on the testbed."""
        cost, finish = np.mean(self.testbed, axis=0).tolist()
        return cost, finish

    @property
    def errors(self) -> tuple[float, float]:
        """The twin's errors of cost and finish time, relative to the testbed's means."""
        cost, finish = (ours / theirs - 1 for ours, theirs in zip(self.twin, self.mean, strict=True))
        return cost, finish

    @property
    def agrees(self) -> bool:
        """Whether the two backends agree."""
        return max(map(abs, self.errors)) <= LIMIT


def validate(
    scenario: Scenario, store: RunStore, repeats: int, progress: Progress, *, fresh: bool
) -> list[Compared]:
    """Return the comparison of every cell. Raises as both backends do."""
    specs = expand(scenario)
    for spec in specs:
        backend.emulation_of(spec)
    twins = run_scenario(scenario, store, jobs=1, fresh=fresh, progress=progress)
    real = [backend.run_scenario(scenario, store, repeat, progress, fresh=fresh) for repeat in range(repeats)]
    return [
        Compared(
            spec.variant,
            spec.policy.text,
            spec.seed,
            _figures(ours),
            tuple(_figures(run) for run in theirs),
            (ours.metrics["starts"], float(np.mean([run.metrics["starts"] for run in theirs]))),
        )
        for spec, ours, *theirs in zip(specs, twins, *real, strict=True)
    ]


def _figures(run: Run) -> tuple[float, float]:
    return run.metrics["cost_usd"], run.metrics["finish_h"]


def agree(rows: Sequence[Compared]) -> bool:
    """Return whether enough cells agree."""
    return sum(row.agrees for row in rows) >= SHARE * len(rows) - 1e-9


_COLUMNS = (
    Column("variant", "Variant"), Column("policy", "Policy"), Column("seed", "Seed", identifier=True),
    Column("runs", "Real runs", decimals=0), Column("twin_usd", "Twin cost", "$", 2),
    Column("testbed_usd", "Testbed cost", "$", 2), Column("cost_error", "Error", "1", 1, percent=True),
    Column("twin_h", "Twin end", "h", 2), Column("testbed_h", "Testbed end", "h", 2),
    Column("finish_error", "Error", "1", 1, percent=True),
    Column("spread", "Own spread", "1", 1, percent=True), Column("starts", "Starts twin, testbed"),
    Column("verdict", "Verdict"),
)  # fmt: skip


def result(rows: Sequence[Compared]) -> Result:
    """Return the comparison as a table."""
    held = sum(row.agrees for row in rows)
    return Result(
        _COLUMNS,
        tuple(_record(row) for row in rows),
        facts={"cells": f"{held} of {len(rows)} agree"},
        legend="own spread: largest less smallest finish time of the real runs over their mean",
        notes=(RULE,),
    )


def _record(row: Compared) -> Record:
    cost, finish = row.mean
    ends = [end for _, end in row.testbed]
    return {
        "variant": row.variant or "–", "policy": row.policy, "seed": row.seed, "runs": len(row.testbed),
        "twin_usd": row.twin[0], "testbed_usd": cost, "cost_error": row.errors[0], "twin_h": row.twin[1],
        "testbed_h": finish, "finish_error": row.errors[1],
        "spread": (max(ends) - min(ends)) / finish if len(ends) > 1 else math.nan,
        "starts": f"{row.starts[0]:g}, {row.starts[1]:g}", "verdict": "agrees" if row.agrees else "outside",
    }  # fmt: skip
