"""Options that verbs share, and the output of results.

For: `--format`, `--store`, `--no-progress`, `--set` and writing to standard output. Not for: the work of any
verb. The module imports nothing heavy, so that `twinbed --help` answers at once.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lab.cli import config, stdin
from lab.runs.formats import DEFAULT_WIDTH, FORMATS, Result, table
from twinbed import BackendError, ScenarioError
from twinbed.text import printable

if TYPE_CHECKING:
    from lab.ask.scenario import Scenario
    from lab.runs.store import RunStore

CLOSED_PIPE_EXIT = 141
"""Exit code that a shell reports for a program whose reader left (128 + SIGPIPE)."""


def option(metavar: str, text: str, *names: str, **more: Any) -> Any:
    """Return an option of a verb.

    metavar: placeholder of its value in the help. text: its help. names: its names, by default that of the
    parameter. more: further arguments of typer.Option.
    """
    return typer.Option(*names, metavar=metavar, help=text, **more)


def flag(name: str, text: str, **more: Any) -> Any:
    """Return an option of a verb without a value, or with values that its help describes. See `option`."""
    return typer.Option(name, help=text, **more)


def argument(metavar: str, text: str, **more: Any) -> Any:
    """Return an argument of a verb. See `option`."""
    return typer.Argument(metavar=metavar, help=text, **more)


class Format(StrEnum):
    """The form of a printed result. Each form has a formatter in lab.runs.formats."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


class Backend(StrEnum):
    """The backend that runs a scenario or checks a policy."""

    TWIN = "twin"
    TESTBED = "testbed"


FormatOption = Annotated[
    Format, option("|".join(Format), "How the result is written to standard output.", "--format")
]
StoreOption = Annotated[
    str | None,
    option(
        "STORE",
        "Directory in which runs are kept, or a URL: s3://BUCKET/PREFIX. Default: $TWINBED_STORE, else "
        "~/.local/share/twinbed/runs.",
        "--store",
        envvar=config.VARIABLES["store"],
        show_envvar=False,
    ),
]
NoProgressOption = Annotated[bool, flag("--no-progress", "Show no progress bar on standard error.")]
ScenarioArgument = Annotated[
    Path,
    typer.Argument(
        help="A scenario file (YAML), `-` for standard input, or the name of a shipped one; see "
        "docs/reference/scenario.md."
    ),
]
SetOption = Annotated[
    list[str] | None,
    option(
        "KEY=VALUE",
        "Change a key of the scenario (machine.restart_s=5) or a parameter of a policy "
        "(escra.kappa=0.5). Repeatable.",
        "--set",
    ),
]
TraceArgument = Annotated[
    str,
    argument(
        "TRACE",
        "A trace file, `-` for standard input, a public data set's folder, or a shipped recording's name.",
        callback=stdin.trace,
    ),
]
TraceFormatOption = Annotated[
    str | None,
    option("NAME", "Format of the trace, or your own reader; recognised when left out.", "--trace-format"),
]
TraceOptionOption = Annotated[
    list[str] | None,
    option(
        "KEY=VALUE",
        "An option of the format's reader, e.g. max_containers=100. Repeatable.",
        "--trace-option",
    ),
]
FillOption = Annotated[
    str | None,
    option(
        "hold|zero|linear",
        "How gaps of a CSV are filled: the value before, 0, or linear interpolation. "
        "Default: a gap is an error.",
        "--fill",
    ),
]
EngineOption = Annotated[
    str,
    option(
        "ENGINE",
        "Where runs of the twin are made: local (processes of this machine), dask (workers that Dask "
        "starts here), or a Dask scheduler, dask://HOST:PORT.",
        "--engine",
        envvar=config.VARIABLES["engine"],
    ),
]
JobsOption = Annotated[
    int | None,
    option("N", "Number of processes on this machine. Default: the number of CPUs.", "--jobs", min=1),
]
SeedOption = Annotated[
    list[int] | None,
    option(
        "N",
        "Seed of the random numbers. Repeatable; the comparison then shows means and 95 % intervals.",
        "--seed",
        min=0,
    ),
]
PriceOption = Annotated[
    str | None,
    option(
        "CPU,MEMORY[,CURRENCY]",
        "Price of a reserved core-hour and GiB-hour. Default: a public cloud's list price.",
        "--price",
    ),
]


