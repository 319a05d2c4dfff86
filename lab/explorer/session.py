"""What a session keeps between reruns and pages: the selection and its address, the upload, the job.

For: the only place that touches st.session_state under these names and st.query_params. Not for: widgets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from lab.explorer.job import Job
from lab.explorer.selection import Selection, from_query, to_query
from lab.explorer.uploads import Upload

_SELECTION, _PROBLEMS, _UPLOAD, _JOB = "selection", "address_problems", "upload", "job"


def selection() -> Selection:
    """The session's selection; a new session begins with what its address says."""
    if _SELECTION not in st.session_state:
        query = {key: st.query_params.get_all(key) for key in st.query_params}
        st.session_state[_SELECTION], st.session_state[_PROBLEMS] = from_query(query)
    chosen: Selection = st.session_state[_SELECTION]
    return chosen


def change(**values: Any) -> Selection:
    """Changes fields of the selection and returns it; the address follows with `publish`."""
    st.session_state[_SELECTION] = replace(selection(), **values)
    return selection()


def publish() -> None:
    """Makes the address say what is selected. Written only when it differs: each writing is a message."""
    wanted = to_query(selection())
    shown = {key: st.query_params.get_all(key) for key in st.query_params}
    if shown != {key: value if isinstance(value, list) else [value] for key, value in wanted.items()}:
        st.query_params.from_dict(wanted)


def address_problems() -> list[str]:
    """One line per part of the address that could not be used."""
    found: list[str] = st.session_state.get(_PROBLEMS, [])
    return found


def upload() -> Upload | None:
    """The trace that this session brought, if any."""
    kept: Upload | None = st.session_state.get(_UPLOAD)
    return kept


def keep_upload(given: Upload | None) -> None:
    """Remembers the session's trace, also while another page is shown."""
    st.session_state[_UPLOAD] = given


def job() -> Job | None:
    """The session's one job: running, or ended and not yet taken away by `drop_job`."""
    running: Job | None = st.session_state.get(_JOB)
    return running


def keep_job(started: Job) -> None:
    """Makes this the session's job."""
    st.session_state[_JOB] = started


def drop_job() -> None:
    """Forgets a job that has ended."""
    st.session_state.pop(_JOB, None)
