"""The left side of the page "Cloud": the job, the allowed clusters, their market, and the objective.

For: these widgets and their question. Not for: answering it (lab.cloud.run.recommending) or showing the
answer (cloud_page.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from control.jobs import Job, Objective
from control.recommender import RECOMMENDERS
from lab.ask import shipped
from lab.ask.times import duration_s
from lab.cloud.input import job_file
from lab.cloud.run import recommending
from lab.cloud.run.recommending import Market, Question
from lab.explorer import html, reading, uploads
from lab.explorer.uploads import MAX_MIB, Upload
from traces.catalogue.catalogue import Catalogue
from twinbed import ScenarioError

OWN = "upload"
"""Stands for the user's own file in the list of jobs."""

_OWN_TITLE = "Upload your own job file…"
_JOB_MIB = 1
_BIND: Literal["query-params"] = "query-params"
_REGION = "us-central1"
_WORKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_OBJECTIVES = {Objective.COST: "Cost", Objective.TIME: "Time"}


@dataclass(frozen=True, slots=True)
class Choices:
    """The widgets' values as they were entered. Equal choices are the same question."""

    job: str
    job_file: Upload | None
    local_run: Upload | None
    region: str
    market: str
    types: tuple[str, ...]
    workers: tuple[int, ...]
    server: str
    objective: Objective
    deadline: str
    budget_usd: float | None
    method: str


def choose(catalogue: Catalogue) -> tuple[Choices, DeltaGenerator]:
    """Show the widgets. They offer regions, markets and types that have a price in the catalogue.

    Returns the choices and a place for a button, above rarely changed widgets. The address keeps the choices.
    """
    job, job_file = _job()
    offered, narrowed, kept = _narrowed(catalogue)
    regions = offered.distinct("region")
    usual = regions.index(_REGION) if _REGION in regions else 0
    region = st.selectbox("Region", regions, index=usual, key=f"cloud_region{narrowed}", bind=_BIND)
    markets = offered.distinct("market", region)
    market = st.segmented_control(
        "Prices",
        markets,
        default=markets[0],
        required=True,
        key=f"cloud_market_{region}{narrowed}",
        bind=_BIND,
    )
    objective = st.segmented_control(
        "Rank by",
        list(_OBJECTIVES),
        default=Objective.COST,
        format_func=_OBJECTIVES.__getitem__,
        required=True,
        key="cloud_objective",
        bind=_BIND,
    )
    late, dear = st.columns(2)
    deadline = late.text_input("Deadline", placeholder="none; 6h, 90m", key="cloud_deadline", bind=_BIND)
    budget_usd = dear.number_input(
        "Budget ($)", 0.01, value=None, placeholder="none", key="cloud_budget", bind=_BIND
    )
    below = st.container()
    # Two providers may have a type of one name, so names are those of the whole catalogue.
    names = [
        name
        for name, listing in catalogue.types(region, market).items()
        if all(getattr(listing, column) == value for column, value in kept.items())
    ]
    with st.expander("Which clusters"):
        types = st.multiselect(
            "Instance types",
            names,
            placeholder="All if they are few, else those measured",
            key=f"cloud_types_{region}{narrowed}",
            bind=_BIND,
        )
        workers = st.multiselect(
            "Numbers of workers",
            _WORKERS,
            default=recommending.DEFAULT_WORKERS,
            key="cloud_workers",
            bind=_BIND,
        )
        server = st.selectbox(
            "Parameter server",
            ["", *catalogue.types(region, market)],
            format_func=lambda name: name or "none",
            key=f"cloud_server_{region}",
            bind=_BIND,
            help="One instance of this type is added to the workers. FC²'s rules need it.",
        )
    with st.expander("How it is predicted"):
        method = st.selectbox(
            "Method",
            list(RECOMMENDERS),
            format_func=lambda name: RECOMMENDERS[name].title,
            key="cloud_method",
            bind=_BIND,
        )
        local_run = _upload(
            "Local run of the job (Parquet, optional)",
            ["parquet"],
            MAX_MIB,
            "cloud_local_run",
            about="The file that `twinbed profile` writes. It has the job's computing speed, so that times "
            "are known before the first trial.",
        )
    chosen = Choices(
        job,
        job_file,
        local_run,
        str(region),
        str(market),
        tuple(types or (names if "gpu_model" in kept else ())),
        tuple(sorted(workers)),
        str(server),
        Objective(objective),
        deadline.strip(),
        budget_usd,
        str(method),
    )
    return chosen, below


