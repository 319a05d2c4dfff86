"""`twinbed runs`: lists, shows, explains, tags, removes, exports and queries stored runs.

For: the verbs' options and tables. Not for: the store itself (lab.runs.store).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from lab.cli.options import (
    Format,
    FormatOption,
    NoProgressOption,
    StoreOption,
    argument,
    emit,
    flag,
    open_store,
    option,
)
from lab.runs.formats import Column, Result
from twinbed import ScenarioError, StoreError
from twinbed.text import printable

app = typer.Typer(
    help="List, show, explain, tag, remove, export and query stored runs.", no_args_is_help=True
)

RunArgument = Annotated[str, argument("RUN", "A run id, or a unique beginning of one.")]
_LISTED = (
    Column("id", "Run"),
    Column("policy", "Policy"),
    Column("seed", "Seed", identifier=True),
    Column("created_at", "Made (UTC)"),
    Column("bytes", "Size", "bytes"),
    Column("tags", "Tags"),
    Column("problem", "Problem"),
)
"""Columns of the table for people."""
_TOTALS = (
    Column("name", "Scenario"),
    Column("runs", "Runs"),
    Column("bytes", "Size", "bytes"),
    Column("oldest", "Oldest (UTC)"),
    Column("newest", "Newest (UTC)"),
)
_IDENTIFIERS = frozenset(
    {"seed", "job", "server", "request", "parent", "period", "fault", "source", "destination", "uplink"}
)
"""Columns of runs' tables whose numbers are names."""
_SHOWN = 1_000
"""Largest number of runs in a table for people."""


