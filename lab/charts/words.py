"""Writes figures as people read them: durations in a unit that fits, and numbers without an exponent.

For: texts and axes of the explorer and the reports. Not for: tables of the command line (lab.runs.formats).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

_UNITS = ((172_800.0, 86_400.0, "d"), (7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (0.9995, 1.0, "s"))
"""Shortest duration that is written in a unit, s; the unit in s; its name. Anything shorter is in ms."""
_TICK_STEPS = {
    "d": (0.25, 0.5, 1.0, 2.0, 7.0, 14.0, 28.0),
    "h": (0.25, 0.5, 1.0, 2.0, 3.0, 6.0),
    "min": (0.25, 0.5, 1.0, 2.0, 5.0, 10.0),
}
"""Distances of an axis's ticks, in its unit: whole parts of a day and of an hour."""
CLOCK_FROM_S = 1e9
"""Least time stamp that is a time of day, s since 1970 (September 2001). Lesser ones have any origin."""


def significant(value: float, digits: int = 3) -> str:
    """Return a number with `digits` significant digits and no exponent: `1,520`, `0.0000152`."""
    if not math.isfinite(value):
        return "" if math.isnan(value) else "∞"
    return f"{Decimal(f'{value:.{digits}g}'):,f}"


def unit(seconds: float) -> tuple[float, str]:
    """Return the unit in which people read a duration: its length in s, and its name."""
    return next(((size, name) for least, size, name in _UNITS if seconds >= least), (0.001, "ms"))


def in_rows(largest: float, decimals: int) -> tuple[float, str, int]:
    """Return the unit of a table's row of durations: its length in s, its name, its decimals.

    largest: duration in s; decimals: those of the row in s. Days are in hours: rows are compared, too.
    """
    if not largest:
        return 1.0, "s", 0
    size, name = unit(largest)
    if name == "d":
        size, name = 3600.0, "h"
    return size, name, decimals if size == 1.0 else 2 if size > 1.0 else max(0, decimals - 3)


def duration(seconds: float) -> str:
    """Return a duration: `0.12 ms`, `81.3 ms`, `1.25 s`, `42 min`, `3.5 h`, `7 d`; empty for NaN."""
    if math.isnan(seconds):
        return ""
    size, name = unit(seconds)
    return f"{significant(seconds / size)} {name}"


def interval(middle: float, low: float, high: float) -> str:
    """Return a duration with its interval, in the unit of the middle: `4.2 h (3.9 to 4.6)`. All in s."""
    size, name = unit(middle)
    least, most = (significant(end / size) for end in (low, high))
    return f"{significant(middle / size)} {name} ({least} to {most})"


def date(stamp_s: float) -> str:
    """Return the day of a time stamp (s since 1970) in UTC: `1 May 2024`."""
    day = datetime.fromtimestamp(stamp_s, UTC)
    return f"{day.day} {day:%B %Y}"


def ticks(begin_s: float, end_s: float, most: int) -> tuple[float, str, list[float]]:
    """Return the unit of a time axis (its length in s and its name), and where its ticks stand, s.

    most: largest number of ticks. A short axis, in seconds, has none: the drawing chooses them.
    """
    size, name = unit(max(end_s - begin_s, 1.0))
    if name not in _TICK_STEPS or (name == "min" and end_s - begin_s < 600):
        return 1.0, "s", []
    step = _step(_TICK_STEPS[name], (end_s - begin_s) / size, most) * size
    first = math.ceil(begin_s / step - 1e-9)
    return size, name, [place * step for place in range(first, math.floor(end_s / step + 1e-9) + 1)]


def _step(steps: Sequence[float], length: float, most: int) -> float:
    """Return the first step that gives few enough ticks, or a multiple of the last one."""
    longest = steps[-1] * math.ceil(length / steps[-1] / most)
    return next((step for step in steps if length / step <= most), longest)
