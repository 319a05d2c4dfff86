"""One result type and its four written forms: table, json, csv, markdown.

For: everything that a verb prints on standard output. Not for: the contents of a result (lab.runs.compare,
lab.cli). People get rounded figures in a readable unit, with notes. Machines get every digit under stable
keys.
"""

from __future__ import annotations

import csv as csv_
import io
import json as json_
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lab.runs import fitting
from twinbed.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

Value = str | int | float | bool | None
Record = Mapping[str, Value]

DEFAULT_WIDTH = 100
"""Width in characters of a table that is not written to a terminal."""

_WIDEST = 10_000
"""Largest width of a table, characters."""

_MOST_ROWS = 1_000
"""Most rows of a table for people: nobody reads more, and to lay them out takes minutes."""

JSON_SCHEMA = 1
"""Version of the layout of JSON results. It increases when a key is removed or changes its meaning."""

ABSENT = "–"
"""The text that people see in place of a figure that does not apply to its row."""


@dataclass(frozen=True, slots=True)
class Column:
    """One quantity of a result's records.

    key: key in JSON, CSV and records
    title, unit: heading for people; the unit is also in JSON, where "1" is a pure number
    decimals: digits after the point; None: text, or an unrounded number
    identifier: the number is a name, such as a seed; people see its digits without separators
    percent: people see the share as a percentage, with two decimals at most
    spread: key of the half-width that is printed as `± x` beside the value
    censored: key of the flag for a lower bound, which is printed as `> x`
    upto: key of the upper end of an interval whose lower end is the value, which is printed as `x to y`
    digits: key of the record's own `decimals`, if records have different units
    section: section of a metric; a table has a gap where the section changes
    always: people see the column even if no row has a value in it
    """

    key: str
    title: str
    unit: str = ""
    decimals: int | None = None
    identifier: bool = False
    percent: bool = False
    spread: str = ""
    censored: str = ""
    upto: str = ""
    digits: str = ""
    section: str = ""
    always: bool = False

    @property
    def heading(self) -> str:
        """Title with the unit in the form for people."""
        unit = "%" if self.percent else self.unit
        return self.title if unit in ("", "1") else f"{self.title} ({unit})"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a verb: records over columns, with facts before and notes after them.

    facts: name → value, the subject of the table
    legend: how to read the table, one line
    notes: one or two sentences each
    aside: key of the column that names the records where these stand side by side, with one record per table
        column and one quantity per line; None: one record per line
    nothing: what people see in place of a table without records; "": the notes say it
    """

    columns: tuple[Column, ...]
    rows: tuple[Record, ...]
    facts: Record = field(default_factory=dict)
    legend: str = ""
    notes: tuple[str, ...] = ()
    aside: str | None = None
    nothing: str = "nothing to show"


def table(result: Result, width: int = DEFAULT_WIDTH, *, color: bool = False) -> str:
    """Return the result for a terminal of `width` columns. color: with ANSI bold and dim, and no other
    emphasis."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    result = _readable(result)
    parts = [*_rich_facts(result.facts)]
    notes = list(result.notes)
    if result.aside is None:
        header, right, texts, said = fitting.said_once(*grid(result))
        header, right, texts, apart = fitting.set_apart(header, right, texts, width)
        parts += fitting.rows(header, right, texts, width, nothing=result.nothing)
        notes[:0] = [*said, *apart]
    else:
        header, _, texts = grid(result)
        parts += fitting.aside(header, texts, [column.section for column in _quantities(result)], width)
    if result.legend:
        parts.append(Text(printable(result.legend) + "\n", style="dim"))
    target = io.StringIO()
    console = Console(
        file=target, width=_WIDEST, force_terminal=color, color_system="standard" if color else None
    )
    for part in parts:
        wanted = part.width if isinstance(part, Table) and part.width else 0
        console.print(part, width=max(width, wanted), highlight=False, markup=False, emoji=False)
    for note in notes:
        # Not by rich, which would break a word that is longer than a line, such as an address.
        lines = textwrap.wrap(printable(note), width - 2, break_on_hyphens=False, break_long_words=False)
        target.write("· " + "\n  ".join(lines) + "\n")
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines()).strip("\n") + "\n"


def json(result: Result) -> str:
    """Return one object: schema, facts, columns (key, title, unit), rows (key → value, null where undefined),
    notes; docs/reference/json.md describes it."""
    units = [{"key": column.key, "title": column.title, "unit": _unit(column)} for column in result.columns]
    document = {
        "schema": JSON_SCHEMA,
        "facts": {key: _plain(value) for key, value in result.facts.items()},
        "columns": units,
        "rows": [{key: _plain(row.get(key)) for key in _keys(result)} for row in result.rows],
        "notes": list(result.notes),
    }
    return json_.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def csv(result: Result) -> str:
    """Return the records alone, one per line, with every digit; undefined values are empty."""
    target = io.StringIO()
    writer = csv_.writer(target, lineterminator="\n")
    keys = list(_keys(result))
    writer.writerow(keys)
    for row in result.rows:
        values = [_plain(row.get(key)) for key in keys]
        writer.writerow(["" if value is None else value for value in values])
    return target.getvalue()


