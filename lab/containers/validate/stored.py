"""Cells found among stored runs: those of both backends that answer the same question.

For: the Validation page, which reads runs and nothing else. Not for: making them (both.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from lab.containers.validate.both import Cell, judged
from lab.runs.store import Run


@dataclass(slots=True)
class _Pair:
    twin: list[Run] = field(default_factory=list)
    testbed: list[Run] = field(default_factory=list)


def cells(runs: Sequence[Run]) -> list[Cell]:
    """Every policy and variant that both backends have run, by scenario's name, in the order of their making.

    Runs belong together when all that they depend on, but for backend, seed and repeat, is the same; seeds
    that only one backend has run are left out.
    """
    found: dict[str, _Pair] = {}
    for run in sorted(runs, key=lambda run: str(run.manifest["created_at"])):
        pair = found.setdefault(_question(run), _Pair())
        (pair.testbed if run.manifest["backend"] == "testbed" else pair.twin).append(run)
    made = [_cell(pair) for pair in found.values()]
    return sorted((each for each in made if each is not None), key=lambda each: each.scenario)


def _question(run: Run) -> str:
    spec = {key: value for key, value in run.manifest["spec"].items() if key != "seed"}
    contents = [each["sha256"] for each in run.manifest["inputs"]]
    return json.dumps([spec, contents, run.manifest["calibration"]["sha256"]], sort_keys=True)


def _cell(pair: _Pair) -> Cell | None:
    seeds = {run.seed for run in pair.twin} & {run.seed for run in pair.testbed}
    twin = [run for run in pair.twin if run.seed in seeds]
    testbed = [run for run in pair.testbed if run.seed in seeds]
    if not seeds:
        return None
    manifest = twin[0].manifest
    variant = str(manifest["workload"].get("arrivals", ""))
    return judged(str(manifest["name"]), variant, twin[0].policy, twin, testbed)
