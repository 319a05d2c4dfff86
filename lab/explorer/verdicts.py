"""Writes judged cells as HTML tables: each verdict has a colour and a word.

For: the page "Validation". Not for: judging (lab.containers.validate.rule) or markup (parts.html.jinja).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.charts.palette import title
from lab.containers.validate.both import Cell
from lab.containers.validate.rule import QUANTITIES, Judgement, Verdict
from lab.explorer.html import parts
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
    rows = [_row(judgement) for judgement in cell.judgements if judgement.verdict.counts]
    return str(parts().verdicts(heads, rows))


def overview(cells: Sequence[Cell]) -> str:
    """Returns one row per cell, with a column for each quantity that any cell has. An entry is the verdict
    in words."""
    shown = [
        index
        for index in range(len(QUANTITIES))
        if any(cell.judgements[index].verdict.counts for cell in cells)
    ]
    heads = ("Load and policy", *(QUANTITIES[index].title for index in shown))
    rows = [
        (
            f"{cell.variant} · {title(cell.policy)}" if cell.variant else title(cell.policy),
            (),
            [_verdict(cell.judgements[index].verdict) for index in shown],
        )
        for cell in cells
    ]
    return str(parts().verdicts(heads, rows))


def _row(judgement: Judgement) -> tuple[str, Sequence[str], Sequence[tuple[str, str]]]:
    """Returns the quantity, the texts of its figures, and the colour and words of its verdict."""
    quantity = judgement.quantity
    unit = "" if quantity.unit == "1" else f" ({quantity.unit})"
    texts = (
        _number(judgement.twin, quantity.decimals),
        _number(judgement.testbed, quantity.decimals),
        _number(judgement.error, quantity.decimals, signed=True),
        _number(100 * judgement.relative_error, 1, signed=True),
        f"{_number(judgement.low, quantity.decimals)} to {_number(judgement.high, quantity.decimals)}",
        quantity.limit,
    )
    return quantity.title + unit, texts, [_verdict(judgement.verdict)]


def _verdict(verdict: Verdict) -> tuple[str, str]:
    return _COLORS[verdict], str(verdict)


def _number(value: float, decimals: int, *, signed: bool = False) -> str:
    if math.isnan(value):
        return ABSENT
    text = f"{value:+,.{decimals}f}" if signed else f"{value:,.{decimals}f}"
    return text.replace("-", "\N{MINUS SIGN}")
