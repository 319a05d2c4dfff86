"""Shows the session's job on a page: a bar with the policy that is being simulated, a cancel button, how
it ended.

For: these widgets on whatever page is open. Not for: the job itself (lab.explorer.job).
"""

from __future__ import annotations

import streamlit as st

from lab.charts.palette import title
from lab.explorer import html, session
from lab.explorer.job import Status

_EVERY_S = 0.4
_FAILURE, _CANCELLED = "failure", "cancelled"


def take_finished() -> None:
    """Shows the runs of a job that has ended, or keeps the reason why it failed."""
    job = session.job()
    if job is None:
        return
    status = job.status()
    if not status.ended:
        return
    owner = session.drop_job()
    if status.phase == "done":
        owner.take(status)
    elif status.phase == "failed":
        fail(status.message)
    else:
        st.session_state[_CANCELLED] = "Cancelled. Policies that were finished are stored, half a run is not."


def show() -> None:
    """Shows the session's job, or why the last one failed."""
    if session.job() is not None:
        _follow()
    elif failed := st.session_state.get(_FAILURE):
        st.error(html.markdown(failed))
    elif cancelled := st.session_state.get(_CANCELLED):
        st.info(html.markdown(cancelled))


def clear() -> None:
    """Forgets how the last job ended."""
    for key in (_FAILURE, _CANCELLED):
        st.session_state.pop(key, None)


def fail(message: str) -> None:
    """Says why there is no job."""
    st.session_state[_FAILURE] = message


@st.fragment(run_every=_EVERY_S)
def _follow() -> None:
    """Follows the job without redrawing the rest of the page."""
    job = session.job()
    if job is None:
        return
    status = job.status()
    if status.ended:
        st.rerun()
    bar, button = st.columns([6, 1], vertical_alignment="center")
    bar.progress(min(1.0, status.fraction), html.markdown(_text(status)))
    if button.button("Cancel", key="cancel", width="stretch"):
        job.cancel()
        st.rerun()


def _text(status: Status) -> str:
    if status.place:
        return (
            f"Waiting for other visitors' runs: place {status.place:d} in the queue, {status.elapsed_s:.0f} s"
        )
    if not status.label:
        return f"Preparing… {status.elapsed_s:.0f} s"
    return f"{title(status.label)}: {status.fraction:.0%} of all policies, {status.elapsed_s:.0f} s"
