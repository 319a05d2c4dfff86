"""Fits a grid of texts into the width of a terminal.

For: the written form `table` (lab.runs.formats). Not for: the contents.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from twinbed.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_GAP = 3
"""Spaces between two columns of a table: two of padding and the box's own."""

_LEAST_PROSE, _LEAST_NAME = 24, 10
"""Least width of prose before names are broken to make room for it, and of names before lines get longer,
characters."""

_SENTENCE = 30
"""Least length of a text that is moved from many rows of a table into a note below it, characters."""

_LEAST_LABEL = 28
"""Least width of the names of quantities before records are split into more tables, characters."""

_HEAD_LINES = 5
"""Approximate number of lines of the head of a table."""


def said_once(
    header: list[str], right: list[bool], lines: list[list[str]]
) -> tuple[list[str], list[bool], list[list[str]], list[str]]:
    """Return a grid without its repeated sentences, and the notes that hold them.

    A sentence that all rows share is removed with its column. If at most half of a column's sentences differ,
    each is replaced by a number.
    """
    kept, notes = list(range(len(header))), []
    lines = [list(line) for line in lines]
    for index, title in enumerate(header):
        texts = [line[index] for line in lines]
        sentences = dict.fromkeys(text for text in texts if len(text) >= _SENTENCE and " " in text)
        if len(lines) < 2 or not sentences or len(set(texts)) > len(lines) / 2:
            continue
        if len(set(texts)) == 1:
            kept.remove(index)
            notes.append(f"{title}, in all rows: {texts[0]}")
            continue
        numbers = {text: f"[{number}]" for number, text in enumerate(sentences, 1)}
        notes += [f"{title} {number}: {text}" for text, number in numbers.items()]
        for line in lines:
            line[index] = numbers.get(line[index], line[index])
    cut = [[line[index] for index in kept] for line in lines]
    return [header[index] for index in kept], [right[index] for index in kept], cut, notes


def set_apart(
    header: list[str], right: list[bool], lines: list[list[str]], width: int
) -> tuple[list[str], list[bool], list[list[str]], list[str]]:
    """Return a grid without its last column and notes that hold its sentences, if names and figures would be
    broken beside them; else the same grid and no notes."""
    says = bool(lines) and any(len(line[-1]) >= _SENTENCE and " " in line[-1] for line in lines)
    wide = _widths(_wrapped(header, [True] * len(header), lines), lines)
    if not says or _least(wide, _whole(right, lines), _LEAST_PROSE) <= width:
        return header, right, lines, []
    names = range(1, _names_of_rows(right) + 1)
    # A row is named by as few of these columns as tell all rows apart.
    many = next((n for n in names if len({tuple(line[:n]) for line in lines}) == len(lines)), names[-1])
    notes = [f"{' '.join(line[:many])}: {line[-1]}" for line in lines if line[-1]]
    return header[:-1], right[:-1], [line[:-1] for line in lines], notes