def markdown(result: Result) -> str:
    """Return the same view as `table`, for an issue or a page."""
    blocks, result = [], _readable(result)
    if result.facts:
        blocks.append("\n".join(f"- {_cell(key)}: {_cell(shown(v))}" for key, v in result.facts.items()))
    header, right, lines = grid(result)
    if lines:
        rule = ["---:" if is_number else "---" for is_number in right]
        blocks.append(
            "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in [header, rule, *lines])
        )
    if result.legend:
        blocks.append(f"*{_cell(result.legend)}*")
    if result.notes:
        blocks.append("\n".join(f"- {_cell(note)}" for note in result.notes))
    return "\n\n".join(blocks) + "\n"


FORMATS: Mapping[str, Callable[[Result], str]] = {
    "table": table,
    "json": json,
    "csv": csv,
    "markdown": markdown,
}


def grid(result: Result) -> tuple[list[str], list[bool], list[list[str]]]:
    """Return (header, right-aligned?, lines) of the view for people, which `table` and `markdown` show.

    A column without a value in any row is left out, unless it is always shown.
    """
    if result.aside is not None:
        names = [str(row[result.aside]) for row in result.rows]
        lines = [
            [column.heading, *(cell(row, column) for row in result.rows)] for column in _quantities(result)
        ]
        return ["", *names], [False, *(True for _ in names)], lines
    columns = [
        column
        for column in result.columns
        if column.always
        or not result.rows
        or any(cell(row, column) not in (ABSENT, "") for row in result.rows)
    ]
    lines = [[cell(row, column) for column in columns] for row in result.rows]
    return [column.heading for column in columns], [_is_number(result, column) for column in columns], lines


def _readable(result: Result) -> Result:
    """Return the result with as many rows as people read, and a note on the others."""
    if len(result.rows) <= _MOST_ROWS:
        return result
    note = f"{_MOST_ROWS:,} of {len(result.rows):,} rows are shown; --format csv has all."
    return replace(result, rows=result.rows[:_MOST_ROWS], notes=(note, *result.notes))


def shown(value: Value, decimals: int | None = None, *, percent: bool = False) -> str:
    """Return a value in the form for people: rounded, a dash if it does not apply, `< 0.001` instead
    of a false 0."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if decimals is None:
        return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    number, digits = (100 * value, min(decimals, 2)) if percent else (value, decimals)
    if abs(number) >= 10_000:
        digits = min(digits, 1)
    least = 10.0**-digits
    if number and abs(number) < least / 2:
        return f"{'< ' if number > 0 else '> -'}{least:.{digits}f}"
    return f"{number:,.{digits}f}"


def cell(row: Record, column: Column) -> str:
    """Return a record's value under a column in the form for people: with its spread, as a bound or as an
    interval."""
    value = row.get(column.key)
    if column.identifier and isinstance(value, int | float) and not math.isnan(value):
        return f"{value:.0f}"
    own = row.get(column.digits)
    decimals = own if isinstance(own, int) else column.decimals
    text = shown(value, decimals, percent=column.percent)
    if text == ABSENT:
        return text
    if row.get(column.censored):
        return f"> {text}"
    end = shown(row.get(column.upto), decimals, percent=column.percent)
    if end not in (ABSENT, text):
        return f"{text} to {end}"
    half = row.get(column.spread)
    if not isinstance(half, int | float) or math.isnan(half):
        return text
    return f"{text} ± {shown(float(half), decimals, percent=column.percent)}"


def _keys(result: Result) -> Iterator[str]:
    for column in result.columns:
        yield column.key
        yield from (key for key in (column.spread, column.censored, column.upto) if key)


def _plain(value: Value) -> Value:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _unit(column: Column) -> str:
    """Return the unit in JSON: a count has "1"."""
    return column.unit or ("1" if column.decimals is not None and not column.identifier else "")


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|").replace("<", "&lt;")


def _quantities(result: Result) -> list[Column]:
    """Return the columns to compare where records stand side by side: those with a figure for any record."""
    return [
        column
        for column in result.columns
        if column.decimals is not None and any(_plain(row.get(column.key)) is not None for row in result.rows)
    ]


def _is_number(result: Result, column: Column) -> bool:
    """Return whether every value in a column is a number or missing. Such a column is right-aligned."""
    values = [row.get(column.key) for row in result.rows]
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in values]
    return any(numbers) and all(is_n or value is None for is_n, value in zip(numbers, values, strict=True))


def _rich_facts(facts: Record) -> Iterator[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    if facts:
        pairs = Table.grid(padding=(0, 2))
        pairs.add_column(no_wrap=True)
        pairs.add_column(overflow="fold")
        for key, value in facts.items():
            pairs.add_row(Text(printable(key), style="dim"), Text(printable(shown(value))))
        yield pairs
        yield Text()
