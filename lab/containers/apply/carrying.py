"""Carries a plan out: canaries first, a watch after each step, and a roll-back of everything if something is
wrong.

For: the order of writes, and the state on disk before each of them. Not for: choosing changes (plan.py). The
values found are saved before the first change of each step. A value is restored only if it is between the
found and the wanted value: any other value was set by others meanwhile, and stays.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from lab.containers.apply.conditions import Condition, Figures
from lab.containers.apply.journal import ApplyState, Journal, Made, number
from lab.containers.apply.plan import ApplyPlan, Change, worded
from lab.containers.apply.ports import Places
from lab.containers.apply.watching import Watch
from testbed.containers.attach.audit import Audit
from testbed.containers.interrupts import Interrupts
from testbed.containers.ports import GroupGoneError
from twinbed import BackendError, TwinbedError

POLL_S = 1.0
"""Time between two checks of a watch, s."""


class Clock(Protocol):
    """Time as a watch needs it; the module `time` is one."""

    def monotonic(self) -> float:
        """Return the time, s."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The canary and the watch of a change.

    canary: share of the containers that are changed first, above 0, up to 1
    seconds: time for which each step is watched, s; 0: no watch
    conditions: conditions under which everything is taken back
    """

    canary: float = 1.0
    seconds: float = 0.0
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """The advice. path: path of its file; sha256: hash of the file's content."""

    path: str
    sha256: str


@dataclass(slots=True)
class Back:
    """Restored values. done: values that were restored; notes: values that could not be restored, with the
    reason, one sentence each.
    """

    done: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def worded(self) -> str:
        """What was put back, as a clause for a sentence."""
        return f"taken back, {'the rest' if self.notes else 'everything'} is as it was"


