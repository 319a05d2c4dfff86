"""What tells runs apart: their policies and, where they differ, their conditions.

For: naming runs in tables and charts. Not for: comparing their figures (lab.runs.compare). Reads manifests
only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.runs.store import Run

_MOST_DIFFERENCES = 3
_TOLD_BY = {"trace": "name", "application": "services.app", "arrivals": "services.arrivals"}
"""Roles of inputs, each told apart by its content, and the condition that says the same in words."""


def labels(runs: Sequence[Run]) -> list[str]:
    """What tells each run from the others: its policy and, where they differ, name and conditions.

    A condition is called by the last part of its key where that is clear: `app=teastore` of `services.app`.
    Runs that differ in the seed alone share a label. Conditions that differ in more than three keys are told
    apart by name and run id instead.
    """
    names = [str(run.manifest["name"]) for run in runs]
    found = [{"name": name, **conditions(run)} for name, run in zip(names, runs, strict=True)]
    keys = dict.fromkeys(key for each in found for key in each if key != "name")
    differing = [key for key in keys if len({each.get(key) for each in found}) > 1]
    for role, key in _TOLD_BY.items():
        pairs = {(each.get(key), each.get(role)) for each in found}
        if role in differing and len(pairs) == len({said for said, _ in pairs}):
            differing.remove(role)
    if len(differing) > _MOST_DIFFERENCES:
        texts = [f"{run.policy} {run.id.rsplit('-', 1)[-1]}" for run in runs]
    else:
        ends = [key.rpartition(".")[2] for key in differing]
        short = {key: end if ends.count(end) == 1 else key for key, end in zip(differing, ends, strict=True)}
        texts = [
            " ".join([run.policy, *(f"{short[key]}={each.get(key, 'none')}" for key in differing)])
            for run, each in zip(runs, found, strict=True)
        ]
    if len(set(names)) == 1:
        return texts
    return [f"{name} {text}" for name, text in zip(names, texts, strict=True)]


def conditions(run: Run) -> dict[str, str]:
    """What determined the run besides policy, seed and name: dotted key → value as text."""
    spec = {
        key: value for key, value in run.manifest["spec"].items() if key not in ("policy", "seed", "name")
    }
    flat = dict(_flatten(spec, ""))
    flat |= {each["role"]: each["sha256"][:8] for each in run.manifest["inputs"]}
    flat["backend"] = str(run.manifest["backend"])
    return flat


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)
