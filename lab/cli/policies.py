"""`twinbed policies`: lists, explains and checks shipped policies and the user's own.

For: the verbs. Not for: the policies (control), code of a user's own (twinbed.own), its checks (lab.check) or
the reference page (lab.cli.reference_pages).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from lab.cli.options import Backend, Format, FormatOption, NoProgressOption, argument, emit, option
from lab.runs.formats import Column, Record, Result, Value
from twinbed import ScenarioError

app = typer.Typer(help="List, explain and check policies, your own among them.", invoke_without_command=True)

_LISTED = (
    Column("sort", "Sort"),
    Column("name", "Name"),
    Column("about", "Description"),
    Column("from", "From"),
)
_COLUMNS = (
    Column("policy", "Policy"),
    Column("parameter", "Parameter"),
    Column("default", "Default"),
    Column("unit", "Unit"),
    Column("range", "Range"),
    Column("why", "Reason for the default"),
)
_FOR_PEOPLE = (
    Column("full", "Parameter"),
    Column("default", "Default"),
    Column("range", "Range"),
    Column("meaning", "Unit — reason for the default"),
)


_FOUND = (Column("promise", "Promise"), Column("kept", "Kept"), Column("detail", "Detail"))

PolicyArgument = Annotated[
    str,
    argument(
        "NAME|FILE.py:CLASS(KEY=VALUE,…)",
        "A policy that ships or is installed, or a class in a file; its arguments are literals.",
    ),
]


@app.callback()
def policies(
    context: typer.Context, form: FormatOption = Format.TABLE, _no_progress: NoProgressOption = False
) -> None:
    """List all policies, recommenders, schedulers, spot policies and trace readers, installed ones too."""
    if context.invoked_subcommand is None:
        notes = ("Parameters: twinbed policies show NAME. Your own: docs/how-to/write-your-own-policy.md.",)
        emit(Result(_LISTED, tuple(_shipped()) + tuple(_installed()), notes=notes), form)


@app.command()
def show(
    name: Annotated[
        str | None, argument("[NAME|FILE.py:CLASS]", "The policy. Default: all policies for containers.")
    ] = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Explain the parameters of policies: unit, default, range, and the reason for the default."""
    from control.allocator import POLICIES
    from twinbed.own import PORTS, find

    mine = None if name is None else find(name, *PORTS)
    if mine is not None:
        rows = tuple(
            dict.fromkeys((column.key for column in _COLUMNS), None)
            | {"policy": mine.name, "parameter": key, "default": str(value)}
            for key, value in mine.parameters.items()
        )
        about = {PORTS[mine.group].title: mine.label, "about": mine.about, "code sha256": mine.sha256[:16]}
        emit(Result(_COLUMNS[:3], rows, facts=about), form)
        return
    if name is not None and name not in POLICIES:
        _show_other(name, form)
        return
    chosen = [name] if name is not None else sorted(POLICIES)
    rows = tuple(row for policy in chosen for row in _rows(policy, POLICIES[policy][0], ""))
    _explain(rows, "", form)


def _show_other(name: str, form: Format) -> None:
    """Explain a scheduler, a spot policy, a recommender or a trace reader that ships."""
    from control import scheduler
    from control.allocator import POLICIES

    listed = next((row for row in _shipped() if row["name"] == name), None)
    if listed is None:
        raise ScenarioError(
            f"no policy {name!r}; there are {', '.join(sorted(POLICIES))}; "
            "`twinbed policies` lists schedulers, spot policies, recommenders and trace readers, too"
        )
    facts: Record = {str(listed["sort"]): name, "about": listed["about"]}
    family = scheduler.POLICIES[name].family if listed["sort"] == "scheduler" else ""
    if family:
        place = f"cluster.settings.{family}"
        _explain(tuple(_rows(name, scheduler.SETTINGS[family], place)), place, form, facts)
    else:
        emit(Result(_COLUMNS, (), facts=facts, notes=(f"{name} has no parameters.",), nothing=""), form)


