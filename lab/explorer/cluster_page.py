"""The page "Cluster": stored questions about clusters, waiting jobs, GPUs that jobs held, and a comparison of
policies.

For: this page. Not for: the charts (lab.charts.cluster) or the figures (lab.cluster.run.figures). The shipped
scenario takes some seconds, and runs in a bounded child like the questions of the other pages.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from control.scheduler import POLICIES
from lab.ask.scenario import Scenario, load, with_overrides
from lab.charts import cluster as charts
from lab.charts.palette import Shown, shown, title
from lab.cluster.input import cluster_of
from lab.explorer import html, questions, running, sections, session
from lab.explorer.questions import Question
from lab.explorer.selection import MAX_POLICIES
from lab.explorer.worker import Request
from lab.runs.metric import read
from lab.runs.store import Run, RunStore

_SCENARIO = "cluster"
"""The shipped scenario that the Run button runs."""
_MOST_SERVERS = 16.0
"""Largest number of servers of a type that a visitor may enter."""
_QUESTION, _BESIDE = "cluster_question", "cluster_beside"
_KEEPER = questions.Keeper("cluster")


def ask() -> None:
    """Start the shipped scenario unchanged. This page then shows its progress and its runs."""
    running.begin(_KEEPER, lambda: Request.of(load(_SCENARIO), RunStore().root))


def page() -> None:
    """Draw the page."""
    running.take_finished()
    with st.sidebar:
        _ask()
    sections.title("Cluster", "Who waits how long for GPUs under each scheduler, and who gets a fair share?")
    running.show()
    asked = questions.by_key("cluster", POLICIES)
    if not asked:
        st.markdown(
            "No run of a cluster is stored yet. Press **Run**: the shipped jobs queue for 24 GPUs under each "
            "scheduler, which takes some seconds. This command does the same:"
        )
        st.code(f"twinbed run {_SCENARIO}", language="sh")
    elif runs := _chosen(asked):
        _show(shown(runs))


def _ask() -> None:
    """Show the fields for changes of the shipped scenario, and the button that runs it."""
    busy = session.job() is not None
    scenario = load(_SCENARIO)
    policies = questions.policies("cluster", scenario, list(POLICIES))
    counts = {
        name: int(
            questions.number(
                f"Servers with {servers.gpus} {name}",
                0.0,
                _MOST_SERVERS,
                float(servers.count),
                f"cluster_servers_{name}",
                whole=True,
                busy=busy,
            )
        )
        for name, servers in cluster_of(scenario).servers.items()
    }
    about = "Runs the shipped jobs on these servers under each scheduler, and stores the runs."
    if running.button(st.container(), about, ready=bool(policies)):
        running.start(_KEEPER, lambda: Request.of(_changed(scenario, policies, counts), RunStore().root))


def _changed(scenario: Scenario, policies: Sequence[str], counts: dict[str, int]) -> Scenario:
    """Return the shipped scenario with the changes. Raise ScenarioError."""
    servers = [f"cluster.servers.{name}.count={count}" for name, count in counts.items()]
    return with_overrides(scenario, [*servers, f"policies=[{', '.join(policies)}]"])


def _chosen(asked: dict[str, Question]) -> list[Run]:
    """Return the runs of the chosen questions under the chosen policies. The address remembers the
    questions."""
    _preset(asked)
    named = {key: question.title for key, question in asked.items()}
    left, right = st.columns(2)
    key = left.selectbox("Question", list(asked), format_func=named.__getitem__, key=_QUESTION)
    others = [other for other in asked if other != key]
    if st.session_state.get(_BESIDE) not in others:
        st.session_state.pop(_BESIDE, None)
    beside = right.selectbox(
        "Beside",
        others,
        index=None,
        format_func=named.__getitem__,
        placeholder="Another question",
        key=_BESIDE,
        help="For example the same jobs with more servers.",
    )
    session.remember(_QUESTION)
    session.remember(_BESIDE)
    session.write_address({"question": key} | ({"beside": beside} if beside else {}))
    runs = running.opened([run for each in (key, beside) if each for run in asked[each].runs])
    policies = list(dict.fromkeys(run.policy for run in runs))
    kept = st.pills(
        "Policies shown",
        policies,
        selection_mode="multi",
        default=policies,
        format_func=lambda text: html.markdown(title(text)),
        key=f"cluster_shown_{key}_{beside}",
    )
    # The same policy of two questions is shown side by side.
    runs = sorted((run for run in runs if run.policy in kept), key=lambda run: policies.index(run.policy))
    if len(runs) > MAX_POLICIES:
        st.info(f"{len(runs)} runs are chosen; the first {MAX_POLICIES:d} are shown. Choose fewer policies.")
    return runs[:MAX_POLICIES]


def _preset(asked: dict[str, Question]) -> None:
    """Set the widgets to a job's question, or to those of the address when the page is shown first, or to the
    last ones."""
    made = _KEEPER.made(asked.values())
    if made:
        before = st.session_state.get(_QUESTION)
        st.session_state[_QUESTION] = made
        if before in asked and before != made:
            st.session_state[_BESIDE] = before
    elif st.session_state.get(_QUESTION) not in asked:
        for key, name in ((_QUESTION, "question"), (_BESIDE, "beside")):
            wanted = session.recalled(key, name, asked, first="question")
            if wanted in asked:
                st.session_state[key] = wanted
            else:
                st.session_state.pop(key, None)
                if wanted:
                    questions.missing(wanted)


def _show(looks: Sequence[Shown]) -> None:
    questions.side_by_side(looks, read("lab.cluster"))
    measured = st.segmented_control(
        "Over time",
        list(charts.MEASURED),
        default="waiting",
        required=True,
        format_func=lambda name: charts.MEASURED[name][0],
        key="cluster_measured",
    )
    for number, figure in enumerate(charts.over_all(looks, str(measured))):
        questions.draw(figure, f"cluster-{number}")
    titles = [look.title for look in looks]
    picked = st.selectbox("Schedule of", titles, key="cluster_gantt")
    drawn = charts.gantt(looks[titles.index(picked)])
    if drawn is None:
        st.caption("This run has too many jobs for a chart of the GPUs that they held.")
    else:
        questions.draw(drawn, "cluster-gantt")
