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
"""Number of differing conditions up to which a label lists them."""


def labels(runs: Sequence[Run]) -> list[str]:
    """Return what tells each run from the others: its policy and, where they differ, name and conditions.

    A condition is called by the last part of its key where that is clear: `app=teastore` for
    `services.app`. Runs that differ in the seed alone share a label. Runs that differ in more than three
    conditions are told apart by name and run id instead.
    """
    names = [str(run.manifest["name"]) for run in runs]
    known = [{"name": name, **conditions(run)} for name, run in zip(names, runs, strict=True)]
    keys = dict.fromkeys(key for table in known for key in table if key != "name")
    differing = [key for key in keys if len({table.get(key) for table in known}) > 1]
    told_by = {role: key for run in runs for role, key in run.kind.told_by.items()}
    for role, key in told_by.items():
        pairs = {(table.get(key), table.get(role)) for table in known}
        if role in differing and len(pairs) == len({words for words, _ in pairs}):
            differing.remove(role)
    if len(differing) > _MOST_DIFFERENCES:
        texts = [f"{run.policy} {run.id.rsplit('-', 1)[-1]}" for run in runs]
    else:
        ends = [key.rpartition(".")[2] for key in differing]
        short = {key: end if ends.count(end) == 1 else key for key, end in zip(differing, ends, strict=True)}
        texts = [
            " ".join([run.policy, *(f"{short[key]}={table.get(key, 'none')}" for key in differing)])
            for run, table in zip(runs, known, strict=True)
        ]
    if len(set(names)) == 1:
        return texts
    return [f"{name} {text}" for name, text in zip(names, texts, strict=True)]


def conditions(run: Run) -> dict[str, str]:
    """Return what determined the run besides policy, seed and name: dotted key → value as text."""
    spec = {
        key: value for key, value in run.manifest["spec"].items() if key not in ("policy", "seed", "name")
    }
    table = dict(_flat(spec, ""))
    table |= {source["role"]: source["sha256"][:8] for source in run.manifest["inputs"]}
    table["backend"] = str(run.manifest["backend"])
    return table


def _flat(table: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)
