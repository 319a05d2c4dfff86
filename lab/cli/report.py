"""`twinbed report`: stored runs as one HTML file that explains itself.

For: the verb's options and writing the file whole or not at all; lab.report makes its text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lab.cli.compare import RunsArgument
from lab.cli.options import Format, FormatOption, NoProgressOption, StoreOption, emit, open_store


def report(
    runs: RunsArgument,
    html: Annotated[
        Path, typer.Option("--html", metavar="FILE", help="The file to write; one that is there is replaced.")
    ] = Path("report.html"),
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Write a report: comparison, charts, notes and parameters in one HTML file that needs no network."""
    del no_progress
    from lab.files import write_whole
    from lab.formats import Column, Record, Result
    from lab.report import document

    kept = open_store(store)
    opened = [kept.open(each) for each in runs]
    text = document(opened)
    size = write_whole(html, lambda file: file.write(text.encode()))
    columns = (Column("report", "Report"), Column("runs", "Runs"), Column("bytes", "Size", "bytes"))
    row: Record = {"report": str(html), "runs": len(opened), "bytes": size}
    emit(Result(columns, (row,)), form)
