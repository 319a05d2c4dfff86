"""Keeps a session's state between reruns and pages: selections and their addresses, the upload, the job.

For: the only place that touches st.session_state under these names and st.query_params, and the bound on
tabs that are open at once. Not for: widgets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, Protocol

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from lab.explorer import limits
from lab.explorer.job import Job, Status
from lab.explorer.selection import AnyChoices, ServiceChoices, TraceChoices, from_query, to_query
from lab.explorer.uploads import Upload

_UPLOAD, _JOB, _OWNER = "upload", "job", "job_owner"


class Owner(Protocol):
    """A page that gets what its job found."""

    def take(self, status: Status) -> None:
        """Keeps the result of a job that is done."""


class Kept(Generic[AnyChoices]):
    """One page's selection, in the session and in the page's address."""

    def __init__(self, kind: type[AnyChoices]) -> None:
        self._kind = kind
        self._selection, self._problems = f"selection-{kind.__name__}", f"problems-{kind.__name__}"

    def selection(self) -> AnyChoices:
        """Returns the session's selection. When the page is shown first, this is what its address asks
        for."""
        if self._selection not in st.session_state:
            query = {key: st.query_params.get_all(key) for key in st.query_params}
            st.session_state[self._selection], st.session_state[self._problems] = from_query(
                self._kind, query
            )
        chosen: AnyChoices = st.session_state[self._selection]
        return chosen

    def change(self, **values: Any) -> AnyChoices:
        """Changes fields of the selection and returns it. `publish` then changes the address."""
        st.session_state[self._selection] = replace(self.selection(), **values)
        return self.selection()

    def reset(self, selection: AnyChoices) -> None:
        """Replaces the whole selection, whatever the address says."""
        st.session_state[self._selection], st.session_state[self._problems] = selection, []

    def take(self, status: Status) -> None:
        """Shows the runs of a job that is done."""
        self.change(runs=status.runs)
        st.session_state.pop("shown_window", None)

    def publish(self) -> None:
        """Writes the selection into the address if it differs: each write is a message to the browser."""
        wanted = to_query(self.selection())
        shown = {key: st.query_params.get_all(key) for key in st.query_params}
        if shown != {key: value if isinstance(value, list) else [value] for key, value in wanted.items()}:
            st.query_params.from_dict(wanted)

    def address_problems(self) -> list[str]:
        """Returns one line per part of the address that could not be used."""
        problems: list[str] = st.session_state.get(self._problems, [])
        return problems

    def keep(self, **values: Any) -> None:
        """Changes fields of the selection and the address. Has no effect if nothing differs."""
        before = self.selection()
        if self.change(**values) != before:
            self.publish()


TRACES = Kept(TraceChoices)
"""Selection of the page "Containers"."""
SERVICES = Kept(ServiceChoices)
"""Selection of the page "Services"."""


def upload() -> Upload | None:
    """Returns the trace that the user uploaded, if any."""
    kept: Upload | None = st.session_state.get(_UPLOAD)
    return kept


def keep_upload(upload: Upload | None) -> None:
    """Remembers the uploaded trace, also while another page is shown."""
    st.session_state[_UPLOAD] = upload


def job() -> Job | None:
    """Returns the session's only job: waiting, running, or ended and not yet removed by `drop_job`."""
    running: Job | None = st.session_state.get(_JOB)
    return running


def keep_job(started: Job, owner: Owner) -> None:
    """Makes this the session's job. The page that has `owner` will show its result."""
    st.session_state[_JOB], st.session_state[_OWNER] = started, owner


def presence() -> Callable[[], bool]:
    """Returns a function that tells, on any thread, whether this visitor's browser is connected."""
    context = get_script_run_ctx()
    if context is None or not runtime.exists():
        return lambda: True
    server, session_id = runtime.get_instance(), context.session_id
    return lambda: server.is_active_session(session_id)


def is_admitted() -> bool:
    """Returns whether this tab has a place among those that may be open at once."""
    context = get_script_run_ctx()
    return context is None or TABS.admit(context.session_id, presence())


def drop_job() -> Owner:
    """Removes a job that has ended, and returns its owner."""
    del st.session_state[_JOB]
    owner: Owner = st.session_state.pop(_OWNER)
    return owner


class Tabs:
    """most: tabs that may be open at once. Every method may be called by any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._present: dict[str, Callable[[], bool]] = {}

    def admit(self, tab: str, present: Callable[[], bool]) -> bool:
        """Returns whether the tab has a place, and gives it one that is free. present: whether it is
        connected; a tab that is not gives up its place."""
        with self._lock:
            self._present = {name: is_there for name, is_there in self._present.items() if is_there()}
            if tab not in self._present and len(self._present) >= self._most:
                return False
            self._present[tab] = present
            return True


TABS = Tabs(limits.TABS)
"""The tabs of this server."""
