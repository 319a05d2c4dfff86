"""Reads lengths of time (`7d`, `1h30m`) and moments (ISO 8601, or seconds since 1970) of the command line.

For: options. Not for: files, whose times have units in their keys.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from twinbed import ScenarioError

_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
"""Prometheus' units except its year, whose length is ambiguous."""

_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d|w)")
_LATEST_S = 253_402_300_800.0
"""The year 10000."""


def duration_s(text: str, option: str, *, zero: bool = False) -> float:
    """Return seconds, above 0, or 0 if `zero` allows it. Raises ScenarioError that begins with the option's
    name, also for a number without a unit, which some read as hours and some as seconds."""
    parts = _PART.findall(text.strip())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise ScenarioError(
            f"{option} {text}: expected a number and a unit (ms, s, m, h, d, w), e.g. 30s, 7d or 1h30m"
        )
    seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    if not (seconds or zero):
        raise ScenarioError(f"{option} {text}: expected a time above 0")
    return seconds


def moment_s(text: str, option: str) -> float:
    """Return seconds since 1970. Raises ScenarioError that begins with the option's name."""
    problem = ScenarioError(
        f"{option} {text}: expected a time such as 2024-05-01T10:00:00Z, or seconds since 1970"
    )
    try:
        seconds = float(text)
    except ValueError:
        try:
            stamp = datetime.fromisoformat(text.strip())
        except ValueError:
            raise problem from None
        seconds = (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds < _LATEST_S:
        raise problem
    return seconds
