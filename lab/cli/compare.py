"""`twinbed compare`: stored runs beside each other.

For: the verb's options; lab.runs.compare makes the table.
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
    """Compare stored runs; runs that differ in the seed alone become a mean with its 95 % interval."""
    del no_progress
    from lab.runs.compare import as_result

    kept = open_store(store)
    emit(as_result([kept.open(each) for each in runs]), form)
