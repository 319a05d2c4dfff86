"""Keeps in memory what the pages read more than once, between reruns and for all sessions.

For: bounded caches over lab.charts, traces and applications. Not for: computing. A run is identified by its
path and its tables' checksums, so a run that was replaced under the same id is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from lab.ask import shipped
from lab.charts import series, services
from lab.containers.input.services.application import AppSpec, load_app
from lab.containers.run.waiting import Waiting
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


_RUN: dict[str | type[Any], Callable[[Any], Any]] = {Run: _identity}


@st.cache_data(max_entries=24, show_spinner=False, hash_funcs=_RUN)
def container(run: Run, name: str) -> pd.DataFrame:
    """Returns the cached result of `series.container`."""
    return series.container(run, name)


@st.cache_data(max_entries=96, show_spinner=False, hash_funcs=_RUN)
def events(run: Run, name: str) -> pd.DataFrame:
    """Returns the cached result of `series.events`."""
    return series.events(run, name)


@st.cache_data(max_entries=96, show_spinner=False, hash_funcs=_RUN)
def waiting(run: Run) -> Waiting:
    """Returns the cached result of `lab.containers.run.waiting.waiting`."""
    return of_run(run)


@st.cache_data(max_entries=96, show_spinner=False, hash_funcs=_RUN)
def slack_distribution(run: Run, quantity: str) -> pd.DataFrame:
    """Returns the cached result of `series.slack_distribution`."""
    return series.slack_distribution(run, quantity)


@st.cache_data(max_entries=96, show_spinner=False, hash_funcs=_RUN)
def throttled_share(run: Run, buckets: int) -> pd.DataFrame:
    """Returns the cached result of `series.throttled_share`."""
    return series.throttled_share(run, buckets)


@st.cache_data(max_entries=16, show_spinner=False)
def recording(name: str) -> TraceFacts:
    """Returns the facts of a shipped recording. Raises TraceError, also for the path of another file: a
    browser may send any text as its choice."""
    if name not in shipped_recordings():
        raise TraceError(f"there is no recording {name!r}")
    return facts(load(name))


@st.cache_data(max_entries=48, show_spinner=False, hash_funcs=_RUN)
def clients_over_time(run: Run, most: int) -> pd.DataFrame:
    """Returns the cached result of `services.over_time`."""
    return services.over_time(run, most)


@st.cache_data(max_entries=48, show_spinner=False, hash_funcs=_RUN)
def latency_distribution(run: Run) -> pd.DataFrame:
    """Returns the cached result of `services.latency_distribution`."""
    return services.latency_distribution(run)


@st.cache_data(max_entries=48, show_spinner=False, hash_funcs=_RUN)
def fates(run: Run) -> pd.DataFrame:
    """Returns the cached result of `services.fates`."""
    return services.fates(run)


@st.cache_data(max_entries=48, show_spinner=False, hash_funcs=_RUN)
def by_kind(run: Run) -> pd.DataFrame:
    """Returns the cached result of `services.by_kind`."""
    return services.by_kind(run)


@st.cache_data(max_entries=48, show_spinner=False, hash_funcs=_RUN)
def by_container(run: Run) -> pd.DataFrame:
    """Returns the cached result of `services.by_container`."""
    return services.by_container(run)


@st.cache_data(max_entries=8, show_spinner=False)
def application(name: str) -> AppSpec:
    """Returns a shipped application. Raises ScenarioError, also for the path of another file."""
    if name not in shipped.names("application"):
        raise ScenarioError(f"there is no application {name!r}")
    return load_app(name)


@st.cache_data(max_entries=2, show_spinner="Comparing twin and testbed", hash_funcs=_RUN)
def cells(runs: list[Run]) -> list[Cell]:
    """Returns the cached result of `both.cells`."""
    return both.cells(runs)
