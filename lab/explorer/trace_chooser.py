"""Draws the left side of the page "Containers": the trace. The conditions are in lab.explorer.conditions.

For: these widgets and the request that they make. Not for: running it (lab.explorer.job).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from lab.charts import drawing
from lab.charts.words import duration
from lab.containers.input.whatif import whatif_scenario
from lab.explorer import cached, conditions, html, reading, session, uploads
from lab.explorer.sections import section
from lab.explorer.selection import TraceChoices
from lab.explorer.trace_facts import TraceFacts
from lab.explorer.worker import Request
from traces.load import shipped
from twinbed import TraceError
from twinbed.text import counted

FIELDS = ("recording", *conditions.FIELDS)
"""Fields of TraceChoices that these widgets set."""

OWN = "upload"
"""Stands for the user's uploaded trace in place of a recording's name."""

_OWN_TITLE = "Upload your own trace…"


def choose(*, running: bool) -> tuple[TraceChoices, bool, DeltaGenerator]:
    """Show the widgets, disabled while a job is running.

    Returns the choices, whether they can be run, and a place for a button. The place is above the settings,
    so that the button does not move when they are unfolded.
    """
    before = session.TRACES.selection()
    recording, have_trace = _trace(before, running)
    chosen, ready, below = conditions.choose(replace(before, recording=recording), "", running=running)
    return chosen, have_trace and ready, below


def request(chosen: TraceChoices, store: Path) -> Request:
    """Return the request for a worker. Raises TraceError if an upload cannot be written to disk."""
    source = source_name(chosen)
    if source is None:
        raise TraceError("no trace uploaded yet")
    scenario = whatif_scenario(source, chosen.policies, seed=chosen.seed, overrides=chosen.overrides())
    upload = session.upload()
    lent = str(uploads.lend(upload)) if chosen.recording == OWN and upload is not None else ""
    return Request.of(scenario, store, lent)


def source_name(chosen: TraceChoices) -> str | None:
    """Return the name of the chosen trace in a run's manifest, None if none is chosen."""
    if chosen.recording != OWN:
        return chosen.recording
    upload = session.upload()
    return None if upload is None else upload.name


def problem(chosen: TraceChoices) -> str:
    """Return one line about the error of the chosen trace, empty if there is none or no trace is chosen."""
    if chosen.recording == OWN:
        return str(st.session_state.get("upload_problem", ""))
    try:
        cached.recording(chosen.recording)
    except TraceError as error:
        return str(error)
    return ""


def preview(chosen: TraceChoices) -> None:
    """Show the chosen trace's demand before it is replayed."""
    trace = _chosen_trace(chosen)
    if trace is None:
        return
    section("What will be replayed")
    st.altair_chart(drawing.workload(trace.demand, trace.start_s), key="preview")


def _trace(before: TraceChoices, running: bool) -> tuple[str, bool]:
    names = [*shipped(), OWN]
    if "recording" not in st.session_state:
        known = before.recording in names
        st.session_state["recording"] = before.recording if known else names[0]
        if before.recording and not known:
            st.warning(
                html.markdown(
                    f"There is no recording {before.recording!r}; there are {', '.join(names[:-1])}."
                )
            )
    recording: str = st.selectbox(
        "Trace",
        names,
        format_func=lambda name: _OWN_TITLE if name == OWN else name.replace("_", " "),
        key="recording",
        disabled=running,
        help="Recordings that come with twinbed, or a trace of your own.",
    )
    # These places always exist, so widgets below neither move nor are drawn twice for a moment.
    uploader, description = st.container(), st.container()
    if recording == OWN:
        with uploader:
            _uploader(running)
    trace = _chosen_trace(replace(before, recording=recording))
    if trace is None:
        return recording, False
    description.caption(
        html.markdown(
            f"{counted(len(trace.containers), 'container')}, {duration(trace.duration_s)}, "
            f"one sample every {duration(trace.interval_s)}."
        )
    )
    for note in trace.notes:
        description.caption(html.markdown(note))
    return recording, True


def _uploader(running: bool) -> None:
    upload = st.file_uploader(
        uploads.LABEL,
        type=list(uploads.TYPES),
        max_upload_size=uploads.MAX_MIB,
        key="uploaded",
        disabled=running,
        help="CSV: long (container, time_s, cpu_cores, memory_bytes) or wide (time_s and a column per "
        "container). Parquet: the same columns, or as `twinbed record` writes it. A saved answer of "
        "query_range, or OpenMetrics text. Each may be gzipped.",
    )
    if upload is None:
        if st.session_state.pop("upload_token", None):
            st.session_state["upload_problem"] = ""  # the problem of a file that was removed
        kept = session.upload()
        if kept is not None:
            st.caption(f"Uploaded: {html.markdown(kept.name)}")
            if "upload_trace" not in st.session_state:
                _read(kept)
        elif "upload" in st.query_params and "upload_token" not in st.session_state:
            st.caption("The file of this address is not kept here any more: upload it again.")
        return
    token = upload.file_id
    if st.session_state.get("upload_token") == token:
        return
    st.session_state["upload_token"] = token
    session.keep_upload(None)
    st.session_state["upload_trace"] = None
    st.session_state["upload_problem"] = ""
    try:
        given = uploads.received(upload)
        accepted = uploads.accept(given.name, given.content, given.problem)
    except TraceError as error:
        st.session_state["upload_problem"] = str(error)
        return
    if _read(accepted):
        session.keep_upload(accepted)


def _read(upload: uploads.Upload) -> bool:
    """Keep the facts of an uploaded trace, or the reason why it cannot be used. Returns whether it can."""
    try:
        st.session_state["upload_trace"] = reading.trace(upload)
    except TraceError as error:
        st.session_state["upload_problem"] = str(error)
        return False
    return True


def _chosen_trace(chosen: TraceChoices) -> TraceFacts | None:
    """Return the facts of the trace, None if there is none or it cannot be used (see `problem`)."""
    if chosen.recording == OWN:
        return st.session_state.get("upload_trace")
    try:
        return cached.recording(chosen.recording) if chosen.recording in shipped() else None
    except TraceError:
        return None
