"""Allocators: they decide the CPU and memory limits of containers, with a reason for each change.

For: the table of policies, and `make`, which builds a policy from its name and its parameters as a scenario,
a command line or a form gives them. Not for: the policies themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from typing import Any, get_type_hints

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
from control.settings import typed
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
    types = _types(name)
    values: dict[str, object] = {}
    for key, value in parameters.items():
        if key not in known:
            raise ScenarioError(f"policy {name!r} has no parameter {key!r}; {_choices(key, known)}")
        values[key] = typed(f"{name}.{key}", value, types[key])
    return settings_type(**values)


@cache
def _types(name: str) -> Mapping[str, Any]:
    """Return the type of each parameter of a policy, which takes longer than all else in `settings`."""
    return get_type_hints(POLICIES[name][0])


def _choices(wrong: str, known: list[str]) -> str:
    close = get_close_matches(wrong, known)
    return f"close: {', '.join(close)}" if close else f"known: {', '.join(known)}"
