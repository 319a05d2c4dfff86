"""The left side of the Containers page: which trace, which policies with which settings, what conditions.

For: these widgets, and the request that they amount to. Not for: running it (lab.explorer.job).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from lab import policy
from lab.charts import drawing
from lab.charts.palette import title
from lab.explorer import cached, parameters, session, uploads
from lab.explorer.selection import MAX_POLICIES, Selection
from lab.explorer.worker import Request
from lab.policy import PolicySpec
from traces.load import shipped
from traces.schema import UsageTrace
from twinbed import ScenarioError, TraceError

FIELDS = ("recording", "policies", "budget", "seed", "cpu_price", "memory_price")
"""The fields of a Selection that these widgets set."""

OWN = "upload"
"""In place of a recording's name: the trace that the user brought."""

_OWN_TITLE = "Upload your own trace…"
_PREVIEW_POINTS = 400
_PREVIEW_CONTAINERS = 12


def choose(*, running: bool) -> tuple[Selection, bool, DeltaGenerator]:
    """Shows the widgets, out of use while a job is running.

    What is chosen, whether it can be run, and the place for a button: above the settings, so that it stays
    where it is when they are unfolded.
    """
    before = session.selection()
    recording, have_trace = _trace(before, running)
    specs = _policies(before, running)
    below = st.container()
    texts = None if specs is None else _settings(specs)
    kept = before.policies if texts is None else texts
    chosen = _conditions(replace(before, recording=recording, policies=kept), running)
    return chosen, have_trace and bool(texts), below


def request(chosen: Selection, store: Path) -> Request:
    """What a worker is asked for. Raises TraceError when an upload cannot be handed over."""
    given = session.upload()
    folder, source = "", chosen.recording
    if chosen.recording == OWN:
        if given is None:
            raise TraceError("no trace uploaded yet")
        folder, source = str(uploads.lend(given)), given.name
    return Request(
        source=source,
        policies=chosen.policies,
        seed=chosen.seed,
        overrides=tuple(chosen.overrides()),
        store=str(store.absolute()),
        folder=folder,
    )


def source_name(chosen: Selection) -> str | None:
    """What a run's manifest calls the chosen trace; None when none is chosen."""
    if chosen.recording != OWN:
        return chosen.recording
    given = session.upload()
    return None if given is None else given.name


def problem(chosen: Selection) -> str:
    """What is wrong with the chosen trace, one line; empty when nothing is, or none is chosen."""
    if chosen.recording == OWN:
        return str(st.session_state.get("upload_problem", ""))
    try:
        cached.recording(chosen.recording)
    except TraceError as error:
        return str(error)
    return ""


def preview(chosen: Selection) -> None:
    """The chosen trace's demand, to see what will be replayed."""
    trace = _chosen_trace(chosen)
    if trace is None:
        return
    st.subheader("What will be replayed", anchor=False)
    st.altair_chart(drawing.workload(_thin(trace)), key="preview")


def _trace(before: Selection, running: bool) -> tuple[str, bool]:
    names = [*shipped(), OWN]
    if "recording" not in st.session_state:
        known = before.recording in names
        st.session_state["recording"] = before.recording if known else names[0]
        if before.recording and not known:
            st.warning(f"There is no recording {before.recording!r}; there are {', '.join(names[:-1])}.")
    recording: str = st.selectbox(
        "Trace",
        names,
        format_func=lambda name: _OWN_TITLE if name == OWN else name.replace("_", " "),
        key="recording",
        disabled=running,
        help="Recordings that come with twinbed, or a trace of your own.",
    )
    # Places that are always there: what stands below neither moves nor is drawn twice for a moment.
    uploader, description = st.container(), st.container()
    if recording == OWN:
        with uploader:
            _uploader(running)
    trace = _chosen_trace(replace(before, recording=recording))
    if trace is None:
        return recording, False
    count = len(trace.containers)
    description.caption(
        f"{count} container{'s' if count > 1 else ''}, {_length(trace.duration_s)}, "
        f"one sample every {_length(trace.interval_s)}."
    )
    for note in trace.notes:
        description.caption(note)
    return recording, True


def _uploader(running: bool) -> None:
    given = st.file_uploader(
        f"CSV or Parquet, up to {uploads.MAX_MIB} MiB",
        type=list(uploads.TYPES),
        max_upload_size=uploads.MAX_MIB,
        key="uploaded",
        disabled=running,
        help="CSV: long (container, time_s, cpu_cores, memory_bytes) or wide (time_s and a column per "
        "container). Parquet: as `twinbed record` and `twinbed traces convert` write it.",
    )
    if given is None:
        kept = session.upload()
        if kept is not None:
            st.caption(f"Uploaded: {kept.name}")
        return
    token = given.file_id
    if st.session_state.get("upload_token") == token:
        return
    st.session_state["upload_token"] = token
    session.keep_upload(None)
    st.session_state["upload_trace"] = None
    st.session_state["upload_problem"] = ""
    try:
        accepted = uploads.accept(given.name, given.getvalue())
        with st.spinner("Checking the trace…"):
            st.session_state["upload_trace"] = uploads.check(accepted)
        session.keep_upload(accepted)
    except TraceError as error:
        st.session_state["upload_problem"] = str(error)


