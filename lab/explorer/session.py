"""What a session keeps between reruns and pages: selections and their addresses, the upload, the job.

For: the only place that touches st.session_state under these names and st.query_params. Not for: widgets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generic

import streamlit as st

from lab.explorer.job import Job
from lab.explorer.selection import AnyChoices, ServiceChoices, TraceChoices, from_query, to_query
from lab.explorer.uploads import Upload

_UPLOAD, _JOB, _OWNER = "upload", "job", "job_owner"


class Kept(Generic[AnyChoices]):
    """One page's selection, in the session and in the page's address."""

    def __init__(self, kind: type[AnyChoices]) -> None:
        self._kind = kind
        self._selection, self._problems = f"selection-{kind.__name__}", f"problems-{kind.__name__}"

    def selection(self) -> AnyChoices:
        """The session's selection; on the page's first showing what its address says."""
        if self._selection not in st.session_state:
            query = {key: st.query_params.get_all(key) for key in st.query_params}
            st.session_state[self._selection], st.session_state[self._problems] = from_query(
                self._kind, query
            )
        chosen: AnyChoices = st.session_state[self._selection]
        return chosen

    def change(self, **values: Any) -> AnyChoices:
        """Changes fields of the selection and returns it; the address follows with `publish`."""
        st.session_state[self._selection] = replace(self.selection(), **values)
        return self.selection()

    def publish(self) -> None:
        """Makes the address say what is selected. Written only when it differs: each writing is a message."""
        wanted = to_query(self.selection())
        shown = {key: st.query_params.get_all(key) for key in st.query_params}
        if shown != {key: value if isinstance(value, list) else [value] for key, value in wanted.items()}:
            st.query_params.from_dict(wanted)

    def address_problems(self) -> list[str]:
        """One line per part of the address that could not be used."""
        problems: list[str] = st.session_state.get(self._problems, [])
        return problems

    def keep(self, **values: Any) -> None:
        """Changes what is looked at, in the address too; what is there already costs nothing."""
        before = self.selection()
        if self.change(**values) != before:
            self.publish()


TRACES = Kept(TraceChoices)
"""Of the page "Containers"."""
SERVICES = Kept(ServiceChoices)
"""Of the page "Services"."""


def upload() -> Upload | None:
    """The trace that this session brought, if any."""
    kept: Upload | None = st.session_state.get(_UPLOAD)
    return kept


def keep_upload(upload: Upload | None) -> None:
    """Remembers the session's trace, also while another page is shown."""
    st.session_state[_UPLOAD] = upload


def job() -> Job | None:
    """The session's one job: running, or ended and not yet taken away by `drop_job`."""
    running: Job | None = st.session_state.get(_JOB)
    return running


def keep_job(started: Job, owner: Kept[Any]) -> None:
    """Makes this the session's job; its runs will be shown by the page that has `owner`."""
    st.session_state[_JOB], st.session_state[_OWNER] = started, owner


def drop_job() -> Kept[Any]:
    """Forgets a job that has ended; returns whose it was."""
    del st.session_state[_JOB]
    owner: Kept[Any] = st.session_state.pop(_OWNER)
    return owner
