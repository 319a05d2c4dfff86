"""`twinbed runs`: lists, shows, removes, exports and queries stored runs.

For: the verbs' options and tables. Not for: the store itself (lab.runs.store).
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, StoreOption, emit, open_store
from lab.runs.formats import Column, Result

app = typer.Typer(help="List, show, remove, export and query stored runs.", no_args_is_help=True)

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run id, or the beginning of one if no other run begins so.")
]
_LISTED = ("id", "policy", "seed", "created_at", "problem")


class TableName(StrEnum):
    """The tables of a run that are short enough to read."""

    SUMMARY = "summary"
    CONTAINERS = "containers"
    EVENTS = "events"


@app.command("list")
def list_(
    store: StoreOption = None, form: FormatOption = Format.TABLE, no_progress: NoProgressOption = False
) -> None:
    """List all runs, newest first. JSON and CSV include their metrics."""
    del no_progress
    opened = open_store(store)
    frame = opened.list()
    if form in (Format.TABLE, Format.MARKDOWN):
        frame = frame[[column for column in _LISTED if column != "problem" or frame[column].any()]]
    emit(from_frame(frame, {"store": str(opened.root), "runs": len(frame)}), form)


@app.command()
def show(
    run: RunArgument,
    table: Annotated[
        TableName, typer.Option("--table", metavar="|".join(TableName), help="The table to show.")
    ] = TableName.SUMMARY,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Show the conditions and the results of a run. The exit code is 1 if its files differ from its
    manifest."""
    del no_progress
    from dataclasses import replace

    from lab.runs.compare import summary

    opened = open_store(store).open(run)
    manifest, kind = opened.manifest, opened.kind
    problems = opened.verify()
    about = {
        "run": opened.id,
        "policy": ", ".join(f"{key}={value}" for key, value in _parameters(manifest).items()),
        **kind.facts([opened]),
        **{
            source["role"]: f"{source['source']} (SHA-256 {source['sha256'][:16]}…)"
            for source in manifest["inputs"]
        },
        "made": f"{manifest['created_at']} by twinbed {manifest['versions']['twinbed']}",
        "directory": str(opened.path),
    }
    notes = (*(f"PROBLEM: {problem}" for problem in problems), *kind.remarks([opened]), *kind.notes([opened]))
    shown = summary(opened) if table is TableName.SUMMARY else from_frame(opened.frame(table.value), {})
    emit(replace(shown, facts=about, notes=notes), form)
    if problems:
        raise typer.Exit(1)


@app.command()
def rm(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Runs to remove.")],
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Remove runs. If one of them does not exist, none is removed."""
    del no_progress
    opened = open_store(store)
    ids = list(dict.fromkeys(opened.open(run).id for run in runs))
    for run_id in ids:
        opened.remove(run_id)
    emit(Result((Column("removed", "Removed"),), tuple({"removed": run_id} for run_id in ids)), form)


@app.command()
def export(
    run: RunArgument,
    path: Annotated[Path, typer.Argument(help="A new directory, or a zip file if the name ends in .zip.")],
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Copy a run out of the store, as a directory or as a zip file."""
    del no_progress
    kept = open_store(store)
    opened = kept.open(run)
    target = kept.export(opened.id, path)
    columns = (Column("run", "Run"), Column("path", "Exported to"))
    emit(Result(columns, ({"run": opened.id, "path": str(target)},)), form)


@app.command()
def query(
    sql: Annotated[
        str,
        typer.Argument(
            help="SQL over the tables runs, summary, containers, events, periods, requests (runs with "
            "clients), "
            "outages and series (fabrics). All but the first have a column `run`."
        ),
    ],
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Ask all stored runs a question in SQL (DuckDB)."""
    del no_progress
    answer = open_store(store).query(sql)
    for problem in answer.problems:
        typer.echo(f"left out: {problem}", err=True)
    emit(from_frame(answer.frame, {}), form)


def from_frame(frame: Any, facts: dict[str, str | int]) -> Result:
    """Return a pandas DataFrame as a result, with its column names as keys and headings."""
    columns = tuple(Column(str(name), str(name)) for name in frame.columns)
    return Result(columns, tuple(_record(row) for row in frame.to_dict("records")), facts)


def _record(row: dict[Any, Any]) -> dict[str, str | int | float | bool | None]:
    """Return a row in Python's own types: NumPy scalars unpacked, missing values None, times as text."""
    import pandas as pd

    record: dict[str, str | int | float | bool | None] = {}
    for key, value in row.items():
        plain = value.item() if hasattr(value, "item") else value
        if not isinstance(plain, list | dict) and pd.isna(plain):
            plain = None
        record[str(key)] = (
            plain if plain is None or isinstance(plain, str | int | float | bool) else str(plain)
        )
    return record


def _parameters(manifest: Any) -> dict[str, object]:
    policy = manifest["spec"]["policy"]
    return {"name": policy["name"], **policy["parameters"]}
