"""The part of the page "Cloud" that searches in a closed loop: bounds, trials as they come, and the result.

For: these widgets and this answer. Not for: the search (lab.explorer.search_job), or the widgets of the
question (lab.explorer.cloud_question).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from control.jobs import Objective
from lab.charts import cloud as charts
from lab.charts import words
from lab.cloud.run.recommending import Question
from lab.explorer import downloads, html, questions, running, session
from lab.explorer.cloud_question import OWN, Choices
from lab.explorer.job import Status
from lab.explorer.search_job import SearchRequest
from lab.explorer.sections import section

_MOST_TRIALS = 40.0
_ANSWERS: session.Answers[dict[str, Any]] = session.Answers("search", dict)


def choose(place: DeltaGenerator) -> tuple[int, float | None]:
    """Show the bounds of a search. Returns the most trials, and the most that they may cost, US$."""
    busy = session.job() is not None
    left, right = place.columns(2)
    with left:
        trials = questions.number(
            "Most trials", 1.0, _MOST_TRIALS, 12.0, "cloud_trials", whole=True, busy=busy
        )
    cap_usd: float | None = right.number_input(
        "Cap ($)", 0.01, value=None, placeholder="no bound",
        key="cloud_cap", bind="query-params", disabled=busy,
        help="The most that all trials may cost together. A trial that could exceed it is not begun.",
    )  # fmt: skip
    return int(trials), cap_usd


def page(chosen: Choices, question: Question | None, place: DeltaGenerator) -> None:
    """Show the button, a search in progress and the last result. question: None if it is not complete."""
    trials, cap_usd = choose(place)
    asked = hash((chosen, trials, cap_usd))
    ready = question is not None and session.job() is None
    pressed = place.button("Search", type="primary", width="stretch", disabled=not ready, key="cloud_search")
    if pressed and question is not None:
        running.start(_ANSWERS, lambda: SearchRequest.of(question, trials, cap_usd, asked))
    running.show(_so_far)
    if session.job() is not None:
        return
    answer = _ANSWERS.kept()
    if answer is None:
        st.markdown(
            "Choose a job and press **Search**: the method proposes a cluster, the twin rehearses some steps "
            "of the job there, and the method proposes the next one from what it has seen, until no further "
            "trial pays. You see which clusters it would try and their price. No money is spent."
        )
        return
    if answer["asked"] != asked:
        st.info(
            "The choices on the left have changed since this search: press Search to bring it up to date."
        )
    _show(answer, "JOB" if chosen.job == OWN else chosen.job)


def _so_far(status: Status) -> None:
    if status.rows:
        _table(status.rows)


def _show(answer: Mapping[str, Any], job: str) -> None:
    section("What the search found")
    st.markdown("\n".join(f"- {html.markdown(note)}" for note in answer["notes"]))
    rows = pd.DataFrame(answer["rows"])
    section("Trial by trial")
    if len(rows) > 1:
        st.altair_chart(
            charts.trials(
                rows, Objective(answer["by"]), answer["take"], answer["deadline_h"], answer["budget_usd"]
            ),
            key="cloud_trials_chart",
        )
        st.caption(
            "A point for each trial: the whole job on its cluster. The line is the best so far that "
            "keeps your bounds, and the diamond the cluster to take."
        )
    _table(answer["rows"])
    downloads.trials(rows, answer["job"])
    st.caption(
        "A search for this job with real processes on this machine. Add the choices on the left as options: "
        "`twinbed recommend --help` names them."
    )
    st.code(f"sudo twinbed recommend {job} --search", language="sh")


def _table(rows: Sequence[Mapping[str, Any]]) -> None:
    shown = pd.DataFrame(
        {
            "trial": row["trial"],
            "configuration": row["configuration"],
            "a step": words.duration(row["step_ms"] / 1000),
            "the job": words.duration(3600 * row["job_h"]),
            "the job (\\$)": words.significant(row["job_usd"]),
            "the trial (\\$)": words.significant(row["spent_usd"]),
            "why": html.markdown(f"failed: {row['problem']}" if row["problem"] else row["why"]),
        }
        for row in rows
    )
    st.table(shown.set_index("trial"))
