"""Shows a field for each parameter of a policy, made from the settings' own metadata.

For: label, unit, range, default and its reason as a widget, and the way back to the policy's text form. Not
for: what a parameter does (control.allocator).
"""

from __future__ import annotations

import math
from dataclasses import Field, fields
from typing import Any

import streamlit as st

from control.allocator import POLICIES
from lab.ask import policy
from lab.ask.policy import PolicySpec, Value

_WORDS = {"Cpu": "CPU", "cpu": "CPU", "Oom": "OOM", "oom": "OOM", "cores": "CPU", "bytes": "memory"}
"""Words of a parameter's name as a label shows them. The unit follows the label, so a name that ends in a
unit gets the quantity instead."""
_BIG = 1e15
"""Largest number of a field. Streamlit refuses numbers that JavaScript cannot hold exactly."""


def edit(spec: PolicySpec, key: str) -> PolicySpec:
    """Shows every parameter of the policy and returns the policy with the entered values.

    key: prefix of the widgets' keys. A value equal to the default is left out of the policy's text. Raises
    ScenarioError for a value that the policy refuses.
    """
    settings_type, _ = POLICIES[spec.name]
    values = dict(spec.parameters)
    defaults = settings_type()
    texts: list[str] = []
    for parameter in fields(defaults):
        default = getattr(defaults, parameter.name)
        now = values.get(parameter.name, default)
        entered = _widget(parameter, now, default, f"{key}-{parameter.name}")
        if entered != _plain(default):
            texts.append(f"{parameter.name}={policy_text(entered)}")
    return policy.parse(":".join([spec.name, *texts]))


def policy_text(value: Value) -> str:
    """Returns a value as it stands in a policy's text form."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(value: Any) -> Value:
    """Returns several numbers as one text, `0.1/0.2`, and any other value unchanged."""
    if isinstance(value, tuple | list):
        return "/".join(str(element) for element in value)
    plain: Value = value
    return plain


def _widget(parameter: Field[Any], now: Any, default: Any, key: str) -> Value:
    unit = parameter.metadata["unit"]
    why = parameter.metadata["why"]
    words = parameter.name.removesuffix("_s").replace("_", " ").capitalize().split()
    label = " ".join(_WORDS.get(word, word) for word in words)
    reason = f"Default {policy_text(_plain(default))}: {why}."
    if isinstance(default, bool):
        return st.checkbox(label, value=bool(now), key=key, help=reason)
    if isinstance(default, str) and "|" in unit:
        choices = [choice.strip() for choice in unit.split("|")]
        place = choices.index(now) if now in choices else 0
        return str(st.selectbox(label, choices, index=place, key=key, help=reason))
    if isinstance(default, int | float):
        return _number(parameter, f"{label} ({unit})", now, default, key, reason)
    return str(st.text_input(f"{label} ({unit})", value=str(_plain(now)), key=key, help=reason))


def _number(parameter: Field[Any], label: str, now: Any, default: float, key: str, reason: str) -> Value:
    low, high = parameter.metadata["low"], parameter.metadata["high"]
    kind = int if isinstance(default, int) else float
    limits = [None if bound is None else kind(max(-_BIG, min(_BIG, bound))) for bound in (low, high)]
    text = f"{reason} Allowed: {_range(low, high)}."
    step = kind(1) if kind is int else _step(default)
    shape = "%d" if kind is int else "%.6g"
    entered = st.number_input(label, limits[0], limits[1], kind(now), step, shape, key=key, help=text)
    return kind(default if entered is None else entered)


def _step(default: float) -> float:
    """Returns a tenth of the default's order of magnitude: 0.2 → 0.01, 60 → 1."""
    return float(10.0 ** (math.floor(math.log10(abs(default))) - 1)) if default else 0.1


def _range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return "any number"
    if high is None:
        return f"{low:g} or more"
    return f"up to {high:g}" if low is None else f"{low:g} to {high:g}"
