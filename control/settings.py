"""Parameters of what decides: each with a unit, a default, a range and the reason for the default.

Settings are a frozen dataclass whose fields are made by `parameter`; `check` enforces the
ranges, and the command line and the documentation print the metadata.
"""

from __future__ import annotations

from dataclasses import field, fields
from math import isfinite
from typing import Any

from twinbed import ScenarioError


def parameter(
    default: Any, *, unit: str, why: str, low: float | None = None, high: float | None = None
) -> Any:
    """A dataclass field with its unit, its closed range [low, high] and why the default is what it is."""
    return field(default=default, metadata={"unit": unit, "why": why, "low": low, "high": high})


def check(name: str, settings: Any) -> None:
    """Raises ScenarioError naming `name.key` for the first value out of its range or not finite."""
    for spec in fields(settings):
        value = getattr(settings, spec.name)
        values = value if isinstance(value, tuple) else (value,)
        for one in values:
            if isinstance(one, bool | str) or one is None:
                continue
            low, high = spec.metadata.get("low"), spec.metadata.get("high")
            if not isfinite(one) or (low is not None and one < low) or (high is not None and one > high):
                unit = spec.metadata.get("unit", "")
                raise ScenarioError(
                    f"{name}.{spec.name}: {one} {unit} is outside [{low}, {high}]".replace("None", "any")
                )