def _narrowed(catalogue: Catalogue) -> tuple[Catalogue, str, dict[str, str]]:
    """Show the choice of a cloud and a GPU. Returns the prices of this cloud and GPU only, a suffix for the
    keys of what depends on them, and the chosen values by column."""
    keys, kept = "", {}
    for (column, label), place in zip(
        (("provider", "Cloud"), ("gpu_model", "GPU")), st.columns(2), strict=True
    ):
        known: list[str] = [name for name in catalogue.distinct(column) if name]
        value = place.selectbox(
            label,
            ["", *known],
            format_func=lambda name: name or "any",
            key=f"cloud_{column}{keys}",
            bind=_BIND,
        )
        if value:
            catalogue = replace(catalogue, prices=catalogue.prices[catalogue.prices[column] == value])
            keys += f"_{value.replace(' ', '-')}"
            kept[column] = value
    return catalogue, keys, kept


def question(chosen: Choices) -> Question | None:
    """Return the question of the choices, or None while the job's file is not uploaded.

    Raises ScenarioError for a file that cannot be used, an invalid deadline, and no workers.
    """
    if chosen.job == OWN and chosen.job_file is None:
        return None
    for upload in (chosen.job_file, chosen.local_run):
        if upload is not None and upload.problem:
            raise ScenarioError(upload.problem)
    if not chosen.workers:
        raise ScenarioError("no number of workers is chosen; choose at least one")
    return Question(
        job=load(chosen.job, chosen.job_file, chosen.local_run),
        market=Market(chosen.region, chosen.market, chosen.types, chosen.workers, chosen.server),
        objective=chosen.objective,
        budget_usd=inf if chosen.budget_usd is None else chosen.budget_usd,
        deadline_s=duration_s(chosen.deadline, "deadline") if chosen.deadline else inf,
        method=chosen.method,
    )


def _job() -> tuple[str, Upload | None]:
    job = st.selectbox(
        "Job",
        [*shipped.names("job"), OWN],
        format_func=lambda name: _OWN_TITLE if name == OWN else name.replace("_", " "),
        key="cloud_job",
        bind=_BIND,
        help="Jobs that come with twinbed, or a job file of your own.",
    )
    given = None
    if job == OWN:
        given = _upload("Job file (YAML)", ["yaml", "yml"], _JOB_MIB, "cloud_job_file")
    else:
        st.caption(f"{html.markdown(title(job))}.")
    return str(job), given


def _upload(label: str, types: list[str], most_mib: int, key: str, about: str | None = None) -> Upload | None:
    given = st.file_uploader(label, type=types, max_upload_size=most_mib, key=key, help=about)
    return None if given is None else uploads.received(given)


def title(name: str) -> str:
    """Return a shipped job's title, or its name if the file has no title."""
    return _shipped(name).title or name


def load(name: str, file: Upload | None, local_run: Upload | None) -> Job:
    """Return the job of an uploaded file, or the shipped job `name`. The uploaded local run, if there is one,
    takes the place of the one beside a shipped file. Raises ScenarioError naming file and key.
    """
    shipped_file = None if file else _shipped(name)
    if shipped_file is not None and local_run is None:
        return job_file.as_job(shipped_file)
    return reading.job(name, file, local_run)


def _shipped(name: str) -> job_file.JobFile:
    """Return a shipped job file. A browser may send any text as its choice, also the path of another file."""
    if name not in shipped.names("job"):
        raise ScenarioError(f"there is no job {name!r}")
    return job_file.load(shipped.path_of("job", name))