class Applier:
    """Applies plans at `places`.

    journal: the state needed to take changes back. audit: record of all actions.
    on_progress: function called with the current action and the progress, 0 to 1. figures: its counters.
    back: what the last `take_back` did.
    """

    def __init__(
        self,
        journal: Journal,
        audit: Audit,
        places: Places,
        on_progress: Callable[[str, float], None] = lambda _label, _fraction: None,
        clock: Clock = time,
    ) -> None:
        self._journal, self._audit, self._places = journal, audit, places
        self._on_progress, self._clock = on_progress, clock
        self.figures = Figures()
        self.back = Back()

    def apply(self, plan: ApplyPlan, source: Source, watched: Watched) -> str | None:
        """Carry the plan out. Return why it was taken back, or None if it is in force.

        Raises the error of a write, and KeyboardInterrupt, after everything was restored.
        """
        steps = steps_of(plan.to_do, watched.canary)
        if not steps:
            return None
        path = self._journal.next()
        state = ApplyState(
            phase="carrying",
            kind=self._places.kind,
            advice=source.path,
            sha256=source.sha256,
            changes=[],
            records={},
        )
        with Interrupts() as interrupts:
            try:
                why = self._carry(path, steps, state, watched)
            except BaseException as error:
                interrupts.shield()
                self.take_back(path, state, str(error) or "interrupted")
                if isinstance(error, TwinbedError):
                    said = "; ".join([str(error), self.back.worded, *self.back.notes])
                    raise BackendError(said) from error
                raise
            interrupts.shield()
            if why is not None:
                self._note("abort", state, why=why)
                self.take_back(path, state, why)
                return why
            self._journal.save(path, state.model_copy(update={"phase": "applied"}))
            self._note("end", state)
        return None

    def take_back(self, path: Path, state: ApplyState, why: str) -> Back:
        """Restore the values that an apply changed, cuts first, and forget it. Idempotent, even after an
        interruption.

        Values that could not be restored stay in the file. Raises BackendError for the first of them.
        """
        back = self.back = Back()
        left: list[Made] = []
        problems: list[TwinbedError] = []
        for made in sorted(
            state.changes, key=lambda made: _turn(made.quantity, number(made.found) < number(made.wanted))
        ):
            try:
                self._put_back(made, state, why, back)
            except GroupGoneError as error:
                back.notes.append(f"{made.target}: no longer exists, nothing to restore ({error})")
            except TwinbedError as error:
                left.append(made)
                problems.append(error)
        if problems:
            self._journal.save(path, state.model_copy(update={"changes": left}))
            raise BackendError(
                f"{len(left)} limits could not be restored ({problems[0]}); try again: twinbed apply --undo"
            ) from problems[0]
        self._journal.drop(path)
        return back

    def recover(self) -> Back | None:
        """Take back the changes of a killed apply; None if there is none. The caller holds the journal's
        lock."""
        path = self._journal.newest()
        if path is None or (state := self._journal.load(path)).phase != "carrying":
            return None
        if state.kind != self._places.kind:
            raise BackendError(f"{path}: an apply to {state.kind} was killed; run twinbed apply --undo first")
        return self.take_back(path, state, "its apply was killed")

    # --- steps -----------------------------------------------------------------------------------

    def _carry(
        self, path: Path, steps: Sequence[Sequence[Change]], state: ApplyState, watched: Watched
    ) -> str | None:
        self._note("begin", state)
        of_target: dict[str, list[Change]] = {}

        def again(name: str) -> None:
            now = self._places.target(name).read()
            for change in of_target[name]:
                if now.get(change.quantity) != change.wanted:
                    self._set(change, state, "it was restarted and had lost the limit")

        watch = Watch(self._places, watched.conditions, again, self.figures.happened)
        for count, step in enumerate(steps, 1):
            label = "canaries" if count < len(steps) else "all"
            names = dict.fromkeys(change.target for change in step)
            for name in names:
                state.records[name] = self._places.target(name).record()
            state.changes.extend(map(Made.of, step))
            self._journal.save(path, state)
            for change in step:
                self._set(change, state)
                of_target.setdefault(change.target, []).append(change)
            if watched.seconds:
                watch.add(names)
                why = self._watch(watch, watched.seconds, label)
                if why is not None:
                    return why
        return None

    def _set(self, change: Change, state: ApplyState, why: str = "") -> None:
        target = self._places.target(change.target)
        if change.quantity == "memory_limit_bytes" and change.lowers:
            floor = target.floor_bytes()
            if change.wanted < floor:
                raise BackendError(f"{change.target}: its memory grew, it needs {floor:,} bytes; apply again")
        self._note(
            "set",
            state,
            container=change.target,
            row=change.row,
            quantity=change.quantity,
            before=worded(change.found),
            after=worded(change.wanted),
            why=why or change.reason,
        )
        target.set(change.quantity, change.wanted)

    def _watch(self, watch: Watch, seconds: float, label: str) -> str | None:
        began_s = self._clock.monotonic()
        while True:
            now_s = self._clock.monotonic()
            elapsed_s = now_s - began_s
            last = elapsed_s >= seconds
            self.figures.steps[label] = min(elapsed_s / seconds, 1.0)
            self._on_progress(f"watching {label}", self.figures.steps[label])
            why = watch.look(now_s, last=last)
            if why is not None or last:
                return why
            self._clock.sleep(min(POLL_S, seconds - elapsed_s))

    def _put_back(self, made: Made, state: ApplyState, why: str, back: Back) -> None:
        target = self._places.target(made.target)
        former, wanted = number(made.found), number(made.wanted)
        now = target.read().get(made.quantity, math.nan)
        if not min(former, wanted) <= now <= max(former, wanted):
            note = f"{made.target}: {made.quantity} is {worded(now)} now, set by others; left unchanged"
            self._note("leave", state, container=made.target, quantity=made.quantity, why=note)
            back.notes.append(note)
            return
        self._note(
            "put back",
            state,
            container=made.target,
            quantity=made.quantity,
            before=worded(now),
            after=made.found,
            why=why,
        )
        target.put_back(made.quantity, former, state.records[made.target])
        back.done += 1

    def _note(self, what: str, state: ApplyState, **said: str | float) -> None:
        self.figures.noted[what] += 1
        self._audit.note(what, by="apply", **said, advice=state.advice, sha256=state.sha256)


def steps_of(changes: Sequence[Change], canary: float) -> list[list[Change]]:
    """Return the changes in order: canaries, then the rest; in each part decreases before increases, with no
    request above its limit at any time.

    canary: share of the containers, rounded up. They are taken from all rows in turn.
    """
    by_row: dict[str, dict[str, None]] = {}
    for change in changes:
        by_row.setdefault(change.row, {})[change.target] = None
    turns = [name for turn in zip_longest(*by_row.values()) for name in turn if name is not None]
    first = set(turns[: math.ceil(canary * len(turns) - 1e-9)])
    parts = [[change for change in changes if (change.target in first) is early] for early in (True, False)]
    return [sorted(part, key=lambda change: _turn(change.quantity, change.lowers)) for part in parts if part]


def _turn(quantity: str, lowers: bool) -> int:
    """Return the turn of a change: requests are cut before limits, and limits are raised before requests."""
    is_limit = "limit" in quantity
    return int(is_limit) if lowers else 3 - int(is_limit)
