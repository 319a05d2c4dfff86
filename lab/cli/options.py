"""The options that verbs share, and what every verb does with its result.

For: `--format`, `--store`, `--no-progress`, `--set` and writing to standard output. Not for: any verb's
own work. Imports nothing heavy, so that `twinbed --help` answers at once.
"""

from __future__ import annotations

import os
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.runs.formats import DEFAULT_WIDTH, FORMATS, Result, table
from twinbed import BackendError, ScenarioError

if TYPE_CHECKING:
    from lab.runs.store import RunStore

CLOSED_PIPE_EXIT = 141
"""What a shell reports of a program that ended because its reader left (128 + SIGPIPE)."""


class Format(StrEnum):
    """How a result is written; one formatter each in lab.runs.formats."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


FormatOption = Annotated[
    Format,
    typer.Option("--format", metavar="|".join(Format), help="How the result is written to standard output."),
]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="DIRECTORY",
        help="Directory of the runs. Default: $TWINBED_STORE, else ~/.local/share/twinbed/runs.",
        show_default=False,
    ),
]
NoProgressOption = Annotated[
    bool, typer.Option("--no-progress", help="No progress bar on standard error, even on a terminal.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the scenario (machine.restart_s=5) or a policy's parameter (escra.kappa=0.5). "
        "Repeatable.",
        show_default=False,
    ),
]
TraceArgument = Annotated[
    str,
    typer.Argument(
        metavar="TRACE", help="A trace file, a public data set's folder, or a shipped recording's name."
    ),
]
TraceFormatOption = Annotated[
    str | None,
    typer.Option("--trace-format", metavar="NAME", help="The trace's format; recognised when left out."),
]
TraceOptionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trace-option",
        metavar="KEY=VALUE",
        help="An option of the format's reader, e.g. max_containers=100. Repeatable.",
        show_default=False,
    ),
]
SeedOption = Annotated[
    list[int] | None,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        help="Seed of the random numbers. Repeatable: the comparison then shows means and 95 % intervals.",
        show_default=False,
    ),
]


def open_store(root: Path | None) -> RunStore:
    """The run store that `--store` names."""
    from lab.runs.store import RunStore

    return RunStore(root)


def emit(result: Result, form: Format) -> None:
    """Writes a result to standard output: in full width and colour to a terminal, plain to anything else."""
    if form is Format.TABLE:
        width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
        write(table(result, width, color=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
    else:
        write(FORMATS[form](result))


def write(text: str) -> None:
    """Writes text to standard output; a reader that left (`| head`) ends the program without a word."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered must not fail once more when Python shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(CLOSED_PIPE_EXIT) from None
        raise BackendError(f"standard output: {error.strerror}") from None


def assignments(texts: list[str] | None, option: str) -> dict[str, str]:
    """`KEY=VALUE` texts as a mapping; ScenarioError for one that is not, and for a key given twice."""
    found: dict[str, str] = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ScenarioError(f"{option} {text}: expected KEY=VALUE")
        if key in found:
            raise ScenarioError(f"{option} {text}: {key} is given twice")
        found[key] = value
    return found