def rows(
    header: list[str], right: list[bool], lines: list[list[str]], width: int, *, nothing: str = ""
) -> Iterator[RenderableType]:
    """Yield one table, or several below each other if the figures do not fit side by side. nothing: the text
    in place of a table without lines."""
    from rich.text import Text

    if not lines:
        if nothing:
            yield Text(f"{nothing}\n", style="dim")
        return
    lines = _printable(lines)
    titles = _wrapped(header, right, lines)
    # Figures are never broken. Ids and names, which people copy, are not broken if prose has room left.
    both = _whole(right, lines)
    if _least(_widths(titles, lines), both, _LEAST_PROSE) > width:
        titles = _wrapped(header, [True] * len(header), lines)
    lines = _first_whole(titles, both, right, lines, width)
    wide = _widths(titles, lines)
    rigid = both if _least(wide, both, _LEAST_PROSE) <= width else right
    parts = [list(range(len(titles)))]
    if _least(wide, rigid, _LEAST_NAME) > width:
        # Too many figures are put into several tables, each with the names of the rows in half of its width.
        lines = _narrowed(titles, right, lines, width // 2)
        wide = _widths(titles, lines)
        parts, rigid = list(_parts(wide, both, right, width)), both
    for part in parts:
        some = [[line[index] for index in part] for line in lines]
        rigid_of, right_of = ([flags[index] for index in part] for flags in (rigid, right))
        drawn = _table([titles[index] for index in part], rigid_of, right_of, some, [False] * len(lines))
        needed = _least([wide[index] for index in part], rigid_of, _LEAST_NAME)
        if needed > width:
            # Names and figures that do not fit make a wider table instead of a cut one.
            drawn.width = needed
        yield drawn
        yield Text()


def _whole(right: list[bool], lines: list[list[str]]) -> list[bool]:
    """Return which columns have figures, or names without blanks."""
    return [
        is_number or all(" " not in line[index] for line in lines) for index, is_number in enumerate(right)
    ]


def _parts(wide: list[int], rigid: list[bool], right: list[bool], width: int) -> Iterator[list[int]]:
    """Yield the columns of each table that shows all figures within `width`: the columns that name the row,
    and at least one more."""
    first = _names_of_rows(right)
    heads, further = list(range(first)), list(range(first, len(right)))
    room = width - _least([wide[index] for index in heads], [rigid[index] for index in heads], _LEAST_PROSE)
    part: list[int] = []
    used = 0
    for index in further:
        own = _least([wide[index]], [rigid[index]], _LEAST_PROSE)
        if part and used + own > room:
            yield heads + part
            part, used = [], 0
        part.append(index)
        used += own
    yield heads + part


def _names_of_rows(right: list[bool]) -> int:
    """Return how many columns name the row: the texts at the beginning, and numbers before them, such as a
    rank or a varied parameter. One column names the row if all other columns have the same alignment."""
    texts = right.index(False) if False in right else len(right)
    figures = right.index(True, texts) if True in right[texts:] else len(right)
    return 1 if figures == len(right) else figures


def _first_whole(
    titles: list[str], both: list[bool], right: list[bool], lines: list[list[str]], width: int
) -> list[list[str]]:
    """Return the lines, with the longest names beside those of the rows broken if that makes all else fit."""
    wide = _widths(titles, lines)
    names = [index for index in range(1, len(wide)) if both[index] and not right[index]]
    over = _least(wide, both, _LEAST_PROSE) - width
    if over <= 0 or not names:
        return lines
    at = max(names, key=wide.__getitem__)
    room = wide[at] - over - _GAP
    if room < _LEAST_NAME:
        return lines
    return [[*line[:at], _broken(line[at], room), *line[at + 1 :]] for line in lines]


def _narrowed(titles: list[str], right: list[bool], lines: list[list[str]], most: int) -> list[list[str]]:
    """Return the lines, with the longest names broken if the columns of names are wider than `most`."""
    wide = _widths(titles, lines)[: _names_of_rows(right)]
    over = sum(wide) - most
    at = wide.index(max(wide))
    if over <= 0 or right[at]:
        return lines
    room = max(wide[at] - over, _LEAST_PROSE) - _GAP
    return [[*line[:at], _broken(line[at], room), *line[at + 1 :]] for line in lines]


def _broken(name: str, room: int) -> str:
    """Return a name in lines of at most `room` characters, broken after `/`, else after a word, else
    anywhere."""
    pieces = [
        part[begin : begin + room]
        for step in re.findall(r"[^/]*/|[^/]+", name)
        for part in ([step] if len(step) <= room else re.findall(r"[^-_.: ]*[-_.: ]|[^-_.: ]+", step))
        for begin in range(0, len(part), room)
    ]
    made = pieces[:1]
    for piece in pieces[1:]:
        if len(made[-1]) + len(piece) <= room:
            made[-1] += piece
        else:
            made.append(piece)
    return "\n".join(made)


def _printable(lines: list[list[str]]) -> list[list[str]]:
    return [[printable(text) for text in line] for line in lines]


def _wrapped(header: list[str], right: list[bool], lines: list[list[str]]) -> list[str]:
    """Return the titles. Titles of figures are broken into lines that are no wider than the figures, if words
    allow it.
    """
    rooms = [
        max(map(len, (*title.split(), *(line[index] for line in lines))), default=1)
        for index, title in enumerate(header)
    ]
    return [
        textwrap.fill(title, room, break_on_hyphens=False) if is_number else title
        for title, is_number, room in zip(header, right, rooms, strict=True)
    ]


def _widths(titles: list[str], lines: list[list[str]]) -> list[int]:
    """Return the preferred width of each column of a table, with its gap, characters."""
    return [
        _GAP
        + max(len(part) for text in (title, *(line[index] for line in lines)) for part in text.split("\n"))
        for index, title in enumerate(titles)
    ]


def _least(wide: list[int], rigid: list[bool], least: int) -> int:
    """Return the width of a table whose columns that are not rigid are narrowed to `least`."""
    return sum(
        width if in_one_piece else min(width, least) for width, in_one_piece in zip(wide, rigid, strict=True)
    )


def aside(
    header: list[str], lines: list[list[str]], sections: list[str], width: int
) -> Iterator[RenderableType]:
    """Yield one table, or several below each other if the records do not fit side by side.

    lines: one line for each quantity. sections: the section of each line; a gap separates sections.
    The table is transposed if it would otherwise need more than two tables, and needs fewer lines then.
    """
    from rich.text import Text

    if not lines:
        return
    lines = _printable(lines)
    # Names of quantities wrap if that makes fewer tables.
    blocks = min((list(_blocks(header, lines, width, most)) for most in (width, _LEAST_LABEL)), key=len)
    turned = [[name, *(line[index] for line in lines)] for index, name in enumerate(header) if index]
    titles, right = ["", *(line[0] for line in lines)], [False, *(True for _ in lines)]
    tables = list(_parts(_widths(_wrapped(titles, right, turned), turned), right, right, width))
    if len(blocks) > 2 and len(tables) * (len(turned) + _HEAD_LINES) < len(blocks) * (
        len(lines) + _HEAD_LINES
    ):
        yield from rows(titles, right, turned, width)
        return
    ends = [here != after for here, after in zip(sections, [*sections[1:], sections[-1]], strict=True)]
    for names in blocks:
        part = [[line[0], *(line[index] for index in names)] for line in lines]
        titles = ["", *(_stacked(header[index]) for index in names)]
        right = [False, *(True for _ in names)]
        yield _table(titles, right, right, part, ends)
        yield Text()


def _stacked(name: str) -> str:
    """Put a policy's parameters and conditions below its name: `static` over `factor=1.5`."""
    return name.replace(":", "\n").replace(" ", "\n")


def _blocks(header: list[str], lines: list[list[str]], width: int, most: int) -> Iterator[list[int]]:
    """Yield the indices of the records (from 1) of each table that fits into `width`; at least one per
    table. most: largest width of the names of quantities."""
    wide = _widths([_stacked(title) for title in header], lines)
    wide[0] = min(wide[0], most + _GAP)
    block: list[int] = []
    for index in range(1, len(header)):
        if block and wide[0] + sum(wide[column] for column in block) + wide[index] > width:
            yield block
            block = []
        block.append(index)
    if block:
        yield block


def _table(
    header: list[str], rigid: list[bool], right: list[bool], lines: list[list[str]], ends: list[bool]
) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, _GAP - 1, 0, 0))
    for title, in_one_piece, is_number in zip(header, rigid, right, strict=True):
        drawn.add_column(
            Text("\n".join(map(printable, title.split("\n")))),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=in_one_piece,
        )
    for line, end in zip(lines, ends, strict=True):
        drawn.add_row(*map(Text, line), end_section=end)
    return drawn
