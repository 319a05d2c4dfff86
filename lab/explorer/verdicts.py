"""Writes judged cells as HTML tables: each verdict has a colour and a word.

For: the page "Validation". Not for: judging (lab.containers.validate.rule). Every name from outside is
escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from lab.charts.palette import title
from lab.containers.validate.both import Cell
from lab.containers.validate.rule import QUANTITIES, Judgement, Verdict
from lab.explorer.html import STYLE
from lab.runs.formats import ABSENT

_COLORS = {
    Verdict.LIMIT: "rgba(0, 158, 115, 0.22)",
    Verdict.SPREAD: "rgba(86, 180, 233, 0.24)",
    Verdict.OUTSIDE: "rgba(213, 94, 0, 0.24)",
    Verdict.ONE_SIDED: "rgba(213, 94, 0, 0.24)",
    Verdict.NONE: "transparent",
}


def table(cell: Cell) -> str:
    """Returns one row per compared quantity: twin, testbed, error, spread, limit, verdict."""
    heads = ("Quantity", "Twin", "Testbed", "Error", "Error (%)", "Spread of the testbed", "Limit", "Verdict")
    lines = [_line(judgement) for judgement in cell.judgements if judgement.verdict.counts]
    return _table(heads, lines)


def overview(cells: Sequence[Cell]) -> str:
    """Returns one row per cell, with a column for each quantity that any cell has. An entry is the verdict
    in words."""
    shown = [
        index
        for index in range(len(QUANTITIES))
        if any(cell.judgements[index].verdict.counts for cell in cells)
    ]
    heads = ("Load and policy", *(QUANTITIES[index].title for index in shown))
    lines = []
    for cell in cells:
        name = f"{cell.variant} · {title(cell.policy)}" if cell.variant else title(cell.policy)
        verdicts = [_verdict(cell.judgements[index].verdict) for index in shown]
        lines.append(f"<th>{escape(name)}</th>{''.join(verdicts)}")
    return _table(heads, lines)


def _table(heads: Sequence[str], lines: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in heads)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f'{STYLE}<div class="tb-scroll"><table class="tb-grid tb-verdicts"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _line(judgement: Judgement) -> str:
    quantity = judgement.quantity
    unit = "" if quantity.unit == "1" else f" ({quantity.unit})"
    relative = judgement.relative_error
    cells = (
        _number(judgement.twin, quantity.decimals),
        _number(judgement.testbed, quantity.decimals),
        _number(judgement.error, quantity.decimals, signed=True),
        _number(100 * relative, 1, signed=True),
        f"{_number(judgement.low, quantity.decimals)} to {_number(judgement.high, quantity.decimals)}",
        escape(quantity.limit),
    )
    values = "".join(f"<td>{text}</td>" for text in cells)
    return f"<th>{escape(quantity.title + unit)}</th>{values}{_verdict(judgement.verdict)}"


def _verdict(verdict: Verdict) -> str:
    return f'<td style="background:{_COLORS[verdict]}">{escape(str(verdict))}</td>'


def _number(value: float, decimals: int, *, signed: bool = False) -> str:
    if math.isnan(value):
        return ABSENT
    text = f"{value:+,.{decimals}f}" if signed else f"{value:,.{decimals}f}"
    return text.replace("-", "\N{MINUS SIGN}")