def usable(value: float | None) -> float | None:
    """Return an option's number. Raises BadParameter for NaN, infinity and huge numbers."""
    from lab.ask.guard import MOST_NUMBER

    # `not <` holds for NaN as well.
    if value is not None and not abs(value) < MOST_NUMBER:
        raise typer.BadParameter(f"{value:g} is not a number below {MOST_NUMBER:.3g}")
    return value


def positive(value: float | None) -> float | None:
    """Return an option's number. Raises BadParameter for 0 and less, and as `usable` does."""
    usable(value)
    if value is not None and value <= 0:
        raise typer.BadParameter(f"{value:g} is not above 0")
    return value


def share(text: str, name: str, *, zero: bool = False) -> float:
    """Return `5%` or `0.05` as a share below 1. name: of the option. zero: whether 0 is allowed. Raises
    ScenarioError."""
    try:
        part = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        part = -1.0
    if not (0 < part < 1 or (zero and part == 0)):
        least = "of at least 0" if zero else "above 0"
        raise ScenarioError(f"{name} {text}: expected a share {least} and below 1, e.g. 5% or 0.05")
    return part


def open_store(location: str | None) -> RunStore:
    """Return the run store that `--store` names."""
    from lab.runs.stores import store_at

    return store_at(location)


def asked(scenario: Path, seeds: list[int] | None, assignments: list[str] | None) -> Scenario:
    """Return the scenario of a file with `--seed` and `--set` applied."""
    from lab.ask.scenario import load, with_overrides

    return with_overrides(load(scenario), [*([f"seeds={seeds}"] if seeds else []), *(assignments or [])])


def emit(result: Result, form: Format) -> None:
    """Write a result to standard output, in full width and colour if it is a terminal."""
    if form is Format.TABLE:
        width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
        write(table(result, width, color=sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
        return
    text = FORMATS[form](result)
    # A program gets every character; a terminal gets only those that cannot control it.
    write("\n".join(map(printable, text.split("\n"))) if sys.stdout.isatty() else text)


def write(text: str) -> None:
    """Write text to standard output. A reader that left (`| head`) ends the program without a message."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # The text that is still buffered must not fail again when Python shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(CLOSED_PIPE_EXIT) from None
        raise BackendError(f"standard output: {error.strerror}") from None


def assignments(texts: list[str] | None, option: str) -> dict[str, str]:
    """Return `KEY=VALUE` texts as a mapping. Raises ScenarioError for another text or a key given twice."""
    table: dict[str, str] = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ScenarioError(f"{option} {text}: expected KEY=VALUE")
        if key in table:
            raise ScenarioError(f"{option} {text}: {key} is given twice")
        table[key] = value
    return table


def reader_options(texts: list[str] | None, fill: str | None) -> dict[str, str]:
    """Return the options that `--trace-option` and `--fill` give a trace's reader. Raises ScenarioError."""
    given = assignments(texts, "--trace-option")
    if fill is not None and "fill" in given:
        raise ScenarioError("--fill and --trace-option fill= are the same; give one of them")
    return given if fill is None else {**given, "fill": fill}


def names_in(text: str, option: str) -> list[str]:
    """Return the names of a text between commas. Raises ScenarioError if it has none. option: its option."""
    from twinbed.own import split

    if not (names := [part for part in split(text) if part]):
        raise ScenarioError(f"{option} {text!r}: names nothing; give names with commas, or leave it out")
    return names


_PRICE = re.compile(r"(?!0\d)\d*\.?\d+(e-?\d+)?", re.IGNORECASE)


def price_of(text: str | None) -> dict[str, float | str | None]:
    """Return `--price` as values of a scenario's price; {} without it. Raises ScenarioError."""
    if text is None:
        return {}
    parts = [part.strip() for part in text.split(",")]
    # A decimal comma, as in 0,03, would make a free core and a memory price of 3.
    if len(parts) not in (2, 3) or not all(parts) or not all(map(_PRICE.fullmatch, parts[:2])):
        raise ScenarioError(f"--price {text}: expected CPU,MEMORY[,CURRENCY], e.g. 0.03,0.004,EUR")
    cores, memory, *currency = parts
    given = {"cpu_core_hour": float(cores), "memory_gib_hour": float(memory), "as_of": None}
    return given | {"source": "given on the command line"} | ({"currency": currency[0]} if currency else {})
