"""Tags of a store's runs, sizes of runs, and removal of runs to make room.

For: `twinbed runs tag`, `du` and `prune`. Not for: refusing runs that have no room (lab.runs.quota).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from lab.runs.publishing import ELSEWHERE_S
from lab.runs.store import RunStore
from twinbed import ScenarioError, StoreError

_SHELF = ".tags"
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")


class Tags:
    """The tags of a store, kept in the store."""

    def __init__(self, store: RunStore) -> None:
        self._shelf = store.shelf(_SHELF)

    def all(self) -> Mapping[str, list[str]]:
        """Return the sorted tags of each run that has any, by the run's id."""
        table: dict[str, list[str]] = {}
        for name in self._shelf.names():
            tag, _, run_id = name.partition("@")
            table.setdefault(run_id, []).append(tag)
        return table

    def add(self, run_id: str, tag: str) -> None:
        """Give a run a tag. Idempotent. Raises ScenarioError if the text cannot be a tag."""
        if not _TAG.fullmatch(tag):
            raise ScenarioError(
                f"tag {tag!r}: expected at most 40 letters, digits, '_', '-' or '.', a letter or digit first"
            )
        self._shelf.write(f"{tag}@{run_id}", b"\n")

    def remove(self, run_id: str, tag: str) -> None:
        """Remove a tag from a run. Raises ScenarioError if the run does not have it."""
        present = self.all().get(run_id, [])
        if tag not in present:
            raise ScenarioError(f"run {run_id}: no tag {tag!r}; it has {', '.join(present) or 'none'}")
        self._shelf.remove(f"{tag}@{run_id}")

    def forget(self, *run_ids: str) -> None:
        """Remove all tags of runs that are removed."""
        for name in self._shelf.names():
            if name.partition("@")[2] in run_ids:
                self._shelf.remove(name)


def remove(store: RunStore, run_ids: Iterable[str]) -> None:
    """Remove runs with their tags. Raises StoreError for the first that cannot be removed; the former ones
    are gone."""
    tags = Tags(store)
    for run_id in run_ids:
        store.remove(run_id)
        tags.forget(run_id)


_SIZE = re.compile(r"(\d{1,15}(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB)")
_SIZE_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def size(text: str) -> int | None:
    """Return a size such as `50GiB`, bytes; None for `none`. Raises ScenarioError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None and text.strip() != "none":
        raise ScenarioError(f"{text}: expected a number and B, KiB, MiB, GiB or TiB, e.g. 50GiB, or none")
    return None if match is None else int(float(match[1]) * _SIZE_BYTES[match[2]])


def usage(store: RunStore) -> pd.DataFrame:
    """Return one row per scenario, the largest first: name, runs, bytes, oldest and newest (times of
    making)."""
    frame = _sized(store)
    groups = frame.groupby("name", sort=True)
    table = groups.agg(
        runs=("id", "size"),
        bytes=("bytes", "sum"),
        oldest=("created_at", "min"),
        newest=("created_at", "max"),
    )
    return table.reset_index().sort_values(["bytes", "name"], ascending=[False, True], ignore_index=True)


@dataclass(frozen=True, slots=True)
class Collected:
    """Removed objects. runs: ids; bytes: their size; leftovers: number of leftovers of dead writers."""

    runs: tuple[str, ...]
    bytes: int
    leftovers: int


def collect(
    store: RunStore, keep: int | None, older_s: float | None, *, keep_tagged: bool = False
) -> Collected:
    """Remove runs, and leftovers of writers that died more than a day ago.

    keep: this many newest runs of each scenario stay. older_s: runs made within this time stay. keep_tagged:
    runs with a tag stay. A run is removed if none of these rules keeps it; without keep and older_s, no run
    is removed. Runs that cannot be read stay, for people to examine. Runs that another process removes
    meanwhile are not counted.
    """
    frame = _sized(store)
    made = _made(frame["created_at"])
    goes = pd.Series(keep is not None or older_s is not None, index=frame.index)
    if keep is not None:
        newest_first = frame.assign(made=made).sort_values("made", ascending=False)
        goes &= newest_first.groupby("name").cumcount().reindex(frame.index) >= keep
    if older_s is not None:
        goes &= age_s(frame["created_at"]) > older_s
    tags = Tags(store)
    if keep_tagged:
        goes &= ~frame["id"].isin(tags.all())
    removed: dict[str, int] = {}
    try:
        for run_id, size_bytes in frame[goes][["id", "bytes"]].itertuples(index=False):
            try:
                store.remove(run_id)
            except StoreError:
                if store.has(run_id):
                    raise
            else:
                removed[run_id] = int(size_bytes)
    finally:
        tags.forget(*removed)
    return Collected(tuple(removed), sum(removed.values()), store.sweep(ELSEWHERE_S))


def age_s(created_at: pd.Series[str]) -> pd.Series[float]:
    """Return the age of runs by the times at which they were made, s; NaN if unknown."""
    return (pd.Timestamp.now(tz="UTC") - _made(created_at)).dt.total_seconds()


def _made(created_at: pd.Series[str]) -> pd.Series[pd.Timestamp]:
    return pd.to_datetime(created_at, utc=True, format="ISO8601")


def _sized(store: RunStore) -> pd.DataFrame:
    """Return id, name, created_at and bytes of every healthy run."""
    frame = store.list()
    return frame[frame["problem"] == ""][["id", "name", "created_at", "bytes"]].reset_index(drop=True)
