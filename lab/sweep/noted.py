"""Sweeps as the store has them, while they go on and afterwards.

For: the explorer, which reads the store only. Not for: making sweeps (sweep.py) or going
on with one (book.py).
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lab.runs.shelf import FolderShelf
from lab.runs.store import RunStore
from lab.sweep.book import tidied, together
from lab.sweep.plan import Plan
from twinbed import StoreError

_FOLDER, _FILE = ".sweeps", "plan.json"


@dataclass(frozen=True, slots=True)
class Noted:
    """What a sweep asks.

    id: of its plan; title: of its scenario; kind: name of its row in lab.kinds; keys: those that vary
    labels: the keys' values and policy by cell; seeds: number of them
    """

    id: str
    title: str
    kind: str
    keys: Sequence[str]
    labels: Sequence[dict[str, Any]]
    seeds: int


@dataclass(frozen=True, slots=True)
class Course:
    """How far a sweep is.

    frame: one row per point, policy and seed, as Swept has it; failures: as Swept has them
    whole: whether nobody is making runs of it: no part lies beside its compacted tables
    """

    frame: pd.DataFrame
    failures: pd.DataFrame
    whole: bool


def note(plan: Plan, store: RunStore) -> None:
    """Write down what a sweep asks."""
    scenario = plan.points[0].scenario
    told = Noted(
        plan.id, scenario.title or plan.name, plan.kind.name, plan.keys, plan.labels, len(plan.seeds)
    )
    store.shelf(f"{_FOLDER}/{plan.id}").write(_FILE, json.dumps(asdict(told)).encode())


def sweeps(root: Path) -> list[Noted]:
    """Return the sweeps of the store in a folder, the one begun last first."""
    files = sorted((root / _FOLDER).glob(f"*/{_FILE}"), key=_begun, reverse=True)
    found = []
    for file in files:
        try:
            found.append(Noted(**json.loads(file.read_bytes())))
        except (OSError, ValueError, TypeError):
            continue  # It was removed in the meantime, or is no note of ours.
    return found


def course(root: Path, sweep: Noted, metrics: Sequence[str]) -> Course:
    """Return how far a sweep is. metrics: keys of its kind's metrics."""
    shelf = FolderShelf(root / _FOLDER / sweep.id)
    columns = ["cell", "seed", "run", "seconds", *metrics]
    frames, failures = [pd.DataFrame(columns=columns)], [pd.DataFrame()]
    names = shelf.names()
    for name in names:
        try:
            if name.startswith(("part", "metrics")) and name.endswith(".parquet"):
                frames.append(pd.read_parquet(io.BytesIO(shelf.read(name)))[columns])
            elif name.startswith("failures") and name.endswith(".csv"):
                failures.append(pd.read_csv(io.BytesIO(shelf.read(name))))
        except StoreError:
            continue  # A part that became one table in the meantime; the next look has its rows.
    whole = any(name.startswith("metrics") for name in names)
    whole = whole and not any(name.startswith("part") for name in names)
    rows = together(frames)
    return Course(tidied(rows, sweep.keys, sweep.labels), pd.concat(failures), whole)


def _begun(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
