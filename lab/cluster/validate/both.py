"""Runs a cluster scenario on both backends and compares the mean JCT and the order of the policies.

For: `twinbed validate` of a cluster scenario, and its results page. Not for: running (lab.cluster.run,
lab.cluster.real). RULE was fixed before the first result.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lab.ask.kind import Progress
from lab.ask.scenario import RunSpec, Scenario, expand, with_overrides
from lab.cluster.input import ClusterInput
from lab.cluster.real import backend
from lab.runs.formats import Column, Record, Result
from lab.runs.runner import run_scenario
from lab.runs.store import Run, RunStore

LIMIT = 0.10
RULE = (
    f"The twin agrees where its mean JCT differs by at most {LIMIT:.0%} from the testbed's mean over seeds "
    "and repeats, and where it puts the policies of a question in the same order as the testbed."
)
SPEED_LIMIT = 0.05
"""Largest difference of the real training speed from the calibrated one without a note."""
DRAWS = 20
"""Number of draws of the times of starts for each run of the twin. Where jobs preempt each other, a start
that takes a little longer may change the whole run."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One policy on one variant of the question.

    jobs: number of jobs of a run.
    twin_s: mean JCT of each seed and draw, s.
    testbed_s: mean JCT of each seed and repeat, s.
    twin_preemptions, testbed_preemptions: mean number of preemptions of a run.
    twin_starts_s, testbed_starts_s: time with GPUs but without progress, mean over the jobs, s.
    training_speed: speed at which the real jobs trained, relative to the calibrated one, mean over the runs;
        NaN if no run knows it.
    twin_place, testbed_place: rank of the policy by mean JCT, from 1.
    """

    variant: str
    policy: str
    jobs: int
    twin_s: tuple[float, ...]
    testbed_s: tuple[float, ...]
    twin_preemptions: float
    testbed_preemptions: float
    twin_starts_s: float
    testbed_starts_s: float
    training_speed: float = math.nan
    twin_place: int = 0
    testbed_place: int = 0

    @property
    def error(self) -> float:
        """The error of the twin's mean relative to the testbed's mean."""
        mean = float(np.mean(self.testbed_s))
        return (float(np.mean(self.twin_s)) - mean) / mean

    @property
    def agrees(self) -> bool:
        """Whether the mean JCT agrees."""
        return abs(self.error) <= LIMIT


def validate(
    scenario: Scenario, store: RunStore, repeats: int, progress: Progress, *, fresh: bool
) -> list[Compared]:
    """Return the comparison of every variant and policy. Raises as both backends do."""
    for spec in expand(scenario):
        backend.emulation_of(spec)
    twins = drawn(scenario, store, progress, fresh=fresh)
    real = [
        run
        for repeat in range(repeats)
        for run in backend.run_scenario(scenario, store, repeat, progress, fresh=fresh)
    ]
    return compared(scenario, twins, real)


def with_draw(spec: RunSpec, draw: int) -> RunSpec:
    """Return the same question with another draw of the times of starts."""
    return replace(spec, scenario=with_overrides(spec.scenario, [f"cluster.emulation.draw={draw}"]))


def drawn(scenario: Scenario, store: RunStore, progress: Progress | None, *, fresh: bool) -> list[Run]:
    """Return the twin's runs with each draw of the times of starts."""
    runs: list[Run] = []
    for draw in range(DRAWS):

        def told(label: str, share: float, draw: int = draw) -> None:
            if progress is not None:
                progress(label, (draw + share) / DRAWS)

        asked = with_overrides(scenario, [f"cluster.emulation.draw={draw}"])
        runs += run_scenario(asked, store, jobs=1, fresh=fresh, progress=told)
    return runs


def compared(scenario: Scenario, twins: Sequence[Run], real: Sequence[Run]) -> list[Compared]:
    """Return the comparison of the runs of both backends. Variants and policies that one of them has not run
    are left out."""
    rows: dict[str, dict[str, Compared]] = {}
    variants = {_key(spec.resolved()): (spec.variant, spec.policy.text) for spec in expand(scenario)}
    groups: dict[tuple[str, str], tuple[list[Run], list[Run]]] = {}
    for place, runs in enumerate((twins, real)):
        for run in runs:
            groups.setdefault(variants[_key(run.manifest["spec"])], ([], []))[place].append(run)
    for (variant, policy), (ours, theirs) in groups.items():
        if ours and theirs:
            rows.setdefault(variant, {})[policy] = Compared(
                variant,
                policy,
                ours[0].frame("jobs", ["job"]).shape[0],
                tuple(jct_s(run) for run in ours),
                tuple(jct_s(run) for run in theirs),
                float(np.mean([run.metrics["preemptions"] for run in ours])),
                float(np.mean([run.metrics["preemptions"] for run in theirs])),
                _starts_s(ours),
                _starts_s(theirs),
                _training_speed(theirs),
            )
    return [row for one in rows.values() for row in _placed(one)]


