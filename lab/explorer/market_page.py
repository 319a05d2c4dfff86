"""The page "Market": what zones offered, what a job held and did under each policy, and what it cost.

For: this page. Not for: the charts (lab.charts.market) or the figures (lab.cloud.metrics). The shipped
scenario takes some seconds, and runs in a bounded child like the questions of the other pages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import altair as alt
import streamlit as st

from control.market import POLICIES
from lab.ask.scenario import Scenario, load, with_overrides
from lab.charts import market as charts
from lab.charts.palette import shown, title
from lab.cloud.input.market import cloud_of
from lab.cloud.metrics import METRICS
from lab.explorer import html, running, session
from lab.explorer.job import Status
from lab.explorer.selection import MAX_POLICIES
from lab.explorer.worker import Request
from lab.runs.labels import conditions
from lab.runs.store import Run, RunStore
from twinbed import StoreError

_SCENARIO = "market"
"""The shipped scenario that the Run button asks."""
_LONGEST_H = 200.0
"""Longest work and deadline that a visitor may ask for, h."""
_LARGEST_SEED = 10_000
_LOOK_AGAIN_S = 30.0
"""How long the list of questions is kept, s: reading it opens every stored run."""
_FRESH, _QUESTION = "market_fresh", "market_question"


class _Keeper:
    """Shows the question whose runs a job has made."""

    def take(self, status: Status) -> None:
        """See session.Owner."""
        _questions.clear()
        st.session_state[_FRESH] = status.runs[:1]


def page() -> None:
    """Draw the page."""
    running.take_finished()
    with st.sidebar:
        _ask()
    st.title("Market", anchor=False)
    running.show()
    questions = _questions(str(RunStore().root))
    if not questions:
        st.markdown(
            "No run on a market is stored yet. Press **Run**: the shipped job trains on spot machines under "
            "each policy, which takes some seconds. This command asks the same:"
        )
        st.code(f"twinbed run {_SCENARIO} --set seeds=[0]", language="sh")
        return
    runs = running.opened(questions[_chosen(questions)][1])
    if runs:
        _show(runs[:MAX_POLICIES])


def _ask() -> None:
    """Show what may be changed in the shipped scenario, and the button that runs it."""
    busy = session.job() is not None
    scenario = load(_SCENARIO)
    job = cloud_of(scenario).job
    policies = st.multiselect(
        "Policies",
        list(POLICIES),
        default=scenario.policies,
        max_selections=MAX_POLICIES,
        format_func=title,
        disabled=busy,
        key="market_policies",
    )
    hours, deadline = (
        float(st.number_input(label, 1.0, _LONGEST_H, value, step=1.0, disabled=busy, key=f"market_{key}"))
        for label, value, key in (
            ("Work (h)", job.hours, "hours"),
            ("Deadline (h)", job.deadline_hours, "deadline"),
        )
    )
    seed = int(st.number_input("Seed", 0, _LARGEST_SEED, 0, disabled=busy, key="market_seed"))
    about = "Runs the shipped job on a drawn market under each policy, and stores the runs."
    if running.button(st.container(), about, ready=bool(policies)):
        running.start(
            _Keeper(),
            lambda: Request.of(_changed(scenario, policies, hours, deadline, seed), RunStore().root),
        )


def _changed(
    scenario: Scenario, policies: Sequence[str], hours: float, deadline: float, seed: int
) -> Scenario:
    """Return the shipped scenario as it was changed. Raises ScenarioError."""
    # A browser may send any number and any text, whatever its widget allows.
    wanted = [policy for policy in policies if policy in POLICIES][:MAX_POLICIES]
    return with_overrides(
        scenario,
        [
            f"cloud.job.hours={min(hours, _LONGEST_H)}",
            f"cloud.job.deadline_hours={min(deadline, _LONGEST_H)}",
            f"seeds=[{min(seed, _LARGEST_SEED)}]",
            f"policies=[{', '.join(wanted)}]",
        ],
    )


@st.cache_data(ttl=_LOOK_AGAIN_S, max_entries=2, show_spinner="Reading the stored runs")
def _questions(root: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return title and runs, one per policy, of every stored question on a market, the newest first."""
    store = RunStore(root)
    asked: dict[str, dict[str, Run]] = {}
    for run_id in store.ids():
        try:
            run = store.open(run_id)
        except StoreError:
            continue  # It was removed in the meantime.
        if run.kind.name == "cloud":
            same = asked.setdefault(_key(run), {})
            if run.policy not in same or same[run.policy].manifest["created_at"] < run.manifest["created_at"]:
                same[run.policy] = run
    made_at = {
        key: max(str(run.manifest["created_at"]) for run in same.values()) for key, same in asked.items()
    }
    newest = sorted(asked, key=made_at.__getitem__, reverse=True)
    return {key: (_title(key, list(asked[key].values())), _ordered(asked[key])) for key in newest}


def _key(run: Run) -> str:
    told = [conditions(run), run.seed, run.manifest["backend"], run.manifest.get("repeat")]
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    return f"{run.manifest['name']}-{digest[:8]}"


def _title(key: str, runs: Sequence[Run]) -> str:
    first = runs[0].manifest
    where = "" if first["backend"] == "twin" else f" · {first['backend']}"
    return f"{first['name']} · {first['about']} · seed {runs[0].seed}{where} · {key[-8:]}"


def _ordered(runs: dict[str, Run]) -> tuple[str, ...]:
    """Return the ids in the order of the table of policies, one's own at the end."""
    order = [*POLICIES, *runs]
    return tuple(runs[policy].id for policy in sorted(runs, key=order.index))


def _chosen(questions: dict[str, tuple[str, tuple[str, ...]]]) -> str:
    """Return the chosen question: a job's, or that of the address when the page is shown first."""
    fresh = set(st.session_state.pop(_FRESH, ()))
    made = [key for key, (_, runs) in questions.items() if fresh & set(runs)]
    asked = st.query_params.get("question")
    if made:
        st.session_state[_QUESTION] = made[0]
    elif st.session_state.get(_QUESTION) not in questions:
        st.session_state[_QUESTION] = asked if asked in questions else next(iter(questions))
        if asked and asked not in questions:
            st.warning(html.markdown(f"The question {asked} of the address is not stored here."))
    key: str = st.selectbox(
        "Question", list(questions), format_func=lambda key: questions[key][0], key=_QUESTION
    )
    st.query_params.from_dict({"question": key})
    return key


def _show(runs: Sequence[Run]) -> None:
    looks = shown(runs)
    st.subheader("Side by side", anchor="figures")
    st.html(html.table(looks, METRICS))
    for number, figure in enumerate(charts.over_all(looks)):
        st.subheader(html.markdown(figure.title), anchor=False)
        assert isinstance(figure.chart, alt.Chart | alt.LayerChart)
        st.altair_chart(figure.chart, key=f"market-{number}")
        st.caption(html.markdown(figure.caption))
