"""`twinbed runs`: the run store from the command line.

For: listing, showing, removing, exporting and querying runs; lab.runs.store does the work.
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
    str, typer.Argument(metavar="RUN", help="A run id, or a beginning of it that fits one run only.")
]
_LISTED = ("id", "policy", "seed", "created_at", "problem")


class TableName(StrEnum):
    """The tables of a run that are short enough to be read."""

    SUMMARY = "summary"
    CONTAINERS = "containers"
    EVENTS = "events"


@app.command("list")
def list_(
    store: StoreOption = None, form: FormatOption = Format.TABLE, no_progress: NoProgressOption = False
) -> None:
    """List all runs, newest first; JSON and CSV have their metrics too."""
    del no_progress
    kept = open_store(store)
    frame = kept.list()
    if form in (Format.TABLE, Format.MARKDOWN):
        columns = [each for each in _LISTED if each != "problem" or frame[each].any()]
        frame = frame[columns]
    emit(from_frame(frame, {"store": str(kept.root), "runs": len(frame)}), form)


@app.command()
def show(
    run: RunArgument,
    table: Annotated[
        TableName, typer.Option("--table", metavar="|".join(TableName), help="Which of its tables.")
    ] = TableName.SUMMARY,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Show what determined a run and what came of it; exit code 1 if its files differ from its manifest."""
    del no_progress
    from dataclasses import replace

    from lab.runs.compare import facts, notes_of, remarks

    opened = open_store(store).open(run)
    manifest = opened.manifest
    problems = opened.verify()
    about = {
        "run": opened.id,
        "policy": ", ".join(f"{key}={value}" for key, value in _parameters(manifest).items()),
        **facts([opened]),
        **{each["role"]: f"{each['source']} (SHA-256 {each['sha256'][:16]}…)" for each in manifest["inputs"]},
        "made": f"{manifest['created_at']} by twinbed {manifest['versions']['twinbed']}",
        "directory": str(opened.path),
    }
    notes = (*(f"PROBLEM: {each}" for each in problems), *remarks([opened]), *notes_of([opened]))
    shown = _summary(opened) if table is TableName.SUMMARY else from_frame(opened.frame(table.value), {})
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
    """Remove runs; none is removed unless all of them are there."""
    del no_progress
    kept = open_store(store)
    ids = list(dict.fromkeys(kept.open(each).id for each in runs))
    for each in ids:
        kept.remove(each)
    emit(Result((Column("removed", "Removed"),), tuple({"removed": each} for each in ids)), form)


@app.command()
def export(
    run: RunArgument,
    path: Annotated[
        Path, typer.Argument(help="Where to: a new directory, or a zip file if it ends in .zip.")
    ],
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
            help="SQL over the tables runs, summary, containers, events, periods, of runs with clients "
            "requests, and of fabrics outages and series; all but the first have a column `run`."
        ),
    ],
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Ask all stored runs a question in SQL (DuckDB)."""
    del no_progress
    emit(from_frame(open_store(store).query(sql), {}), form)


def from_frame(frame: Any, facts: dict[str, str | int]) -> Result:
    """A pandas DataFrame as a result: its column names are keys and headings."""
    columns = tuple(Column(str(name), str(name)) for name in frame.columns)
    return Result(columns, tuple(_record(row) for row in frame.to_dict("records")), facts)


def _record(row: dict[Any, Any]) -> dict[str, str | int | float | bool | None]:
    """Python's own types: NumPy scalars unpacked, missing values None, times and the like as text."""
    import pandas as pd

    found: dict[str, str | int | float | bool | None] = {}
    for key, value in row.items():
        plain = value.item() if hasattr(value, "item") else value
        if not isinstance(plain, list | dict) and pd.isna(plain):
            plain = None
        found[str(key)] = (
            plain if plain is None or isinstance(plain, str | int | float | bool) else str(plain)
        )
    return found


def _summary(run: Any) -> Result:
    """The run's metrics with title, figure and unit, one per line."""
    from lab.containers.metrics import METRICS
    from lab.fabric.metrics import METRICS as FABRIC_METRICS

    currency = "" if run.of_fabric else run.manifest["spec"]["price"]["currency"]
    columns = (
        Column("metric", "Metric"),
        Column("title", "Title"),
        Column("value", "Value"),
        Column("unit", "Unit"),
    )
    rows = tuple(
        {
            "metric": metric.key,
            "title": metric.title,
            "value": run.metrics.get(metric.key),
            "unit": currency if metric.unit == "currency" else metric.unit,
        }
        for metric in (FABRIC_METRICS if run.of_fabric else METRICS)
    )
    return Result(columns, rows)


def _parameters(manifest: Any) -> dict[str, object]:
    policy = manifest["spec"]["policy"]
    return {"name": policy["name"], **policy["parameters"]}
