"""Draws the part of every page's left side that sets the conditions: policies, their settings, limits and
prices.

For: these widgets, one for each parameter of a policy among them. Not for: what runs under these conditions
(lab.explorer.trace_chooser, lab.explorer.services_chooser).
"""

from __future__ import annotations

import math
from dataclasses import Field, fields, replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from control.allocator import POLICIES
from lab.ask import policy
from lab.ask.policy import PolicySpec, Value
from lab.charts.palette import title
from lab.explorer import html
from lab.explorer.selection import MAX_POLICIES, AnyChoices, Choices, limits
from twinbed import ScenarioError

FIELDS = ("policies", "budget", "seed", "cpu_price", "memory_price")
"""Fields of a selection that these widgets set."""


def choose(before: AnyChoices, page: str, *, running: bool) -> tuple[AnyChoices, bool, DeltaGenerator]:
    """Show the widgets, disabled while a job is running.

    page: prefix of the widgets' keys, so that a value entered on one page does not appear on another. Returns
    the choices, whether they can be run, and a place for a button. The place is above the settings, so that
    the button does not move when they are unfolded.
    """
    specs = _policies(before, page, running)
    below = st.container()
    texts = None if specs is None else _settings(specs, page)
    kept = before.policies if texts is None else texts
    return _conditions(replace(before, policies=kept), page, running), bool(texts), below


def _policies(before: Choices, page: str, running: bool) -> list[PolicySpec] | None:
    """Return the chosen policies without their settings, None if one of them cannot be used."""
    key = f"{page}policies"
    if key not in st.session_state:
        st.session_state[key] = list(before.policies)
    now: list[str] = st.session_state[key]
    texts = st.multiselect(
        "Policies",
        list(dict.fromkeys([*now, *policy.names()])),
        format_func=title,
        key=key,
        max_selections=MAX_POLICIES,
        accept_new_options=True,
        on_change=_forget_parameters,
        disabled=running,
        placeholder="Choose policies",
        help="The same policy once more with other settings: type it as on the command line, for example "
        "static:factor=1.0",
    )
    try:
        specs = [policy.parse(text.strip()) for text in texts]
    except ScenarioError as error:
        st.error(html.markdown(str(error)))
        return None
    if not texts:
        st.caption("Choose at least one policy.")
    return specs


def _settings(specs: list[PolicySpec], page: str) -> tuple[str, ...] | None:
    """Show every policy's settings as fields. Returns the policies' texts, None if a value cannot be
    used."""
    texts: list[str] = []
    problems: list[str] = []
    with st.expander("Policy settings"):
        tabs = st.tabs([html.markdown(title(spec.name)) for spec in specs]) if specs else []
        for place, (tab, spec) in enumerate(zip(tabs, specs, strict=True)):
            with tab:
                try:
                    texts.append(edit(spec, f"{page}parameter-{place}-{spec.name}").text)
                except ScenarioError as error:
                    problems.append(str(error))
    if len(set(texts)) < len(texts):
        problems.append("Two of the policies are the same: change a setting of one, or take one away.")
    for problem in problems:
        st.error(html.markdown(problem))
    return None if problems else tuple(texts)


def _forget_parameters() -> None:
    """Clear the fields. They are identified by their policy's position, which has just changed."""
    for key in [key for key in st.session_state if "parameter-" in str(key)]:
        del st.session_state[key]


def _conditions(chosen: AnyChoices, page: str, running: bool) -> AnyChoices:
    with st.expander("Conditions"):
        budget = number(
            "Global limit (× the sum of peaks)",
            chosen,
            "budget",
            page,
            running=running,
            step=0.1,
            about="What all containers of an application may have together, CPU and memory: this many times "
            "the sum of their profiled peaks. The same ceiling for every policy. Default 1.5.",
        )
        seed = st.number_input(
            "Seed",
            *(int(bound) for bound in limits("seed")),
            value=chosen.seed,
            step=1,
            key=f"{page}seed",
            disabled=running,
            help="The same seed gives the same result, to the bit. Default 0.",
        )
        cpu, memory = st.columns(2)
        with cpu:
            cpu_price = number(
                "USD per core-hour",
                chosen,
                "cpu_price",
                page,
                running=running,
                step=0.001,
                form="%.6f",
                about="Price of a reserved core for an hour. The default is a cloud's list price; its source "
                "is below the results.",
            )
        with memory:
            memory_price = number(
                "USD per GiB-hour",
                chosen,
                "memory_price",
                page,
                running=running,
                step=0.001,
                form="%.6f",
                about="Price of a reserved GiB of memory for an hour.",
            )
    return replace(chosen, budget=budget, seed=int(seed), cpu_price=cpu_price, memory_price=memory_price)


def number(
    label: str,
    chosen: Choices,
    key: str,
    page: str,
    *,
    running: bool,
    step: float,
    about: str,
    form: str | None = None,
) -> float:
    """Show a field for a number of the selection, with the limits that hold in an address too."""
    least, most = limits(key)
    entered = st.number_input(
        label,
        least,
        most,
        value=float(getattr(chosen, key)),
        step=step,
        format=form,
        key=f"{page}{key}",
        disabled=running,
        help=about,
    )
    return float(entered)


_WORDS = {"Cpu": "CPU", "cpu": "CPU", "Oom": "OOM", "oom": "OOM", "cores": "CPU", "bytes": "memory"}
"""Words of a parameter's name as a label shows them. The unit follows the label, so a name that ends in a
unit gets the quantity instead."""
_BIG = 1e15
"""Largest number of a field. Streamlit refuses numbers that JavaScript cannot hold exactly."""


def edit(spec: PolicySpec, key: str) -> PolicySpec:
    """Show every parameter of the policy and return the policy with the entered values.

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
    """Return a value in the form of a policy's text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(value: Any) -> Value:
    """Return several numbers as one text, `0.1/0.2`, and any other value unchanged."""
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
    """Return a tenth of the default's order of magnitude: 0.2 → 0.01, 60 → 1."""
    return float(10.0 ** (math.floor(math.log10(abs(default))) - 1)) if default else 0.1


def _range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return "any number"
    if high is None:
        return f"{low:g} or more"
    return f"up to {high:g}" if low is None else f"{low:g} to {high:g}"
