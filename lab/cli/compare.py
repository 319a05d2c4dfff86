"""`twinbed compare`: stored runs beside each other.

For: the verb's options. Not for: the table, which lab.runs.compare makes.
"""

from __future__ import annotations

from typing import Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, StoreOption, emit, open_store

RunsArgument = Annotated[
    list[str], typer.Argument(metavar="RUN…", help="Run ids, or beginnings of them that fit one run only.")
]


def compare(
    runs: RunsArgument,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Compare stored runs. Runs that differ in the seed alone become a mean with its 95 % interval."""
    del no_progress
    from lab.runs.compare import as_result

    opened = open_store(store)
    emit(as_result([opened.open(run) for run in runs]), form)