def _starts_s(runs: Sequence[Run]) -> float:
    return float(np.mean([run.frame("jobs", ["restart_s"])["restart_s"].mean() for run in runs]))


def _training_speed(runs: Sequence[Run]) -> float:
    known = [speed for run in runs if (speed := run.manifest.get("training_speed")) is not None]
    return float(np.mean(known)) if known else math.nan


def _placed(rows: Mapping[str, Compared]) -> list[Compared]:
    ours = sorted(rows, key=lambda policy: float(np.mean(rows[policy].twin_s)))
    theirs = sorted(rows, key=lambda policy: float(np.mean(rows[policy].testbed_s)))
    return [
        replace(row, twin_place=ours.index(policy) + 1, testbed_place=theirs.index(policy) + 1)
        for policy, row in rows.items()
    ]


def _key(spec: Mapping[str, Any]) -> str:
    """Return the question of a run, without seeds and draws. A key that a stored run does not name has its
    default."""
    asked = ClusterInput.model_validate(spec["cluster"])
    if asked.emulation is not None:
        asked = asked.model_copy(update={"emulation": asked.emulation.model_copy(update={"draw": 0})})
    cluster = asked.model_dump_json()
    policy = {key: spec["policy"].get(key) for key in ("name", "parameters")}
    return f"{json.dumps(policy, sort_keys=True)} {cluster}"


def asked_alike(run: Run, spec: RunSpec) -> bool:
    """Return whether a stored run answers the same question; its seed and its code may differ.

    The calibrated speeds of training may not, because the steps of a real job follow from them.
    """
    measured = {key: value["value"] for key, value in run.manifest["calibration"]["values"].items()}
    asked = {key: value.value for key, value in spec.calibration.values.items()}
    return _speeds(measured) == _speeds(asked) and _key(run.manifest["spec"]) == _key(spec.resolved())


def _speeds(values: Mapping[str, float]) -> dict[str, float]:
    return {key: value for key, value in values.items() if key.startswith(("training.", "machine.lost_"))}


def jct_s(run: Run) -> float:
    """Return the mean over the watched jobs of the time from submission to the end, s."""
    jobs = run.frame("jobs", ["submit_s", "finish_s", "watched"])
    return float((jobs["finish_s"] - jobs["submit_s"])[jobs["watched"]].mean())


def agree(rows: Sequence[Compared]) -> bool:
    """Return whether all mean JCTs agree, and whether the policies have the same order in every variant."""
    return all(row.agrees and row.twin_place == row.testbed_place for row in rows)


def spread(jcts_s: Sequence[float]) -> float:
    """Return the difference of the longest and the shortest mean JCT, relative to their mean; NaN for one."""
    return (max(jcts_s) - min(jcts_s)) / float(np.mean(jcts_s)) if len(jcts_s) > 1 else math.nan


_COLUMNS = (
    Column("variant", "Variant"), Column("policy", "Policy"), Column("jobs", "Jobs", decimals=0),
    Column("runs", "Real runs", decimals=0), Column("twin_s", "Twin JCT", "s", 0),
    Column("twin_spread", "Twin's spread", "1", 1, percent=True),
    Column("testbed_s", "Testbed JCT", "s", 0), Column("spread", "Own spread", "1", 1, percent=True),
    Column("error", "Error", "1", 1, percent=True),
    Column("training_speed", "Real training speed", "1", 0, percent=True),
    Column("places", "Place twin, testbed"),
    Column("verdict", "Verdict"),
)  # fmt: skip


def result(rows: Sequence[Compared]) -> Result:
    """Return the comparison as a table."""
    off = [row for row in rows if abs(row.training_speed - 1) > SPEED_LIMIT]
    notes = [
        f"{row.policy}{f' {row.variant}' if row.variant else ''}: the real jobs trained at "
        f"{row.training_speed:.0%} of the calibrated speed; measure this machine anew with --calibrate"
        for row in off
    ]
    return Result(_COLUMNS, tuple(_record(row) for row in rows), notes=(RULE, *notes))


def _record(row: Compared) -> Record:
    return {
        "variant": row.variant or "–", "policy": row.policy, "jobs": row.jobs, "runs": len(row.testbed_s),
        "twin_s": float(np.mean(row.twin_s)), "testbed_s": float(np.mean(row.testbed_s)),
        "twin_spread": spread(row.twin_s), "spread": spread(row.testbed_s),
        "error": row.error, "training_speed": row.training_speed,
        "places": f"{row.twin_place}, {row.testbed_place}",
        "verdict": "agrees" if row.agrees and row.twin_place == row.testbed_place else "outside",
    }  # fmt: skip