@app.command("list")
def list_(
    tag: Annotated[str | None, option("NAME", "Only runs with this tag.")] = None,
    scenario: Annotated[str | None, option("NAME", "Only runs of this scenario.")] = None,
    policy: Annotated[
        str | None, option("NAME", "Only runs of this policy: escra, or with parameters static:factor=1.5.")
    ] = None,
    newer: Annotated[str | None, option("AGE", "Only runs made within this time: 12h, 30d.")] = None,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """List runs with their sizes and tags, newest first. JSON and CSV include their metrics.

    A run is listed if it passes all given filters.
    """
    from lab.ask.times import duration_s
    from lab.runs.upkeep import Tags, age_s

    most_s = None if newer is None else duration_s(newer, "--newer", zero=True)
    opened = open_store(store)
    frame, tags = opened.list(), Tags(opened).all()
    frame["tags"] = [" ".join(tags.get(run, ())) for run in frame["id"]]
    if tag is not None:
        frame = frame.loc[[tag in tags.get(run, ()) for run in frame["id"]]]
    if scenario is not None:
        frame = frame[frame["name"] == scenario]
    if policy is not None:
        frame = frame.loc[[policy in (text, str(text).split(":")[0]) for text in frame["policy"]]]
    if most_s is not None:
        frame = frame[age_s(frame["created_at"]) <= most_s]
    facts: dict[str, str | int] = {"store": opened.location, "runs": len(frame)}
    facts["bytes"] = int(frame["bytes"].sum())
    if form in (Format.TABLE, Format.MARKDOWN):
        if len(frame) > _SHOWN:
            # Formatting the table of many runs takes longer than listing the store.
            frame = frame.head(_SHOWN)
            facts["shown"] = f"the newest {_SHOWN:,}; --format csv has all"
        frame = frame.assign(created_at=_read_at(frame["created_at"]))
        emit(replace(from_frame(frame, facts), columns=_LISTED), form)
        return
    emit(from_frame(frame, facts), form)


@app.command()
def show(
    run: RunArgument,
    table: Annotated[
        str,
        option("NAME", "The table to show: summary, or another one of the run, such as containers or jobs."),
    ] = "summary",
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Show the conditions and the results of a run. The exit code is 1 if its files differ from its
    manifest."""
    from lab.runs.compare import summary, titled

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
    shown = summary(opened)
    if table != "summary":
        shown = from_frame(opened.frame(table), {})
        shown = replace(shown, columns=titled(opened, shown.columns))
    emit(replace(shown, facts=about, notes=notes), form)
    if problems:
        raise typer.Exit(1)


@app.command()
def explain(
    run: RunArgument,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Show the services for which the slowest 1 % of a run's requests waited, beside typical requests."""
    from lab.containers.run.waiting import explained

    emit(explained(open_store(store).open(run)), form)


@app.command()
def tag(
    run: RunArgument,
    name: Annotated[str, argument("NAME", "A word: letters, digits, '_', '-' and '.'.")],
    remove: Annotated[bool, flag("--remove", "Remove the tag from the run.")] = False,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Give a run a tag. Runs can be listed and kept by tag. A run may have several tags, and runs may share a
    tag.
    """
    from lab.runs.upkeep import Tags

    opened = open_store(store)
    run_id, tags = opened.open(run).id, Tags(opened)
    (tags.remove if remove else tags.add)(run_id, name)
    columns = (Column("run", "Run"), Column("tags", "Tags"))
    emit(Result(columns, ({"run": run_id, "tags": " ".join(tags.all().get(run_id, ()))},)), form)


@app.command()
def rm(
    runs: Annotated[list[str], argument("RUN…", "Runs to remove.")],
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Remove runs; a damaged one by its whole id. If one of them does not exist, none is removed."""
    from lab.runs.upkeep import remove

    opened = open_store(store)
    ids = list(dict.fromkeys(opened.whole_id(run) for run in runs))
    remove(opened, ids)
    emit(Result((Column("removed", "Removed"),), tuple({"removed": run_id} for run_id in ids)), form)


@app.command()
def export(
    run: RunArgument,
    path: Annotated[
        Path | None, argument("PATH", "A new directory, or a zip file if the name ends in .zip.")
    ] = None,
    perfetto: Annotated[
        Path | None,
        option(
            "FILE",
            "Write the run's timeline for ui.perfetto.dev or chrome://tracing instead. It is "
            "compressed if FILE ends in .gz.",
        ),
    ] = None,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Copy a run out of the store, as a directory or as a zip file, or write its timeline."""
    if (path is None) == (perfetto is None):
        raise ScenarioError("runs export takes either a PATH for the run's files or --perfetto FILE")
    kept = open_store(store)
    opened = kept.open(run)
    if perfetto is not None:
        emit(_timeline(opened, perfetto), form)
        return
    assert path is not None
    target = kept.export(opened.id, path)
    columns = (Column("run", "Run"), Column("path", "Exported to"))
    emit(Result(columns, ({"run": opened.id, "path": str(target)},)), form)


@app.command()
def query(
    sql: Annotated[
        str,
        typer.Argument(
            help="SQL over the tables runs, summary, containers, events, periods, requests, spans "
            "(containers), outages, series, bins, causes, accuracy (fabrics), jobs, queue, spans (clusters), "
            "spans, market, losses (spot machines). All but the first have a column `run`."
        ),
    ],
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Query all stored runs in SQL (DuckDB)."""
    answer = open_store(store).query(sql)
    for problem in answer.problems:
        typer.echo(f"left out: {printable(problem)}", err=True)
    emit(from_frame(answer.frame, {}, always=True), form)


@app.command()
def du(
    store: StoreOption = None, form: FormatOption = Format.TABLE, _no_progress: NoProgressOption = False
) -> None:
    """Show how much space the runs of every scenario take."""
    from lab.runs.upkeep import usage

    opened = open_store(store)
    frame, most = usage(opened), opened.quota.get()
    facts: dict[str, str | int] = {"store": opened.location, "bytes": int(frame["bytes"].sum())}
    facts |= {} if most is None else {"quota": most}
    if form in (Format.TABLE, Format.MARKDOWN):
        frame = frame.assign(oldest=_read_at(frame["oldest"]), newest=_read_at(frame["newest"]))
        emit(replace(from_frame(frame, facts), columns=_TOTALS), form)
        return
    emit(from_frame(frame, facts), form)


@app.command("gc", hidden=True)
@app.command()
def prune(
    keep: Annotated[int | None, option("N", "Keep the newest N runs of every scenario.", min=0)] = None,
    older: Annotated[str | None, option("AGE", "Remove only runs older than this: 12h, 30d.")] = None,
    keep_tagged: Annotated[
        bool, flag("--keep-tagged", "Keep runs that have a tag (twinbed runs tag).")
    ] = False,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Remove runs to make room, leftovers of dead writers, and, in a folder, notes of sweeps and tunings
    whose runs are gone. Without options, no run is removed.

    With both --keep and --older, a run is removed if it is old and not among the newest.
    """
    from lab.ask.times import duration_s
    from lab.runs.upkeep import collect
    from lab.sweep.book import prune as prune_sweeps

    least_s = None if older is None else duration_s(older, "--older", zero=True)
    opened = open_store(store)
    gone = collect(opened, keep, least_s, keep_tagged=keep_tagged)
    facts: dict[str, str | int] = {"store": opened.location, "runs": len(gone.runs), "bytes": gone.bytes}
    facts["leftovers"] = gone.leftovers + prune_sweeps(opened)
    emit(Result((Column("removed", "Removed"),), tuple({"removed": run} for run in gone.runs), facts), form)


@app.command()
def quota(
    size: Annotated[str, argument("SIZE", "Largest size of the store: 50GiB, or none.")],
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Limit the size of a store. A new run that would exceed it is refused; the others stay."""
    from lab.runs.upkeep import size as bytes_of

    most, opened = bytes_of(size), open_store(store)
    opened.quota.set(most)
    columns = (Column("store", "Store"), Column("quota", "Quota", "bytes"))
    emit(Result(columns, ({"store": opened.location, "quota": most},)), form)


def _timeline(run: Any, file: Path) -> Result:
    """Write a run's timeline, and return the result for the user."""
    from lab.runs import timeline

    about = {"run": run.id, "scenario": run.manifest["name"], "backend": run.manifest["backend"]}
    shown = run.kind.timeline(run)
    if problems := run.verify():
        raise StoreError(
            f"{problems[0]}; it was replaced meanwhile, or is damaged: export it again, or make it"
        )
    written = timeline.write(shown, file, about)
    columns = (
        Column("run", "Run"),
        Column("path", "Timeline"),
        Column("events", "Events"),
        Column("left_out", "Left out"),
    )
    row = {"run": run.id, "path": str(file), "events": written.events, "left_out": written.left_out}
    return Result(columns, (row,))


def _read_at(moments: Any) -> Any:
    """Return a Series of times in ISO 8601 in a form for people, to the minute."""
    return moments.astype(object).fillna("").astype(str).str[:16].str.replace("T", " ")


def from_frame(frame: Any, facts: dict[str, str | int], *, always: bool = False) -> Result:
    """Return a pandas DataFrame as a result, with its column names as keys and headings.

    always: people see columns without a value, too.
    """
    columns = tuple(
        Column(name, name, identifier=name in _IDENTIFIERS, always=always) for name in map(str, frame.columns)
    )
    return Result(columns, tuple(_record(row) for row in frame.to_dict("records")), facts)


def _record(row: dict[Any, Any]) -> dict[str, str | int | float | bool | None]:
    """Return a row in Python's own types: NumPy scalars unpacked, missing values None, times as text."""
    import pandas as pd

    record: dict[str, str | int | float | bool | None] = {}
    for key, value in row.items():
        plain = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(plain, list | dict) and pd.isna(plain):
            plain = None
        record[str(key)] = (
            plain if plain is None or isinstance(plain, str | int | float | bool) else str(plain)
        )
    return record


def _parameters(manifest: Any) -> dict[str, object]:
    policy = manifest["spec"]["policy"]
    return {"name": policy["name"], **policy["parameters"]}
