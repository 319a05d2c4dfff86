"""Parameters of the code that decides, each with a unit, a default, a range and the reason for the default.

For: frozen dataclasses whose fields are made by `parameter`. `typed` and `check` enforce types and
ranges. The command line and the documentation print the metadata. Not for: the parameters themselves.
"""

from __future__ import annotations

from dataclasses import field, fields
from math import isfinite
from typing import Any, get_args, get_origin

from twinbed import ScenarioError

_BOOLEANS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
_KIND_NAMES: dict[type[Any], str] = {
    bool: "switch (true or false)",
    int: "whole number",
    float: "number",
    str: "text",
}


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
    """Raise ScenarioError naming `name.key` for the first value that is not allowed or not finite."""
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


def typed(what: str, value: object, kind: Any) -> Any:
    """Return `value`, which may be text, as a field's type: bool, int, float, str, or a tuple of one of
    these. Raises ScenarioError, which begins with `what`."""
    if get_origin(kind) is tuple:
        several = value.split("/") if isinstance(value, str) else value
        if not isinstance(several, list | tuple):
            several = (several,)
        return tuple(typed(what, part, get_args(kind)[0]) for part in several)
    result: object
    if kind is bool:
        result = _BOOLEANS.get(str(value).lower())
    elif kind in (int, float):
        result = _number(value, kind)
    else:
        result = value if isinstance(value, str) else None
    if result is None:
        raise ScenarioError(f"{what}: {value!r} is not a {_KIND_NAMES[kind]}")
    return result


def _number(value: object, kind: type[Any]) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number: int | float = kind(value)
    except (ValueError, OverflowError):
        return None
    # int() would cut 1.5 to 1 silently.
    return number if isinstance(value, str) or number == value or kind is float else None
