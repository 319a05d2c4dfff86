"""Caches data that the pages read more than once, between reruns and for all sessions.

For: bounded caches over lab.charts, traces and applications. Not for: computing. A run is identified by its
path and its tables' checksums, so a run that was replaced under the same id is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import streamlit as st

from lab.ask import shipped
from lab.charts import series, services
from lab.containers.input.services.application import AppSpec, load_app
from lab.containers.run.waiting import waiting as of_run
from lab.containers.validate import both
from lab.containers.validate.both import Cell
from lab.explorer.trace_facts import TraceFacts, facts
from lab.runs.store import Run
from traces.load import load
from traces.load import shipped as shipped_recordings
from twinbed import ScenarioError, TraceError


def _identity(run: Run) -> tuple[str, ...]:
    tables = run.manifest["tables"]
    return (str(run.path), *(tables[name] for name in sorted(tables)))


Asked = ParamSpec("Asked")
Made = TypeVar("Made")
_RUN: dict[str | type[Any], Callable[[Any], Any]] = {Run: _identity}


def _kept(compute: Callable[Asked, Made], most: int) -> Callable[Asked, Made]:
    """Return the function with a cache of `most` results."""
    return st.cache_data(max_entries=most, show_spinner=False, hash_funcs=_RUN)(compute)


container = _kept(series.container, 24)
events = _kept(series.events, 96)
waiting = _kept(of_run, 96)
slack_distribution = _kept(series.slack_distribution, 96)
throttled_share = _kept(series.throttled_share, 96)
clients_over_time = _kept(services.over_time, 48)
latency_distribution = _kept(services.latency_distribution, 48)
fates = _kept(services.fates, 48)
by_kind = _kept(services.by_kind, 48)
by_container = _kept(services.by_container, 48)


@st.cache_data(max_entries=16, show_spinner=False)
def recording(name: str) -> TraceFacts:
    """Return the facts of a shipped recording. Raises TraceError, also for the path of another file: a
    browser may send any text as its choice."""
    if name not in shipped_recordings():
        raise TraceError(f"there is no recording {name!r}")
    return facts(load(name))


@st.cache_data(max_entries=8, show_spinner=False)
def application(name: str) -> AppSpec:
    """Return a shipped application. Raises ScenarioError, also for the path of another file."""
    if name not in shipped.names("application"):
        raise ScenarioError(f"there is no application {name!r}")
    return load_app(name)


@st.cache_data(max_entries=2, show_spinner="Comparing twin and testbed", hash_funcs=_RUN)
def cells(runs: list[Run]) -> list[Cell]:
    """Return the cached result of `both.cells`."""
    return both.cells(runs)
