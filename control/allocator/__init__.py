"""Allocators: they decide the CPU and memory limits of containers, with a reason for each change.

For: the table of policies, and `make`, which builds a policy from its name and its parameters as a scenario,
a command line or a form gives them. Not for: the policies themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from control.allocator.autopilot import Autopilot, AutopilotSettings
from control.allocator.autothrottle import Autothrottle, AutothrottleSettings
from control.allocator.escra import Escra, EscraSettings
from control.allocator.firm import Firm, FirmSettings
from control.allocator.k8s_cpu import K8sCpu, K8sCpuFastSettings, K8sCpuSettings
from control.allocator.krr import Krr, KrrSettings
from control.allocator.ports import Allocator
from control.allocator.requests_only import RequestsOnly, RequestsOnlySettings
from control.allocator.static import Static, StaticSettings, Unlimited, UnlimitedSettings
from control.allocator.vpa import Vpa
from control.allocator.vpa_settings import VpaSettings
from twinbed import ScenarioError

POLICIES: dict[str, tuple[type[Any], Callable[[Any], Allocator]]] = {
    "escra": (EscraSettings, Escra),
    "static": (StaticSettings, Static),
    "vpa": (VpaSettings, Vpa),
    "autopilot": (AutopilotSettings, Autopilot),
    "autothrottle": (AutothrottleSettings, Autothrottle),
    "firm": (FirmSettings, Firm),
    "k8s-cpu": (K8sCpuSettings, K8sCpu),
    "k8s-cpu-fast": (K8sCpuFastSettings, K8sCpu),
    "requests-only": (RequestsOnlySettings, RequestsOnly),
    "krr": (KrrSettings, Krr),
    "unlimited": (UnlimitedSettings, Unlimited),
}
"""Policy name → (settings, a frozen dataclass of `settings.parameter`s; allocator)."""

_BOOLEANS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
_KIND_NAMES: dict[type[Any], str] = {
    bool: "switch (true or false)",
    int: "whole number",
    float: "number",
    str: "text",
}


def make(name: str, parameters: Mapping[str, object]) -> Allocator:
    """Return a new allocator of policy `name`. Parameters and errors are those of `settings`."""
    checked = settings(name, parameters)
    return POLICIES[name][1](checked)


def settings(name: str, parameters: Mapping[str, object]) -> Any:
    """Return the settings of policy `name`. Parameters that `parameters` does not name keep their defaults.

    A value has the parameter's type or is text for it: `"0.5"`, `"true"`, and `"0.1/0.2"` or a list for a
    parameter with several values. Raises ScenarioError that names the wrong policy, parameter or value, and
    lists similar names.
    """
    if name not in POLICIES:
        raise ScenarioError(f"no policy {name!r}; {_choices(name, list(POLICIES))}")
    settings_type = POLICIES[name][0]
    known = [spec.name for spec in fields(settings_type)]
    types = _types(settings_type)
    values: dict[str, object] = {}
    for key, value in parameters.items():
        if key not in known:
            raise ScenarioError(f"policy {name!r} has no parameter {key!r}; {_choices(key, known)}")
        values[key] = _coerce(f"{name}.{key}", value, types[key])
    return settings_type(**values)


_types = cache(get_type_hints)
"""Settings class → the types of its fields. A sweep reads the same policies thousands of times."""


def _choices(wrong: str, known: list[str]) -> str:
    close = get_close_matches(wrong, known)
    return f"close: {', '.join(close)}" if close else f"known: {', '.join(known)}"


def _coerce(what: str, value: object, kind: Any) -> object:
    """Return `value` as the field's type: bool, int, float, str, or a tuple of one of them of any length."""
    if get_origin(kind) is tuple:
        several = value.split("/") if isinstance(value, str) else value
        if not isinstance(several, list | tuple):
            several = (several,)
        return tuple(_coerce(what, part, get_args(kind)[0]) for part in several)
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
