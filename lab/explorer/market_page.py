"""The page "Market": the offers of zones, a job's machines and states under each policy, and its cost.

For: this page. Not for: the charts (lab.charts.market) or the figures (lab.cloud.run.runner). The shipped
scenario takes some seconds, and runs in a bounded child like the questions of the other pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from control.market import POLICIES
from lab.ask.scenario import Scenario, load, with_overrides
from lab.charts import market as charts
from lab.charts.palette import shown
from lab.cloud.input.market import cloud_of
from lab.explorer import questions, running, sections, session
from lab.explorer.selection import MAX_POLICIES
from lab.explorer.worker import Request
from lab.runs.metric import read
from lab.runs.store import Run, RunStore

_SCENARIO = "market"
"""The shipped scenario that the Run button runs."""
_LONGEST_H = 200.0
"""Longest work and deadline that a visitor may enter, h."""
_LARGEST_SEED = 10_000.0
_KEEPER = questions.Keeper("market")


def page() -> None:
    """Draw the page."""
    running.take_finished()
    with st.sidebar:
        _ask()
    sections.title("Market", "How does a job on spot machines meet its deadline for the least money?")
    running.show()
    asked = questions.by_key("cloud", POLICIES)
    if not asked:
        st.markdown(
            "No run on a market is stored yet. Press **Run**: the shipped job trains on spot machines under "
            "each policy, which takes some seconds. This command does the same:"
        )
        st.code(f"twinbed run {_SCENARIO} --set seeds=[0]", language="sh")
    elif runs := running.opened(_KEEPER.chosen(asked).runs):
        _show(runs[:MAX_POLICIES])


def _ask() -> None:
    """Show the fields for changes of the shipped scenario, and the button that runs it."""
    scenario = load(_SCENARIO)
    job = cloud_of(scenario).job
    policies = questions.policies("market", scenario, list(POLICIES))
    number = partial(questions.number, busy=session.job() is not None)
    hours = number("Work (h)", 1.0, _LONGEST_H, job.hours, "market_hours")
    deadline = number("Deadline (h)", 1.0, _LONGEST_H, job.deadline_hours, "market_deadline")
    seed = number("Seed", 0.0, _LARGEST_SEED, 0.0, "market_seed", whole=True)
    about = "Runs the shipped job on a drawn market under each policy, and stores the runs."
    if running.button(st.container(), about, ready=bool(policies)):
        running.start(
            _KEEPER,
            lambda: Request.of(_changed(scenario, policies, hours, deadline, int(seed)), RunStore().root),
        )


def _changed(
    scenario: Scenario, policies: Sequence[str], hours: float, deadline: float, seed: int
) -> Scenario:
    """Return the shipped scenario with the changes. Raise ScenarioError."""
    return with_overrides(
        scenario,
        [
            f"cloud.job.hours={hours}",
            f"cloud.job.deadline_hours={deadline}",
            f"seeds=[{seed}]",
            f"policies=[{', '.join(policies)}]",
        ],
    )


def _show(runs: Sequence[Run]) -> None:
    looks = shown(runs)
    questions.side_by_side(looks, read("lab.cloud"))
    for number, figure in enumerate(charts.over_all(looks)):
        questions.draw(figure, f"market-{number}")
