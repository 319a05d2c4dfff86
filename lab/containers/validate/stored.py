"""Finds cells among stored runs: runs of both backends that answer the same question.

For: the page "Validation", which reads stored runs only. Not for: making cells (both.py).
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
    """Return every policy and variant that both backends have run, by the scenario's name, in the order of
    making.

    Runs belong together if all that they depend on is the same except backend, seed and repeat. Seeds that
    only one backend has run are left out.
    """
    pairs: dict[str, _Pair] = {}
    for run in sorted(runs, key=lambda run: str(run.manifest["created_at"])):
        pair = pairs.setdefault(_question(run), _Pair())
        (pair.testbed if run.manifest["backend"] == "testbed" else pair.twin).append(run)
    made = [_cell(pair) for pair in pairs.values()]
    return sorted((cell for cell in made if cell is not None), key=lambda cell: cell.scenario)


def _question(run: Run) -> str:
    spec = {key: value for key, value in run.manifest["spec"].items() if key != "seed"}
    contents = [source["sha256"] for source in run.manifest["inputs"]]
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
