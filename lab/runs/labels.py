"""Labels that distinguish runs: their policies and, where they differ, their conditions.

For: naming runs in tables and charts. Not for: comparing their figures (lab.runs.compare). Reads manifests
only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.runs.store import Run

_MOST_DIFFERENCES = 3
"""Number of conditions up to which a label lists them."""

_LONGEST_VALUE = 24
"""Number of characters up to which a label shows a condition's value whole."""


def labels(runs: Sequence[Run]) -> list[str]:
    """Return a label for each run: its policy and, if they differ, its name and conditions.

    A condition is named by the last part of its key if that is unique: `app=teastore` for `services.app`.
    Runs that differ only in the seed share a label. Runs of different calibrations or of different code do
    not, because a mean over them has no meaning. If more than three conditions differ, a label lists those in
    which its run differs from most others. If that does not distinguish the runs either, the label holds the
    run's id, unless name and policy are enough.
    """
    names = [str(run.manifest["name"]) for run in runs]
    known = [
        {"name": name, **conditions(run), "code": str(run.manifest["versions"].get("code_sha256", ""))[:8]}
        for name, run in zip(names, runs, strict=True)
    ]
    keys = dict.fromkeys(key for table in known for key in table if key != "name")
    differing = [key for key in keys if len({table.get(key) for table in known}) > 1]
    # The testbed's own code counts for its runs only, so that the backend tells it.
    told_by = {"code": "backend"} | {role: key for run in runs for role, key in run.kind.told_by.items()}
    for role, key in told_by.items():
        pairs = {(table.get(key), table.get(role)) for table in known}
        if role in differing and len(pairs) == len({words for words, _ in pairs}):
            differing.remove(role)
    ends = [key.rpartition(".")[2] for key in differing]
    short = {key: end if ends.count(end) == 1 else key for key, end in zip(differing, ends, strict=True)}
    told = [differing for _ in runs]
    if len(differing) > _MOST_DIFFERENCES:
        usual = {key: Counter(table.get(key) for table in known).most_common(1)[0][0] for key in differing}
        told = [[key for key in differing if table.get(key) != usual[key]] for table in known]
    texts = [
        " ".join([run.policy, *(f"{short[key]}={_shortened(table.get(key, 'none'))}" for key in keys)])
        for run, table, keys in zip(runs, known, told, strict=True)
    ]
    full = [
        (run.policy, *(table.get(key) for key in differing)) for run, table in zip(runs, known, strict=True)
    ]
    if max(map(len, told)) > _MOST_DIFFERENCES or len(set(zip(texts, full, strict=True))) > len(set(texts)):
        texts = [run.policy for run in runs]
        if len(set(zip(names, full, strict=True))) > len(set(zip(names, texts, strict=True))):
            texts = [f"{run.policy} {run.id.rpartition('-')[2]}" for run in runs]
    if len(set(names)) == 1:
        return texts
    return [f"{name} {text}" for name, text in zip(names, texts, strict=True)]


def conditions(run: Run) -> dict[str, str]:
    """Return the conditions of the run besides policy, seed and name: dotted key → value as text."""
    spec = {
        key: value for key, value in run.manifest["spec"].items() if key not in ("policy", "seed", "name")
    }
    table = dict(_flat(spec, ""))
    table |= {source["role"]: source["sha256"][:8] for source in run.manifest["inputs"]}
    calibration = run.manifest["calibration"]
    table["calibration"] = f"{calibration['name']}@{calibration['sha256'][:8]}"
    table["backend"] = str(run.manifest["backend"])
    return table


def _shortened(value: str) -> str:
    """Return the value without spaces, because spaces separate a label's conditions, and cut if it is
    long.
    """
    text = value.replace(" ", "")
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _flat(table: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)
