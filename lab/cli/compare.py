"""`twinbed compare` and `twinbed report`: stored runs beside each other, and as one HTML file.

For: the options of both verbs. Not for: the table, which lab.api makes, or the page (lab.runs.report).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lab.cli.options import (
    Format,
    FormatOption,
    NoProgressOption,
    StoreOption,
    argument,
    emit,
    open_store,
    option,
)

RunsArgument = Annotated[list[str], argument("RUN…", "Run ids, or beginnings of ids that fit one run only.")]


def compare(
    runs: RunsArgument,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Compare stored runs. Runs that differ in the seed alone become a mean with its 95 % interval."""
    from lab import api

    emit(api.compare(*runs, store=store).result, form)


def report(
    runs: RunsArgument,
    html: Annotated[Path, option("FILE", "The file to write. A file that exists is replaced.")] = Path(
        "report.html"
    ),
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    _no_progress: NoProgressOption = False,
) -> None:
    """Write stored runs as one HTML file that needs no network."""
    from lab.runs.files import check_place
    from lab.runs.formats import Column, Result
    from lab.runs.report import document
    from twinbed.writing import write_bytes

    check_place(html)
    runs_store = open_store(store)
    text = document([runs_store.open(run) for run in runs])
    size = write_bytes(html, text.encode())
    columns = (Column("report", "Report"), Column("runs", "Runs"), Column("bytes", "Size", "bytes"))
    emit(Result(columns, ({"report": str(html), "runs": len(runs), "bytes": size},)), form)
