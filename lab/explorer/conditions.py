"""Draws the part of every page's left side that sets the conditions: policies, their settings, limits and
prices.

For: these widgets. Not for: what runs under these conditions (lab.explorer.trace_chooser,
lab.explorer.services_chooser).
"""

from __future__ import annotations

from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from lab.ask import policy
from lab.ask.policy import PolicySpec
from lab.charts.palette import title
from lab.explorer import html, parameters
from lab.explorer.selection import MAX_POLICIES, AnyChoices, Choices, limits
from twinbed import ScenarioError

FIELDS = ("policies", "budget", "seed", "cpu_price", "memory_price")
"""Fields of a selection that these widgets set."""


def choose(before: AnyChoices, page: str, *, running: bool) -> tuple[AnyChoices, bool, DeltaGenerator]:
    """Shows the widgets, disabled while a job is running.

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
    """Returns the chosen policies without their settings, None if one of them cannot be used."""
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
    """Shows every policy's settings as fields. Returns the policies' texts, None if a value cannot be
    used."""
    texts: list[str] = []
    problems: list[str] = []
    with st.expander("Policy settings"):
        tabs = st.tabs([html.markdown(title(spec.name)) for spec in specs]) if specs else []
        for place, (tab, spec) in enumerate(zip(tabs, specs, strict=True)):
            with tab:
                try:
                    texts.append(parameters.edit(spec, f"{page}parameter-{place}-{spec.name}").text)
                except ScenarioError as error:
                    problems.append(str(error))
    if len(set(texts)) < len(texts):
        problems.append("Two of the policies are the same: change a setting of one, or take one away.")
    for problem in problems:
        st.error(html.markdown(problem))
    return None if problems else tuple(texts)


def _forget_parameters() -> None:
    """Clears the fields. They are identified by their policy's position, which has just changed."""
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
    """Shows a field for a number of the selection, with the limits that hold in an address too."""
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
