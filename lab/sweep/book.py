"""The book of a sweep: its runs and their metrics, stored beside the runs.

For: resuming a sweep, its final compacted table, and the sweeps and tunings that the explorer shows. Not for:
choosing the next run. New rows are written in parts; when the sweep ends they become one table,
`metrics.parquet`, or one per shard. If a row is lost, its run is only read again.
"""

from __future__ import annotations

import io
import json
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import pandas as pd
import pyarrow as pa

from lab.runs.formats import Value
from lab.runs.metric import Metric, censored_key
from lab.runs.shelf import FolderShelf, Shelf
from lab.runs.store import RunStore
from lab.sweep.plan import SweepPlan
from twinbed import StoreError

_EVERY_S, _EVERY_ROWS = 5.0, 2_000
"""Age, s, and number of rows at which a part is written. More often would lose less at a kill, but make more
files."""


_ABOUT = ("cell", "seed", "run", "seconds")


def flags(metrics: Sequence[Metric]) -> dict[str, str]:
    """Return the column of the flag for a lower bound → the metric, for each metric that may be a bound."""
    return {censored_key(metric.key): metric.key for metric in metrics if metric.may_be_bound}


class Book:
    """Rows of a sweep: cell, seed, run (its id), seconds (of its unit), a column per metric, and `flags`."""

    def __init__(self, plan: SweepPlan, store: RunStore) -> None:
        self._shelf: Shelf = store.shelf(f".sweeps/{plan.id}")
        self._plan, self._suffix = plan, plan.shard.name
        metrics = plan.kind.metrics()
        self._columns = [*_ABOUT, *(metric.key for metric in metrics), *flags(metrics)]
        self._rows: list[dict[str, Any]] = []
        self._parts: list[str] = []
        self._old = pd.DataFrame(columns=self._columns)
        self._new: list[dict[str, Any]] = []
        self._written_s = time.monotonic()

    def read(self) -> pd.DataFrame:
        """Return all rows of this sweep, those of other shards included, and keep those of this shard."""
        parts = f"part{self._suffix}."
        own, others = [self._old], [self._old]
        for name, frame in _tables(self._shelf, self._columns, (parts, f"metrics{self._suffix}.")):
            is_own = name.startswith((parts, f"metrics{self._suffix}."))
            (own if is_own else others).append(frame)
            if name.startswith(parts):
                self._parts.append(name)
        self._old = together(own)
        return together([*others, self._old])

    def forget(self) -> None:
        """Remove the rows that this shard wrote before."""
        for name in self._shelf.names():
            if name.startswith(
                (f"part{self._suffix}.", f"metrics{self._suffix}.", f"failures{self._suffix}.")
            ):
                self._shelf.remove(name)

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows. They are written at the first call after _EVERY_S, or when there are _EVERY_ROWS."""
        self._new += rows
        self._rows += rows
        if len(self._new) >= _EVERY_ROWS or time.monotonic() - self._written_s > _EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are not written yet."""
        self._written_s = time.monotonic()
        if self._new:
            name = f"part{self._suffix}.{secrets.token_hex(8)}.parquet"
            self._shelf.write(name, _parquet(pd.DataFrame(self._new, columns=self._columns)))
            self._parts.append(name)
            self._new = []

    def tidy(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows with the plan's columns for their cells: parameters × metrics × seed."""
        return tidied(rows, self._plan.keys, self._plan.labels)

    def finish(self, failures: pd.DataFrame) -> None:
        """Write this shard's compacted table and its failures, and remove the parts."""
        frame = together([self._old, pd.DataFrame(self._rows, columns=self._columns)])
        self._shelf.write(f"metrics{self._suffix}.parquet", _parquet(self.tidy(frame)))
        self._shelf.write(f"failures{self._suffix}.csv", failures.to_csv(index=False).encode())
        for name in self._parts:
            self._shelf.remove(name)
        self._parts, self._new = [], []


def tidied(rows: pd.DataFrame, keys: Sequence[str], labels: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return rows of a book with the labels of their cells. labels: the keys' values and policy by cell."""
    about = [{**label, "cell": number} for number, label in enumerate(labels)]
    labelled = pd.DataFrame(about).merge(rows, on="cell").sort_values(["cell", "seed"], ignore_index=True)
    metrics = [name for name in rows if name not in _ABOUT]
    return labelled[[*keys, "policy", "seed", "run", *metrics, "seconds", "cell"]]


def together(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all frames, each cell and seed once."""
    full = [frame for frame in frames if len(frame)] or list(frames[:1])
    frame = pd.concat(full, ignore_index=True).drop_duplicates(["cell", "seed"], keep="last")
    return frame.sort_values(["cell", "seed"], ignore_index=True)


def _tables(
    shelf: Shelf, columns: list[str], own: tuple[str, ...] = ()
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name and the rows of each table of a sweep. own: beginnings of the names of this process's
    tables; another process may put its tables together at any moment, and then the new table is read."""
    seen: set[str] = set()
    while new := [name for name in shelf.names() if name not in seen]:
        seen.update(new)
        for name in new:
            if name.startswith(("part", "metrics")) and name.endswith(".parquet"):
                try:
                    yield name, _rows(shelf.read(name), columns)
                except StoreError:
                    if name.startswith(own):
                        raise


def _rows(content: bytes, columns: list[str]) -> pd.DataFrame:
    """Return the rows in a file's content; none if it is damaged, because their runs can be read again."""
    with suppress(pa.ArrowException, OSError, KeyError):
        return pd.read_parquet(io.BytesIO(content))[columns]
    return pd.DataFrame(columns=columns)


def _parquet(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    write_parquet(frame, buffer)
    return buffer.getvalue()


def write_parquet(frame: pd.DataFrame, file: BinaryIO) -> None:
    """Write rows as Parquet. The values of a key that has numbers and words are written as text."""
    mixed = [key for key in frame if len({isinstance(value, str) for value in frame[key]}) > 1]
    frame.astype(dict.fromkeys(mixed, "str")).to_parquet(file, index=False)


_FOLDER, _FILE = ".sweeps", "plan.json"
_AnyNote = TypeVar("_AnyNote")


@dataclass(frozen=True, slots=True)
class Noted:
    """The question of a sweep, as the store has it.

    id: id of its plan.
    title: title of its scenario.
    kind: name of its row in lab.kinds.
    keys: varied keys.
    labels: the keys' values and policy by cell.
    seeds: number of seeds.
    """

    id: str
    title: str
    kind: str
    keys: Sequence[str]
    labels: Sequence[dict[str, Any]]
    seeds: int


@dataclass(frozen=True, slots=True)
class Course:
    """Progress of a sweep.

    frame: one row per point, policy and seed, as in Swept.
    failures: as in Swept.
    whole: whether no process makes runs of it: no part exists beside its compacted tables.
    """

    frame: pd.DataFrame
    failures: pd.DataFrame
    whole: bool


def note(plan: SweepPlan, store: RunStore) -> None:
    """Store the question of a sweep."""
    scenario = plan.points[0].scenario
    told = Noted(
        plan.id, scenario.title or plan.name, plan.kind.name, plan.keys, plan.labels, len(plan.seeds)
    )
    store.shelf(f"{_FOLDER}/{plan.id}").write(_FILE, json.dumps(asdict(told)).encode())


def sweeps(root: Path) -> list[Noted]:
    """Return the sweeps of the store in a folder, the one begun last first."""
    return _notes(root, f"{_FOLDER}/*/{_FILE}", Noted)


def course(root: Path, sweep: Noted, metrics: Sequence[str]) -> Course:
    """Return the progress of a sweep. metrics: keys of its kind's metrics."""
    shelf = FolderShelf(root / _FOLDER / sweep.id)
    columns = [*_ABOUT, *metrics]
    names, failures = shelf.names(), [pd.DataFrame()]
    for name in names:
        if name.startswith("failures") and name.endswith(".csv"):
            with suppress(StoreError):  # It was removed in the meantime.
                failures.append(pd.read_csv(io.BytesIO(shelf.read(name))))
    whole = any(name.startswith("metrics") for name in names)
    whole = whole and not any(name.startswith("part") for name in names)
    rows = together([pd.DataFrame(columns=columns), *(frame for _, frame in _tables(shelf, columns))])
    frame, failed = tidied(rows, sweep.keys, sweep.labels), pd.concat(failures)
    if len(failed):
        # A run that failed in one process may have succeeded in a later one.
        done = set(_places(frame, sweep.keys))
        failed = failed[[place not in done for place in _places(failed, sweep.keys)]]
    return Course(frame, failed, whole)


def _places(rows: pd.DataFrame, keys: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the point, policy and seed of each row. Numbers are numbers, whatever else their column has."""
    about = rows.reindex(columns=[*keys, "policy", "seed"])
    numbers = about.apply(pd.to_numeric, errors="coerce").astype(object)
    return list(numbers.where(numbers.notna(), about.astype(str)).itertuples(index=False, name=None))


def prune(store: RunStore) -> int:
    """Remove the notes of sweeps and tunings all of whose runs are gone, and return their number; of a store
    in a folder.

    One without any run stays, because it may have just begun.
    """
    there, gone = set(store.names()), 0
    for book in (store.root / _FOLDER).glob("*"):  # also those of tunings, which are not noted as sweeps
        made = {run for _, rows in _tables(FolderShelf(book), ["run"]) for run in rows["run"]}
        if made and not made & there:
            shutil.rmtree(book, ignore_errors=True)
            gone += 1
    for tuning in tunings(store.root):
        if tuning.runs and not there.intersection(tuning.runs):
            store.shelf(_TUNINGS).remove(f"{tuning.id}.json")
            gone += 1
    return gone


@dataclass(frozen=True, slots=True)
class Tuning:
    """Progress of a tuning, in words; lab.sweep.tuned stores it after each batch of trials.

    id: id of its question.
    title: title of its scenario.
    aim: the metric that is optimised, and its limits.
    done, trials: number of finished trials, and of all.
    ended: whether the best trial was run with other seeds, or no trial kept the limits.
    header, lines: the table of the best trial and the Pareto front.
    notes: sentences on how certain the result is.
    axes: titles of the metric and of the first limit's metric; empty without a limit.
    points: for each trial with all seeds the means of both, its values, and whether it is on the front.
    runs: ids of all its runs.
    keys: whether the logarithm of a key is searched, by key.
    heading: title of the metric, with its unit.
    tried: for each trial that did not fail its values, the metric's mean and half its interval (None: one
    seed), and what became of it.
    """

    id: str
    title: str
    aim: str
    done: int
    trials: int
    ended: bool
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    notes: Sequence[str]
    axes: Sequence[str]
    points: Sequence[tuple[float, float, str, bool]]
    runs: Sequence[str] = ()
    keys: Mapping[str, bool] = field(default_factory=dict)
    heading: str = ""
    tried: Sequence[tuple[Sequence[Value], float, float | None, str]] = ()


_TUNINGS = ".tunings"


def note_tuning(tuning: Tuning, store: RunStore) -> None:
    """Store the progress of a tuning."""
    store.shelf(_TUNINGS).write(f"{tuning.id}.json", json.dumps(asdict(tuning)).encode())


def tunings(root: Path) -> list[Tuning]:
    """Return the tunings of the store in a folder, the one with the latest progress first."""
    return _notes(root, f"{_TUNINGS}/*.json", Tuning)


def _notes(root: Path, pattern: str, kind: type[_AnyNote]) -> list[_AnyNote]:
    found = []
    for file in sorted(root.glob(pattern), key=_begun, reverse=True):
        try:
            found.append(kind(**json.loads(file.read_bytes())))
        except (OSError, ValueError, TypeError):
            continue  # The file was removed in the meantime, or it is no note of ours.
    return found


def _begun(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
