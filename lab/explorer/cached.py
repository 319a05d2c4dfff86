"""What the pages read more than once, kept in memory between reruns and shared by all sessions.

For: bounded caches over lab.charts.series and traces. Not for: computing. A run is told by its path and
its tables' checksums, so a run that is replaced under the same id is read afresh.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from lab.charts import series
from lab.store import Run
from traces.load import load
from traces.schema import UsageTrace


def _identity(run: Run) -> tuple[str, ...]:
    tables = run.manifest["tables"]
    return (str(run.path), tables["periods"], tables["events"], tables["containers"])


_RUN: dict[str | type[Any], Callable[[Any], Any]] = {Run: _identity}


@st.cache_data(max_entries=24, show_spinner=False, hash_funcs=_RUN)
def container(run: Run, name: str) -> pd.DataFrame:
    """`series.container`."""
    return series.container(run, name)


@st.cache_data(max_entries=96, show_spinner=False, hash_funcs=_RUN)
def events(run: Run, name: str) -> pd.DataFrame:
    """`series.events`."""
    return series.events(run, name)


@st.cache_data(max_entries=96, show_spinner=False, hash_funcs=_RUN)
def slack_distribution(run: Run, quantity: str) -> pd.DataFrame:
    """`series.slack_distribution`."""
    return series.slack_distribution(run, quantity)


@st.cache_data(max_entries=96, show_spinner=False, hash_funcs=_RUN)
def throttled_share(run: Run, buckets: int) -> pd.DataFrame:
    """`series.throttled_share`."""
    return series.throttled_share(run, buckets)


@st.cache_resource(max_entries=4, show_spinner=False)
def recording(name: str) -> UsageTrace:
    """A shipped recording. Shared, not copied: nobody may change it. Raises TraceError."""
    return load(name)