def _explain(rows: Sequence[dict[str, Value]], place: str, form: Format, facts: Record | None = None) -> None:
    """Print the parameters. place: key of a scenario below which they are; "": the policy's name."""
    if form in (Format.JSON, Format.CSV):
        emit(Result(_COLUMNS, tuple(rows), facts=facts or {}), form)
        return
    readable = tuple(
        row
        | {"full": f"{place or row['policy']}.{row['parameter']}", "meaning": f"{row['unit']} — {row['why']}"}
        for row in rows
        if row["parameter"] is not None
    )
    emit(Result(_FOR_PEOPLE, readable, facts=facts or {}, notes=_notes(rows, place)), form)


@app.command()
def check(
    name: PolicyArgument,
    backend: Annotated[
        Backend,
        option("|".join(Backend), "Where containers run under it in the last check; testbed needs root."),
    ] = Backend.TWIN,
    sample: Annotated[Path | None, option("FILE", "File that a trace reader reads.")] = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Check that code keeps the promises of its sort. The exit code is 1 if a promise is broken.

    A policy's limits are checked on generated histories, and containers run under it on the twin or on this
    machine. Your own schedulers, spot policies and recommenders are checked on generated questions.
    """
    from dataclasses import asdict

    from lab.ask.policy import parse
    from lab.check import checking
    from lab.cli.progress import Bar
    from twinbed.own import PORTS, find

    mine = find(name, *PORTS)
    with Bar(1, wanted=not no_progress) as bar:
        if mine is None:
            found = checking.policy(parse(name), backend.value, bar)
        else:
            found = checking.check(mine, backend.value, bar, sample)
    rows = tuple(asdict(finding) | {"kept": "yes" if finding.kept else "NO"} for finding in found)
    emit(Result(_FOUND, rows, facts={"policy": name if mine is None else mine.label}), form)
    if not all(finding.kept for finding in found):
        raise typer.Exit(1)


def _shipped() -> Iterator[Record]:
    """Yield the shipped code, sort by sort."""
    from control import allocator, market, recommender, scheduler
    from traces.load import FORMATS

    tables: dict[str, dict[str, str]] = {
        "policy": {key: _first(make.__doc__) for key, (_, make) in allocator.POLICIES.items()},
        "scheduler": {key: row.about for key, row in scheduler.POLICIES.items()},
        "spot policy": {key: about for key, (_, about) in market.POLICIES.items()},
        "recommender": recommender.METHODS,
        "trace reader": {key: reader.description for key, reader in FORMATS.items()},
    }
    for sort, table in tables.items():
        for name, about in table.items():
            yield {"sort": sort, "name": name, "about": about, "from": "twinbed"}


def _installed() -> Iterator[Record]:
    from twinbed.own import PORTS, installed

    for mine in installed():
        yield {"sort": PORTS[mine.group].title, "name": mine.name, "about": mine.about, "from": "entry point"}


def _first(doc: str | None) -> str:
    """Return the first sentence of a docstring's first paragraph."""
    return " ".join((doc or "").split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def _notes(rows: Sequence[Record], place: str) -> tuple[str, ...]:
    bare = [f"{row['policy']} has no parameters." for row in rows if row["parameter"] is None]
    for row in rows:
        if row["parameter"] is not None:
            policy, key, default = (row[column] for column in ("policy", "parameter", "default"))
            how = (
                f"Set a parameter with --set {place}.{key}={default}."
                if place
                else f"Set a parameter after the policy's name, --policy {policy}:{key}={default}, or for a "
                f"whole scenario, --set {policy}.{key}={default}."
            )
            return (how, *bare)
    return tuple(bare)


def _rows(name: str, settings: type, place: str) -> list[dict[str, Value]]:
    """Return one row per parameter, or one with the name only if there are none. place: as in `_explain`."""
    from dataclasses import fields

    rows: list[dict[str, Value]] = [
        {
            "policy": name,
            "parameter": spec.name,
            "default": _text(getattr(settings(), spec.name), place),
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


def _text(value: object, place: str) -> str:
    """Return a value as it is written after `--set`. place: as in `_explain`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value)) if place else "/".join(map(str, value))
    return str(value)
