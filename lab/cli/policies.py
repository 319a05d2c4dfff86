"""`twinbed policies`: lists every policy with its parameters, from the settings themselves.

For: the verb. Not for: the policies (control.allocator) or the reference page (lab.cli.reference_pages).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, emit
from lab.runs.formats import Column, Record, Result, Value
from twinbed import ScenarioError

_COLUMNS = (
    Column("policy", "Policy"),
    Column("parameter", "Parameter"),
    Column("default", "Default"),
    Column("unit", "Unit"),
    Column("range", "Range"),
    Column("why", "Why this default"),
)
_FOR_PEOPLE = (
    Column("full", "Parameter"),
    Column("default", "Default"),
    Column("range", "Range"),
    Column("meaning", "Unit — why this default"),
)


def policies(
    name: Annotated[str | None, typer.Argument(help="Only this policy. Default: all of them.")] = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """List the policies and their parameters: unit, default, range, and the reason for the default."""
    del no_progress
    from control.allocator import POLICIES

    if name is not None and name not in POLICIES:
        raise ScenarioError(f"no policy {name!r}; there are {', '.join(sorted(POLICIES))}")
    chosen = [name] if name is not None else sorted(POLICIES)
    rows = tuple(row for policy in chosen for row in _rows(policy, POLICIES[policy][0]))
    if form in (Format.JSON, Format.CSV):
        emit(Result(_COLUMNS, rows), form)
        return
    readable = tuple(
        row | {"full": f"{row['policy']}.{row['parameter']}", "meaning": f"{row['unit']} — {row['why']}"}
        for row in rows
        if row["parameter"] is not None
    )
    emit(Result(_FOR_PEOPLE, readable, notes=_notes(rows)), form)


def _notes(rows: Sequence[Record]) -> tuple[str, ...]:
    bare = [f"{row['policy']} has no parameters." for row in rows if row["parameter"] is None]
    for row in rows:
        if row["parameter"] is not None:
            policy, key, default = (row[column] for column in ("policy", "parameter", "default"))
            how = (
                f"Set a parameter after the policy's name, --policy {policy}:{key}={default}, or for a whole "
                f"scenario, --set {policy}.{key}={default}."
            )
            return (how, *bare)
    return tuple(bare)


def _rows(name: str, settings: type) -> list[dict[str, Value]]:
    """Returns one row per parameter. A policy without parameters has one row with its name only."""
    from dataclasses import fields

    rows: list[dict[str, Value]] = [
        {
            "policy": name,
            "parameter": spec.name,
            "default": _text(getattr(settings(), spec.name)),
            "unit": spec.metadata["unit"],
            "range": _range(spec.metadata["low"], spec.metadata["high"]),
            "why": spec.metadata["why"],
        }
        for spec in fields(settings)
    ]
    return rows or [dict.fromkeys((column.key for column in _COLUMNS), None) | {"policy": name}]


def _range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return "any"
    if high is None:
        return f"≥ {low:g}"
    return f"≤ {high:g}" if low is None else f"{low:g} to {high:g}"


def _text(value: object) -> str:
    """Returns a value as it is written after `--policy`."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
