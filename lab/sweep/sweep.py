"""Carries out a sweep: runs every unit on an engine, and stores its rows when it ends.

For: `sweep`. Not for: the units (plan.py) or showing the result (result.py, page.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lab.engine.ports import Engine, Outcome
from lab.engine.running import run as carry_out
from lab.runs.metric import censored_key
from lab.runs.runner import make, units
from lab.runs.store import RunStore
from lab.sweep.book import Book, flags, note
from lab.sweep.plan import SweepPlan
from lab.sweep.rules import Until
from twinbed import StoreError

Told = Callable[[int, int, int], None]
"""told(done, failed, all): number of units that ended, of rows of failures, and of all units."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a sweep.

    frame: one row per point, policy and seed: the keys that vary, policy, seed, run, metrics, KEY_censored
        for metrics that may be bounds (whether the value is a lower bound), seconds.
    failures: one row per point, policy and seed that failed: the keys that vary, policy, seed, reason.
    left_out: number of units that the stop rule made unnecessary.
    """

    plan: SweepPlan
    frame: pd.DataFrame
    failures: pd.DataFrame
    left_out: int


def sweep(
    plan: SweepPlan,
    store: RunStore,
    engine: Engine,
    *,
    resume: bool = False,
    noted: bool = True,
    until: Until | None = None,
    told: Told | None = None,
) -> Swept:
    """Make all runs of a sweep and return their table. If a unit fails, its policies are made one by one;
    those that fail then do not stop the others, unless the store refused their runs: StoreError.

    resume: reuse runs in the store. noted: store the question, so that the explorer shows the sweep's
    progress. until: make no further seeds of a point whose interval is narrow enough. KeyboardInterrupt and a
    lost engine pass through; finished runs stay in the store and in the sweep's book.
    """
    book = Book(plan, store)
    if noted:
        note(plan, store)
    course = _Course(plan, store, book, until)
    if resume:
        course.take(book.read(), set(store.names()))
    waiting = [(owners, seed) for point, seed in plan.units() if (owners := course.lacking(point, seed))]
    total, done, stale = len(waiting), 0, not resume
    wanted: Callable[[str], bool] = course.wanted
    try:
        while waiting:
            work = units([plan.specs(*unit) for unit in waiting], store, fresh=not resume)
            single: list[tuple[list[int], int]] = []
            with closing(carry_out(engine, work, make, wanted=wanted)) as outcomes:
                for outcome in outcomes:
                    if stale and outcome.error is None:
                        book.forget()  # An engine or a store that fails at once leaves the former table.
                        stale = False
                    owners, seed = waiting[outcome.number]
                    if outcome.error is None or len(owners) == 1:
                        course.note(owners, seed, outcome)
                    else:
                        _refuse_store(outcome.error)
                        single += [([owner], seed) for owner in owners]
                    done += 1
                    if told is not None:
                        told(done, len(course.failures), total + len(single))
            total, waiting, wanted = total + len(single), single, _always
    finally:
        book.flush()
    if stale:
        book.forget()  # Every unit failed.
    failures = pd.DataFrame(course.failures, columns=[*plan.keys, "policy", "seed", "reason"])
    book.finish(failures)
    rows = book.read()
    frame = book.tidy(rows[rows["seed"].isin(plan.seeds)]).drop(columns="cell")
    return Swept(plan, frame, failures, total - done)


def _always(_group: str) -> bool:
    return True


def _refuse_store(error: Exception | None) -> None:
    """Raise the error if the store refused runs: it would refuse all."""
    if isinstance(error, StoreError):
        raise error


class _Course:
    """The progress of a sweep."""

    def __init__(self, plan: SweepPlan, store: RunStore, book: Book, until: Until | None) -> None:
        self._plan, self._store, self._book, self._until = plan, store, book, until
        self._has: set[tuple[int, int]] = set()
        self._values: dict[int, list[float]] = {}
        self.failures: list[dict[str, Any]] = []

    def take(self, rows: pd.DataFrame, there: set[str]) -> None:
        """Count rows of an earlier sweep with these seeds whose runs are still in the store."""
        for row in rows[rows["run"].isin(there) & rows["seed"].isin(self._plan.seeds)].to_dict("records"):
            self._count({str(key): value for key, value in row.items()})

    def lacking(self, point: int, seed: int) -> list[int]:
        """Return the cells of a unit whose runs are not in the store yet."""
        return [owner for owner in self._plan.owned[point] if (owner, seed) not in self._has]

    def wanted(self, point: str) -> bool:
        """Return whether a point, given by its number, needs more seeds."""
        until = self._until
        return until is None or not all(
            until.met(self._values.get(owner, [])) for owner in self._plan.owned[int(point)]
        )

    def note(self, owners: Sequence[int], seed: int, outcome: Outcome[list[str]]) -> None:
        """Record the end of a unit of these cells; one that failed has a single cell. Raises StoreError."""
        if outcome.error is not None:
            _refuse_store(outcome.error)
            reason = " ".join(str(outcome.error).split()) or type(outcome.error).__name__
            cells = [self._plan.cells[number] for owner in owners for number in self._plan.sharers[owner]]
            self.failures += [
                {
                    **self._plan.points[cell.point].values,
                    "policy": cell.policy,
                    "seed": seed,
                    "reason": reason,
                }
                for cell in cells
            ]
            return
        made = self._store.open_all(outcome.done or [])
        bounds = flags(self._plan.kind.metrics())
        rows = [
            {"cell": cell, "seed": seed, "run": run.id, "seconds": outcome.seconds, **run.metrics}
            | {flag: key in run.censored for flag, key in bounds.items()}
            for owner, run in zip(owners, made, strict=True)
            for cell in self._plan.sharers[owner]
        ]
        for row in rows:
            self._count(row)
        self._book.add(rows)

    def _count(self, row: dict[str, Any]) -> None:
        self._has.add((row["cell"], row["seed"]))
        if self._until is None or row.get(censored_key(self._until.metric)):
            return  # A lower bound says nothing about the width of an interval.
        value = row[self._until.metric]
        if not math.isnan(value):
            self._values.setdefault(row["cell"], []).append(value)
