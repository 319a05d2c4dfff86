"""The part of the page "Fabric" for questions about training jobs, collectives and fleets, and their runs.

For: their widgets, which keep their values in the address, and their answers from the store. Not for: one
fault (lab.explorer.fabric_page) or the charts (lab.charts.fabric).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from lab.ask.scenario import Scenario, build
from lab.charts import fabric as charts
from lab.charts.palette import SERIES, Shown, shown, title
from lab.explorer import html, questions, running, session
from lab.explorer.sections import section
from lab.explorer.selection import MAX_POLICIES
from lab.explorer.worker import Request
from lab.fabric.metrics import LOST, METRICS
from lab.fabric.timeline import measured
from lab.runs.store import Run, RunStore
from twin.fabric.model import Scheme
from twinbed import StoreError

JOBS = {"training": "Training job", "collective": "Collective", "fleet": "Fleet"}
"""Kinds of questions, by their key in a fabric scenario."""

_SCHEMES = {
    "training": (Scheme.THORN, Scheme.BOND, Scheme.REROUTE, Scheme.NONE),
    "collective": (Scheme.THORN, Scheme.BOND, Scheme.NONE),
    "fleet": (Scheme.NONE, Scheme.BOND, Scheme.REROUTE, Scheme.THORN),
}
"""Schemes that are selected at first."""
_GPT2 = {"parameters": 124e6, "layers": 12, "activation_bytes": 18_874_368.0}
_MODELS: dict[str, dict[str, Any]] = {
    "GPT-2, data parallel": {**_GPT2, "micro_batches": 4, "micro_batch_s": 0.11667, "data": 4},
    "GPT-2, pipeline parallel": {**_GPT2, "micro_batches": 16, "micro_batch_s": 0.193735, "pipeline": 4},
    "ResNet101, data parallel": {"parameters": 44.5e6, "micro_batch_s": 0.8163, "data": 4},
}
"""Jobs on four hosts, as in the shipped scenarios T1 and T3."""
_CHECKPOINT = {"interval_s": 60.0, "save_s": 0.5, "init_s": 20.0}
_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv")
_GPUS = (16, 64, 256, 1024, 4096, 8192, 16_384, 32_768)
_KEEPER = questions.Keeper("fabric")


def ask(job: str) -> None:
    """Show the fields for changes of a question about a job, a key of JOBS, and the button that runs it."""
    busy = session.job() is not None
    part = {"training": _training, "collective": _collective, "fleet": _fleet}[job](busy)
    texts = st.multiselect(
        "Schemes",
        [str(scheme) for scheme in Scheme],
        default=[str(scheme) for scheme in _SCHEMES[job]],
        max_selections=MAX_POLICIES,
        format_func=title,
        disabled=busy,
        key=f"fabric_{job}_schemes",
        bind="query-params",
    )
    about = "Simulates the job under each scheme, and stores the runs."
    if running.button(st.container(), about, ready=bool(texts)):
        running.start(_KEEPER, lambda: Request.of(_scenario(job, part, texts), RunStore().root))


def _scenario(job: str, part: Mapping[str, Any], schemes: Sequence[str]) -> Scenario:
    """Return the question. Raise ScenarioError for values that a browser sends in spite of the widgets'
    limits.
    """
    raw = {"name": job, "title": JOBS[job], "fabric": dict(part), "policies": list(schemes), "seeds": [0]}
    return build(raw, "Fabric")


def _training(busy: bool) -> dict[str, Any]:
    model = st.selectbox("Job", list(_MODELS), disabled=busy, key="fabric_model", bind="query-params")
    iterations = int(questions.number("Iterations", 10.0, 5000.0, 300.0, "fabric_iterations", busy=busy))
    job = _MODELS.get(str(model), next(iter(_MODELS.values())))
    stages = job.get("pipeline", 1)
    iteration_s = (job.get("micro_batches", 1) + stages - 1) / stages * job["micro_batch_s"]
    return {
        "topology": {"hosts": 4},
        "faults": {
            "kind": "single",
            "at_s": iterations * iteration_s / 2,
            "down_s": questions.number("Fault lasts (s)", 0.1, 600.0, 10.0, "fabric_down", busy=busy),
        },
        "training": {**job, "iterations": iterations, "jitter_cv": 0.02, "checkpoint": _CHECKPOINT},
    }


def _collective(busy: bool) -> dict[str, Any]:
    operation = st.selectbox(
        "Operation", _OPERATIONS, disabled=busy, key="fabric_operation", bind="query-params"
    )
    mb = questions.number("Message (MB)", 1.0, 4000.0, 1000.0, "fabric_message", busy=busy)
    repeats = int(
        questions.number("Operations, one after another", 10.0, 4000.0, 800.0, "fabric_repeats", busy=busy)
    )
    return {
        "topology": {"hosts": 5},
        "faults": {"kind": "round_robin"},
        "collective": {"operation": operation, "message_bytes": int(mb * 1e6), "repeats": repeats},
    }


def _fleet(busy: bool) -> dict[str, Any]:
    gpus = st.selectbox(
        "GPUs", _GPUS, 4, format_func="{:,}".format, disabled=busy, key="fabric_gpus", bind="query-params"
    )
    days = questions.number("Days", 1.0, 366.0, 54.0, "fabric_days", busy=busy)
    return {"fleet": {"gpus": int(gpus), "days": days}}


def show(job: str) -> None:
    """Show the stored questions about such a job, their schemes side by side."""
    root = str(RunStore().root)
    asked = {
        question.key: question
        for question in questions.stored(root, "fabric", tuple(map(str, Scheme)))
        if job in _jobs_of(root, question.runs[0])
    }
    if not asked:
        st.markdown(
            f"No {html.markdown(JOBS[job].lower())} is stored yet. Choose one on the left and press "
            "**Run**: it meets the same faults under each scheme, and you see their cost. It takes "
            "some seconds."
        )
        return
    question = _KEEPER.chosen(asked)
    runs = running.opened(question.runs)[:MAX_POLICIES]
    if not runs:
        return
    looks = shown(runs)
    questions.side_by_side(looks, METRICS)
    figures = (
        charts.lost_shares(looks, LOST) if job == "fleet" else charts.job(looks, measured(runs[0]) or job)
    )
    for number, figure in enumerate(figures):
        questions.draw(figure, f"fabric-{job}-{number}")
    if job == "fleet":
        _fleets(looks, root, [run_id for question in asked.values() for run_id in question.runs])


def _fleets(looks: Sequence[Shown], root: str, ids: Sequence[str]) -> None:
    """Show the stored fleets that differ from the one of `looks` in size alone. Schemes have the colours of
    `looks` as far as those go."""
    section("This fleet in other sizes")
    rows = pd.DataFrame([row for run_id in ids for row in _fleet_rows(root, run_id)])
    rows = _beside_none(rows[rows["but_size"] == _but_size(looks[0].run)])
    if rows["gpus"].nunique() == 1:
        st.markdown("No other size of this fleet is stored. Run another size to see how the schemes scale.")
        return
    colors = {title(look.run.policy): look.color for look in looks}
    rest = iter([color for color in SERIES if color not in colors.values()])
    schemes = rows["scheme"].map(title)
    colors |= {name: next(rest) for name in sorted(set(schemes) - set(colors))}
    panels = charts.fleets(rows.assign(scheme=schemes), colors)
    for place, panel in zip(st.columns(2), panels, strict=True):
        place.altair_chart(panel)
    st.caption(
        "Stored fleets that differ in the number of GPUs alone; means over seeds. Left: share of the time "
        "that is spent on training. Right: against no scheme."
    )


@st.cache_data(max_entries=4096, show_spinner=False)
def _jobs_of(root: str, run_id: str) -> tuple[str, ...]:
    """Return the sections of JOBS that a stored run of a fabric has; () if the run was removed."""
    try:
        run: Run = RunStore(root).open(run_id)
    except StoreError:
        return ()  # It was removed in the meantime.
    fabric = run.manifest["spec"]["fabric"]
    return tuple(job for job in JOBS if fabric.get(job))


@st.cache_data(max_entries=4096, show_spinner=False)
def _fleet_rows(root: str, run_id: str) -> list[dict[str, Any]]:
    """Return the row of a stored run of a fleet; no row if the run was removed."""
    try:
        run = RunStore(root).open(run_id)
    except StoreError:
        return []
    return [
        {
            "but_size": _but_size(run),
            "gpus": run.manifest["spec"]["fabric"]["fleet"]["gpus"],
            "scheme": run.policy,
            "seed": run.manifest["seed"],
            "effective": run.metrics["effective_share"],
            "lost_cost": run.metrics["lost_cost"],
        }
    ]


def _but_size(run: Run) -> str:
    """Return a run's question without the fleet's size."""
    fabric = run.manifest["spec"]["fabric"]
    return json.dumps({**fabric, "fleet": {**fabric["fleet"], "gpus": 0}}, sort_keys=True)


def _beside_none(frame: pd.DataFrame) -> pd.DataFrame:
    """Add each run's saving against no scheme, for the same size and seed (the mean of repeated runs)."""
    same = ["gpus", "seed"]
    alone = frame[frame["scheme"] == Scheme.NONE].groupby(same)["lost_cost"].mean().rename("alone")
    beside = frame.join(alone, on=same)
    saved = (beside["alone"] - beside["lost_cost"]).where(beside["scheme"] != Scheme.NONE)
    return beside.assign(saved_cost=saved)
