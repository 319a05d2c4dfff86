"""Read a small CSV as rows of text by column: catalogues, past measurements, measured jobs.

For: tables that a person keeps. Not for: traces (readers/table.py), nor the meaning of columns.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from twinbed import TraceError, TwinbedError
from twinbed.files import MIB, read_user_text

MOST_BYTES = 8 * MIB
"""Largest size of a table, bytes: room for every type of a provider in every region (50,000 prices)."""

_OTHER = re.compile(r"[;\t|]")
"""Characters that stand between fields in tables of other programs."""


def read(
    path: Path, error: type[TwinbedError] = TraceError
) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Return the column names, and for each row the number of its line and its cells by column.

    Blank lines, and blanks around names, are left out. Raises `error`, which names the file and the row, if
    the file cannot be read or is larger than MOST_BYTES, other signs than commas separate its fields, a name
    stands twice, a row has more or fewer fields than the header, or a cell has a character that cannot be
    shown.
    """
    text = read_user_text(path, MOST_BYTES, error)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: list[str] = []
    rows: list[tuple[int, dict[str, str]]] = []
    try:
        for cells in reader:
            where = f"{path}: row {reader.line_num}"
            if not names and len(cells) == 1 and (other := _OTHER.search(cells[0])):
                raise error(f"{where}: expected ',' between fields, not {other[0]!r}; save it with commas")
            if not "".join(cells).isprintable():
                raise error(f"{where}: has a character that cannot be shown")
            if not names:
                names = [name.strip() for name in cells]
                if len(set(names)) < len(names):
                    raise error(f"{path}: a column appears twice in the header")
            elif cells and len(cells) != len(names):
                raise error(
                    f"{where}: {len(cells)} fields between commas, and the header has {len(names)}; "
                    "a field that holds a comma needs quotes"
                )
            elif cells:
                rows.append((reader.line_num, dict(zip(names, cells, strict=True))))
    except csv.Error as wrong:
        raise error(f"{path}: row {reader.line_num}: not CSV ({wrong})") from None
    return names, rows
