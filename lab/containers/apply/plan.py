"""The changes of an apply: each quantity of each container, its old and new value, and the reason.

For: the dry run's table, and the list that is carried out. Not for: carrying it out (carrying.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab.containers.advise.model import Advice, Row
from lab.containers.apply.ports import Places, Target
from lab.runs.formats import Column, Result, Value
from testbed.containers.attach.limits import MARGIN_BYTES
from testbed.containers.ports import GroupGoneError
from twinbed.files import MIB

Amount = float | Literal["none"]
"""A value as files have it."""

MEMORY_LIMIT = "memory_limit_bytes"

_TITLES = {
    "cpu_request_cores": "CPU request",
    "cpu_limit_cores": "CPU limit",
    "memory_request_bytes": "memory request",
    "memory_limit_bytes": "memory limit",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One quantity of one container.

    row: name of the advice's row
    target: full name of the container
    quantity: a key of advise.model.Setting
    found: value in force, cores or bytes, math.inf = no limit
    wanted: value to put in force
    reason: reason for the change
    refused: why it is not carried out; "": it is
    """

    row: str
    target: str
    quantity: str
    found: float
    wanted: float
    reason: str
    refused: str = ""

    @property
    def lowers(self) -> bool:
        """Whether the change lowers a limit."""
        return self.wanted < self.found


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """The changes of an apply, refused ones among them, and notes on rows without changes."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...]

    @property
    def to_do(self) -> tuple[Change, ...]:
        """The changes that are carried out."""
        return tuple(change for change in self.changes if not change.refused)

    @property
    def refused(self) -> tuple[Change, ...]:
        """The changes that are not carried out."""
        return tuple(change for change in self.changes if change.refused)


def chosen(advice: Advice, *, include_care: bool) -> list[Row]:
    """Return the rows to apply."""
    verdicts = ("apply", "care") if include_care else ("apply",)
    return [row for row in advice.rows if row.verdict in verdicts]


def make(
    advice: Advice, rows: Sequence[Row], meant: Mapping[str, Sequence[str]], places: Places
) -> ApplyPlan:
    """Return the plan for the rows and their containers. Raises BackendError where a container cannot be
    read."""
    changes: list[Change] = []
    notes = [*_left(advice, rows)]
    unset: set[str] = set()
    kept: set[str] = set()
    for row in rows:
        if not meant.get(row.name):
            notes.append(f"{row.name}: no container here is of this row; name it with --map {row.name}=NAME")
        of_row: list[Change] = []
        for name in meant.get(row.name, ()):
            try:
                target = places.target(name)
                of_row += _changes(row, target, unset, kept)
            except GroupGoneError as error:
                notes.append(f"{row.name}: {error}")
        changes += _fitting(row, of_row, places)
    for quantities, why in (
        (unset, "is for a scheduler and is not set here."),
        (kept, "stays, because a cluster removes none from a running pod; patch the workload's template."),
    ):
        if quantities:
            notes.append(f"{', '.join(sorted(_TITLES[quantity] for quantity in quantities))}: {why}")
    return ApplyPlan(tuple(changes), tuple(notes))


def table(plan: ApplyPlan, action: str = "to set") -> Result:
    """Return the plan for people and programs. action: what became of the changes that are not refused."""
    rows = tuple(_record(change, action) for change in plan.changes)
    columns = (
        Column("row", "row"), Column("container", "container"), Column("quantity", "quantity"),
        Column("unit", "unit"), Column("current", "current", digits="decimals"),
        Column("new", "new", digits="decimals"), Column("action", "action"), Column("reason", "reason"),
    )  # fmt: skip
    return Result(columns, rows, notes=plan.notes, nothing="no changes")


def worded(value: float) -> Amount:
    """Return a value as files have it: "none" for no limit."""
    return "none" if math.isinf(value) else value


def _record(change: Change, action: str) -> dict[str, Value]:
    memory = change.quantity.endswith("_bytes")
    scale = MIB if memory else 1
    current, new = (
        value if isinstance(value, str) else value / scale
        for value in (worded(change.found), worded(change.wanted))
    )
    return {
        "row": change.row, "container": change.target, "quantity": _TITLES[change.quantity],
        "unit": "MiB" if memory else "cores", "current": current, "new": new,
        "action": "refused" if change.refused else action, "reason": change.refused or change.reason,
        "decimals": 0 if memory else 3,
    }  # fmt: skip


def _changes(row: Row, target: Target, unset: set[str], kept: set[str]) -> list[Change]:
    """Return the changes of a container. Quantities are added to `unset` that cannot be set at its place, and
    to `kept` those whose limit cannot be removed there."""
    now = target.read()
    changes = []
    for quantity in _TITLES:
        advised = getattr(row.advised, quantity)
        if advised is None:
            continue
        if quantity not in now:
            unset.add(quantity)
            continue
        wanted = target.settled(quantity, math.inf if advised == "none" else float(advised))
        if advised == "none" and not math.isinf(wanted):
            kept.add(quantity)
        if wanted != now[quantity]:
            reason = row.cpu_limit_reason if quantity == "cpu_limit_cores" else ""
            changes.append(
                Change(row.name, target.name, quantity, now[quantity], wanted, reason or row.reason)
            )
    return changes


def _fitting(row: Row, changes: list[Change], places: Places) -> list[Change]:
    """Refuse the whole row if a memory limit would not leave room for the present use."""
    for change in changes:
        if change.quantity != MEMORY_LIMIT:
            continue
        floor = places.target(change.target).floor_bytes()
        if change.wanted < floor:
            why = (
                f"{row.name}: {change.target} needs at least {floor / MIB:.0f} MiB now, "
                f"{MARGIN_BYTES // MIB} MiB or a tenth of its use left free"
            )
            return [replace(change, refused=why) for change in changes]
    return changes


def _left(advice: Advice, rows: Sequence[Row]) -> list[str]:
    taken = {row.name for row in rows}
    left = [row for row in advice.rows if row.name not in taken]
    careful = sum(row.verdict == "care" for row in left)
    notes = []
    if len(left) > careful:
        notes.append(f"Rows left unchanged, as advised: {len(left) - careful}.")
    if careful:
        notes.append(f"Rows to be applied with care, left out: {careful}; add them with --include-care.")
    return notes