def _chosen_trace(chosen: Selection) -> UsageTrace | None:
    """The trace, or None when there is none or it cannot be used (`problem` says why)."""
    if chosen.recording == OWN:
        trace: UsageTrace | None = st.session_state.get("upload_trace")
        return trace
    try:
        return cached.recording(chosen.recording) if chosen.recording in shipped() else None
    except TraceError:
        return None


def _policies(before: Selection, running: bool) -> list[PolicySpec] | None:
    """The policies that are picked, before their settings are looked at; None when one cannot be used."""
    if "policies" not in st.session_state:
        st.session_state["policies"] = list(before.policies)
    now: list[str] = st.session_state["policies"]
    texts = st.multiselect(
        "Policies",
        list(dict.fromkeys([*now, *policy.names()])),
        format_func=title,
        key="policies",
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
        st.error(str(error))
        return None
    if not texts:
        st.caption("Choose at least one policy.")
    return specs


def _settings(specs: list[PolicySpec]) -> tuple[str, ...] | None:
    """Every policy's settings as fields; the policies' texts, None when a value cannot be used."""
    texts: list[str] = []
    problems: list[str] = []
    with st.expander("Policy settings"):
        tabs = st.tabs([title(spec.name) for spec in specs]) if specs else []
        for place, (tab, spec) in enumerate(zip(tabs, specs, strict=True)):
            with tab:
                try:
                    texts.append(parameters.edit(spec, f"parameter-{place}-{spec.name}").text)
                except ScenarioError as error:
                    problems.append(str(error))
    if len(set(texts)) < len(texts):
        problems.append("Two of the policies are the same: change a setting of one, or take one away.")
    for problem in problems:
        st.error(problem)
    return None if problems else tuple(texts)


def _forget_parameters() -> None:
    """Fields are told apart by their policy's place, which has just changed."""
    for key in [key for key in st.session_state if str(key).startswith("parameter-")]:
        del st.session_state[key]


def _conditions(chosen: Selection, running: bool) -> Selection:
    with st.expander("Conditions"):
        budget = st.number_input(
            "Global limit (× the sum of peaks)",
            min_value=0.1,
            max_value=100.0,
            value=chosen.budget,
            step=0.1,
            key="budget",
            disabled=running,
            help="What all containers of an application may have together, CPU and memory: this many times "
            "the sum of their profiled peaks. The same ceiling for every policy. Default 1.5.",
        )
        seed = st.number_input(
            "Seed",
            min_value=0,
            max_value=2**31,
            value=chosen.seed,
            step=1,
            key="seed",
            disabled=running,
            help="The same seed gives the same result, to the bit. Default 0.",
        )
        cpu, memory = st.columns(2)
        cpu_price = cpu.number_input(
            "USD per core-hour",
            min_value=0.0,
            value=chosen.cpu_price,
            step=0.001,
            format="%.6f",
            key="cpu_price",
            disabled=running,
            help="Price of a reserved core for an hour. The default is a cloud's list price; its source is "
            "below the results.",
        )
        memory_price = memory.number_input(
            "USD per GiB-hour",
            min_value=0.0,
            value=chosen.memory_price,
            step=0.001,
            format="%.6f",
            key="memory_price",
            disabled=running,
            help="Price of a reserved GiB of memory for an hour.",
        )
    return replace(
        chosen,
        budget=float(budget),
        seed=int(seed),
        cpu_price=float(cpu_price),
        memory_price=float(memory_price),
    )


def _thin(trace: UsageTrace) -> pd.DataFrame:
    """The trace's demand for the preview: means over at most _PREVIEW_POINTS stretches, small ones summed."""
    length, count = trace.shape
    width = -(-length // _PREVIEW_POINTS)
    starts = np.arange(0, length, width)
    lengths = np.diff(np.append(starts, length))
    cpu = np.add.reduceat(trace.cpu_cores, starts, axis=0) / lengths[:, None]
    largest = np.argsort(-cpu.sum(axis=0), kind="stable")[:_PREVIEW_CONTAINERS]
    columns = {trace.containers[i]: cpu[:, i] for i in sorted(largest)}
    if count > len(columns):
        rest = np.setdiff1d(np.arange(count), largest)
        columns[f"{len(rest)} others"] = cpu[:, rest].sum(axis=1)
    wide = pd.DataFrame(columns, index=pd.Index(starts * trace.interval_s, name="at_s"))
    return wide.melt(ignore_index=False, var_name="container", value_name="cpu_cores").reset_index()


def _length(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
