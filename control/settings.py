"""Parameters of the code that decides, each with a unit, a default, a range and the reason for the default.

For: frozen dataclasses whose fields are made by `parameter`. `check` enforces the ranges. The command line
and the documentation print the metadata. Not for: the parameters themselves.
"""

from __future__ import annotations

from dataclasses import field, fields
from math import isfinite
from typing import Any

from twinbed import ScenarioError


def parameter(
    default: Any,
    *,
    why: str,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Return a dataclass field with its unit, its closed range [low, high] and the reason for its default.

    choices: the values that a text may have; they are shown in place of a unit.
    """
    unit = unit or " | ".join(choices)
    known = {"unit": unit, "why": why, "low": low, "high": high, "choices": choices}
    return field(default=default, metadata=known)


def check(name: str, settings: Any) -> None:
    """Raise ScenarioError naming `name.key` for the first value that is no choice, outside its range or not
    finite.
    """
    for spec in fields(settings):
        value, choices = getattr(settings, spec.name), spec.metadata.get("choices")
        if choices and value not in choices:
            raise ScenarioError(f"{name}.{spec.name}: {value!r} is not one of {', '.join(choices)}")
        values = value if isinstance(value, tuple) else (value,)
        for number in values:
            if isinstance(number, bool | str) or number is None:
                continue
            low, high = spec.metadata.get("low"), spec.metadata.get("high")
            if (
                not isfinite(number)
                or (low is not None and number < low)
                or (high is not None and number > high)
            ):
                unit = f" {spec.metadata.get('unit', '')}".removesuffix(" 1").rstrip()
                raise ScenarioError(
                    f"{name}.{spec.name}: {number}{unit} is outside [{low}, {high}]".replace("None", "any")
                )
