"""The page "Market": the offers of zones, a job's machines and states under each policy, and its cost.

For: this page. Not for: the charts (lab.charts.market) or the figures (lab.cloud.metrics). The shipped
scenario takes some seconds, and runs in a bounded child like the questions of the other pages.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from control.market import POLICIES
from lab.ask.scenario import Scenario, load, with_overrides
from lab.charts import market as charts
from lab.charts.palette import shown
from lab.cloud.input.market import cloud_of
from lab.cloud.metrics import METRICS
from lab.explorer import questions, running, sections, session
from lab.explorer.questions import Question
from lab.explorer.selection import MAX_POLICIES
from lab.explorer.worker import Request
from lab.runs.store import Run, RunStore

_SCENARIO = "market"
"""The shipped scenario that the Run button runs."""
_LONGEST_H = 200.0
"""Longest work and deadline that a visitor may enter, h."""
_LARGEST_SEED = 10_000.0
_QUESTION = "market_question"
_KEEPER = questions.Keeper("market")


def page() -> None:
    """Draw the page."""
    running.take_finished()
    with st.sidebar:
        _ask()
    sections.title("Market", "How does a job on spot machines meet its deadline for the least money?")
    running.show()
    stored = questions.stored(str(RunStore().root), "cloud", tuple(POLICIES))
    if not stored:
        st.markdown(
            "No run on a market is stored yet. Press **Run**: the shipped job trains on spot machines under "
            "each policy, which takes some seconds. This command does the same:"
        )
        st.code(f"twinbed run {_SCENARIO} --set seeds=[0]", language="sh")
        return
    runs = running.opened(_chosen({question.key: question for question in stored}).runs)
    if runs:
        _show(runs[:MAX_POLICIES])


def _ask() -> None:
    """Show the fields for changes of the shipped scenario, and the button that runs it."""
    busy = session.job() is not None
    scenario = load(_SCENARIO)
    job = cloud_of(scenario).job
    policies = questions.policies("market", scenario, list(POLICIES))
    # A whole number in an address may overflow inside the framework; another number may not.
    hours, deadline, seed = (
        st.number_input(
            label, least, most, value, 1.0, form, disabled=busy, key=f"market_{key}", bind="query-params"
        )
        for label, least, most, value, form, key in (
            ("Work (h)", 1.0, _LONGEST_H, job.hours, "%g", "hours"),
            ("Deadline (h)", 1.0, _LONGEST_H, job.deadline_hours, "%g", "deadline"),
            ("Seed", 0.0, _LARGEST_SEED, 0.0, "%.0f", "seed"),
        )
    )
    about = "Runs the shipped job on a drawn market under each policy, and stores the runs."
    if running.button(st.container(), about, ready=bool(policies)):
        running.start(
            _KEEPER,
            lambda: Request.of(_changed(scenario, policies, hours, deadline, round(seed)), RunStore().root),
        )


def _changed(
    scenario: Scenario, policies: Sequence[str], hours: float, deadline: float, seed: int
) -> Scenario:
    """Return the shipped scenario with the changes. Raise ScenarioError."""
    # A browser may send any number, whatever its widget allows.
    return with_overrides(
        scenario,
        [
            f"cloud.job.hours={min(hours, _LONGEST_H)}",
            f"cloud.job.deadline_hours={min(deadline, _LONGEST_H)}",
            f"seeds=[{min(seed, round(_LARGEST_SEED))}]",
            f"policies=[{', '.join(policies)}]",
        ],
    )


def _chosen(stored: dict[str, Question]) -> Question:
    """Return the chosen question: a job's, or that of the address when the page is shown first."""
    made = _KEEPER.made(stored.values())
    asked = st.query_params.get("question")
    if made:
        st.session_state[_QUESTION] = made
    elif st.session_state.get(_QUESTION) not in stored:
        st.session_state[_QUESTION] = asked if asked in stored else next(iter(stored))
        if asked and asked not in stored:
            questions.missing(asked)
    key = st.selectbox("Question", list(stored), format_func=lambda key: stored[key].title, key=_QUESTION)
    session.write_address({"question": key})
    return stored[key]


def _show(runs: Sequence[Run]) -> None:
    looks = shown(runs)
    questions.side_by_side(looks, METRICS)
    for number, figure in enumerate(charts.over_all(looks)):
        questions.draw(figure, f"market-{number}")
