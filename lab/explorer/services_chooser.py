"""Draws the left side of the page "Services": application, load, duration, and a preview of the load.

For: these widgets and the request that they make. A preview takes the expected rates of a load, without a
draw, so that it costs the same for every rate and length. Not for: running it (lab.explorer.job) or its
conditions (lab.explorer.conditions).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import streamlit as st
from pydantic import TypeAdapter
from streamlit.delta_generator import DeltaGenerator

from lab.ask import shipped
from lab.ask.scenario import build, with_overrides
from lab.charts import services_drawing as drawing
from lab.containers.input.services.application import AppSpec
from lab.containers.input.services.arrivals import (
    PRESETS,
    AlibabaLike,
    ArrivalSpec,
    Burst,
    Exponential,
    Fixed,
)
from lab.explorer import cached, conditions, html, session
from lab.explorer.sections import section
from lab.explorer.selection import ServiceChoices
from lab.explorer.worker import Request
from lab.runs.store import Run
from twin.containers.model import Floats
from twin.containers.requests.arrivals import wandering_rates
from twinbed import InvariantError
from twinbed.text import counted

FIELDS = ("app", "arrivals", "scale", "duration_s", *conditions.FIELDS)
"""Fields of ServiceChoices that these widgets set."""

_PAGE = "services-"
_EDGE, _BOX, _INK = "#7F8790", "#DCE6EF", "#1B1F24"
_ARRIVALS = {
    "fixed": ("Fixed", "400 requests a second at equal distances"),
    "exponential": ("Exponential", "300 requests a second at random, exponentially distributed distances"),
    "burst": ("Burst", "50 requests a second, and every 20 s for 10 s another 600 a second"),
    "alibaba_like": ("Alibaba-like", "a rate that varies between 56 and 548 requests a second"),
}


def choose(*, running: bool) -> tuple[ServiceChoices, bool, DeltaGenerator]:
    """Show the widgets, disabled while a job is running.

    Returns the choices, whether they can be run, and a place for a button.
    """
    before = session.SERVICES.selection()
    app = _application(before, running)
    arrivals = _one_of(
        "Workload",
        list(PRESETS),
        before.arrivals,
        "arrivals",
        running=running,
        names={key: name for key, (name, _) in _ARRIVALS.items()},
        about="Times of requests, which do not depend on earlier answers: the four workloads of "
        "Escra's evaluation.",
    )
    st.caption(f"{html.markdown(_ARRIVALS[arrivals][1].capitalize())}.")
    rate, length = st.columns(2)
    with rate:
        scale = conditions.number(
            "Rate (×)",
            before,
            "scale",
            _PAGE,
            running=running,
            step=0.1,
            about="Multiplies every rate of the workload. Default 1.",
        )
    with length:
        duration_s = conditions.number(
            "Duration (s)",
            before,
            "duration_s",
            _PAGE,
            running=running,
            step=30.0,
            form="%g",
            about="Length of the load, in simulated seconds. Default 60; 300 in Escra's evaluation. "
            "Policies that look back over minutes need it longer.",
        )
    chosen = replace(before, app=app, arrivals=arrivals, scale=scale, duration_s=duration_s)
    return conditions.choose(chosen, _PAGE, running=running)


def request(chosen: ServiceChoices, store: Path) -> Request:
    """Return the request for a worker. Raises ScenarioError."""
    raw = {
        "name": chosen.app,
        "services": {
            "app": chosen.app,
            "arrivals": {"kind": chosen.arrivals, "scale": chosen.scale},
            "duration_s": chosen.duration_s,
        },
        "policies": list(chosen.policies),
        "seeds": [chosen.seed],
    }
    return Request.of(with_overrides(build(raw, "Services"), chosen.overrides()), store)


def answered(run: Run, chosen: ServiceChoices) -> ServiceChoices:
    """Return `chosen` with the application and the load of this run."""
    load = next(entry for entry in run.manifest["inputs"] if entry["role"] == "arrivals")
    return replace(
        chosen,
        app=run.manifest["workload"]["application"],
        arrivals=load["kind"],
        scale=load.get("scale", 1.0),
        duration_s=run.manifest["spec"]["services"]["duration_s"],
    )


def preview(chosen: ServiceChoices) -> None:
    """Show the chosen application and its load before it is run."""
    app = cached.application(chosen.app)
    section("Load of the clients")
    st.altair_chart(
        drawing.offered(rates(chosen.arrivals, chosen.scale, chosen.duration_s, chosen.seed)), key="preview"
    )
    st.caption("Expected requests a second over time; every run draws its own requests from its seed.")
    section(f"Calls between services of {app.title or app.name}")
    st.graphviz_chart(_calls(app), width="stretch")
    st.caption(f"Clients on the left, the services that they call to the right. {html.markdown(app.source)}")


def _application(before: ServiceChoices, running: bool) -> str:
    apps = {name: cached.application(name) for name in shipped.names("application")}
    # Text in brackets after a title has no room here; the caption below contains it.
    titles = {
        name: f"{(app.title or name).partition(' (')[0]} · {counted(len(app.container_names()), 'container')}"
        for name, app in apps.items()
    }
    # The smallest application comes first, because its answer comes soonest.
    names = sorted(apps, key=lambda name: len(apps[name].container_names()))
    picked = _one_of(
        "Application",
        names,
        before.app,
        "app",
        running=running,
        names=titles,
        about="Service graphs that come with twinbed. Your own is run by `twinbed run` with a scenario that "
        "names its file; the page Runs shows the result.",
    )
    app = apps[picked]
    st.caption(
        html.markdown(
            f"{app.title or picked}: {counted(len(app.services), 'service')}, "
            f"{counted(len(app.requests), 'kind of request', 'kinds of request')}."
        )
    )
    return picked


def _one_of(
    label: str, options: list[str], before: str, key: str, *, running: bool, names: dict[str, str], about: str
) -> str:
    """Show a choice among names. For an unknown name, show a line and return the first name."""
    widget = f"{_PAGE}{key}"
    if widget not in st.session_state:
        st.session_state[widget] = before if before in options else options[0]
        if before and before not in options:
            st.warning(
                html.markdown(f"There is no {label.lower()} {before!r}; there are {', '.join(options)}.")
            )
    return st.selectbox(
        label, options, format_func=names.__getitem__, key=widget, disabled=running, help=about
    )


def _calls(app: AppSpec) -> str:
    """Return the graph of calls in Graphviz's language: the services, and before them the requests of
    clients."""
    lines = [
        "digraph {",
        'graph [rankdir=LR bgcolor="transparent" nodesep=0.12 ranksep=0.5]',
        f'node [shape=box style="rounded,filled" color="{_EDGE}" fillcolor="{_BOX}" fontcolor="{_INK}" '
        'fontname="sans-serif" fontsize=11 height=0.3 margin="0.1,0.04"]',
        f'edge [color="{_EDGE}" arrowsize=0.5]',
        "clients [shape=ellipse]",
    ]
    for name in app.services:
        replicas = app.settings(name).replicas
        label = name if replicas == 1 else f"{name} × {replicas}"
        lines.append(f"{json.dumps(name)} [label={json.dumps(label)}]")
    entries = dict.fromkeys(request.handler.partition(".")[0] for request in app.requests.values())
    lines += [f"clients -> {json.dumps(name)}" for name in entries]
    edges = {
        (handler.partition(".")[0], call.call.partition(".")[0]): None
        for handler, spec in app.handlers().items()
        for _, stage in spec.stages()
        for call in stage
    }
    lines += [f"{json.dumps(caller)} -> {json.dumps(callee)}" for caller, callee in edges]
    return "\n".join([*lines, "}"])


_STRETCHES = 300


def rates(arrivals: str, scale: float, duration_s: float, seed: int) -> pd.DataFrame:
    """Return the expected rate of a preset in at most _STRETCHES stretches. Columns: at_s, rps.

    Only the rates of `alibaba_like` are random: one value per second.
    """
    spec = TypeAdapter(ArrivalSpec).validate_python({"kind": arrivals, "scale": scale})
    width = max(1.0, np.ceil(duration_s / _STRETCHES))
    edges = np.append(np.arange(0.0, duration_s, width), duration_s)
    expected = _expected(spec, duration_s, np.random.default_rng(seed))(edges)
    return pd.DataFrame({"at_s": edges[:-1], "rps": np.diff(expected) / np.diff(edges)})


def _expected(spec: ArrivalSpec, duration_s: float, rng: np.random.Generator) -> Callable[[Floats], Floats]:
    """Return the expected number of requests up to a time."""
    match spec:
        case Fixed() | Exponential():
            return lambda at_s: spec.rate_rps * spec.scale * at_s
        case Burst():
            return lambda at_s: spec.scale * (spec.base_rps * at_s + spec.burst_rps * _bursting_s(spec, at_s))
        case AlibabaLike():
            drawn = wandering_rates(
                spec.low_rps, spec.high_rps, spec.correlation_s, spec.step_s, duration_s, rng
            )
            until_s = np.arange(len(drawn) + 1) * spec.step_s
            sums = spec.scale * spec.step_s * np.append(0.0, np.cumsum(drawn))
            return lambda at_s: np.interp(at_s, until_s, sums)
    raise InvariantError(f"no preview of {type(spec).__name__}")


def _bursting_s(spec: Burst, at_s: Floats) -> Floats:
    """Return the time before `at_s` that lies in bursts, which end every cycle, s."""
    cycles, inside = np.divmod(at_s, spec.every_s)
    return cycles * spec.length_s + np.maximum(0.0, inside - (spec.every_s - spec.length_s))
