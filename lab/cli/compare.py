"""`twinbed compare`: stored runs beside each other.

For: the verb's options. Not for: the table, which lab.api makes.
"""

from __future__ import annotations

from typing import Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, StoreOption, emit

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
    from lab import api

    emit(api.compare(*runs, store=store).result, form)
