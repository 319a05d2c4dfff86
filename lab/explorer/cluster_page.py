"""The page "Cluster": stored questions about clusters, who waited, who ran where, and policies side by side.

For: this page. Not for: the charts (lab.charts.cluster) or the figures (lab.cluster.metrics). The shipped
scenario takes some seconds, and runs in a bounded child like the questions of the other pages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import streamlit as st

from control.scheduler import POLICIES
from lab.ask.kind import Figure
from lab.ask.scenario import Scenario, load, with_overrides
from lab.charts import cluster as charts
from lab.charts.palette import Shown, shown, title
from lab.cluster.input import cluster_of
from lab.cluster.metrics import METRICS
from lab.explorer import html, running, session
from lab.explorer.job import Status
from lab.explorer.selection import MAX_POLICIES
from lab.explorer.worker import Request
from lab.runs.labels import conditions
from lab.runs.store import Run, RunStore
from twinbed import StoreError

_SCENARIO = "cluster"
"""The shipped scenario that the Run button asks."""
_MOST_SERVERS = 16
"""Most servers of a type that a visitor may ask for."""
_LOOK_AGAIN_S = 30.0
"""How long the list of questions is kept, s: reading it opens every stored run."""
_FRESH = "cluster_fresh"
_QUESTION, _BESIDE = "cluster_question", "cluster_beside"


@dataclass(frozen=True, slots=True)
class _Question:
    """Runs that differ in their policy alone.

    key: its name in the address; title: for people; runs: ids, one per policy; made_at: of the newest run
    """

    key: str
    title: str
    runs: tuple[str, ...]
    made_at: str


class _Keeper:
    """Shows the question whose runs a job has made."""

    def take(self, status: Status) -> None:
        """See session.Owner."""
        _questions.clear()
        st.session_state[_FRESH] = status.runs[:1]


def ask() -> None:
    """Start the shipped scenario as it is. This page then shows its progress and its runs."""
    running.begin(_Keeper(), lambda: Request.of(load(_SCENARIO), RunStore().root))


def page() -> None:
    """Draw the page."""
    running.take_finished()
    with st.sidebar:
        _ask()
    st.title("Cluster", anchor=False)
    running.show()
    questions = {asked.key: asked for asked in _questions(str(RunStore().root))}
    if not questions:
        st.markdown(
            "No run of a cluster is stored yet. Press **Run**: the shipped jobs queue for 24 GPUs under each "
            "scheduler, which takes some seconds. This command asks the same:"
        )
        st.code(f"twinbed run {_SCENARIO}", language="sh")
        return
    runs = _chosen(questions)
    if runs:
        _show(shown(runs))


def _ask() -> None:
    """Show what may be changed in the shipped scenario, and the button that runs it."""
    busy = session.job() is not None
    scenario = load(_SCENARIO)
    policies = st.multiselect(
        "Policies",
        list(POLICIES),
        default=scenario.policies,
        max_selections=MAX_POLICIES,
        format_func=title,
        disabled=busy,
        key="cluster_policies",
    )
    counts = {
        name: int(
            st.number_input(
                f"Servers with {servers.gpus} {name}",
                0,
                _MOST_SERVERS,
                servers.count,
                disabled=busy,
                key=f"cluster_servers_{name}",
            )
        )
        for name, servers in cluster_of(scenario).servers.items()
    }
    about = "Runs the shipped jobs on these servers under each scheduler, and stores the runs."
    if running.button(st.container(), about, ready=bool(policies)):
        running.start(_Keeper(), lambda: Request.of(_changed(scenario, policies, counts), RunStore().root))


def _changed(scenario: Scenario, policies: Sequence[str], counts: dict[str, int]) -> Scenario:
    """Return the shipped scenario as it was changed. Raises ScenarioError."""
    # A browser may send any number and any text, whatever its widget allows.
    wanted = [policy for policy in policies if policy in POLICIES][:MAX_POLICIES]
    servers = [f"cluster.servers.{name}.count={min(count, _MOST_SERVERS)}" for name, count in counts.items()]
    return with_overrides(scenario, [*servers, f"policies=[{', '.join(wanted)}]"])


@st.cache_data(ttl=_LOOK_AGAIN_S, max_entries=2, show_spinner="Reading the stored runs")
def _questions(root: str) -> list[_Question]:
    """Return the stored questions about clusters, the newest first."""
    store = RunStore(root)
    asked: dict[str, dict[str, Run]] = {}
    for run_id in store.ids():
        try:
            run = store.open(run_id)
        except StoreError:
            continue  # It was removed in the meantime.
        if run.kind.name == "cluster":
            same = asked.setdefault(_key(run), {})
            if run.policy not in same or same[run.policy].manifest["created_at"] < run.manifest["created_at"]:
                same[run.policy] = run
    found = [_question(key, list(same.values())) for key, same in asked.items()]
    return sorted(found, key=lambda question: question.made_at, reverse=True)


def _key(run: Run) -> str:
    told = [conditions(run), run.seed, run.manifest.get("repeat")]
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    return f"{run.manifest['name']}-{digest[:8]}"


def _question(key: str, runs: Sequence[Run]) -> _Question:
    """Return the question of these runs, in the order of the table of policies, one's own at the end."""
    order = [*POLICIES, *(run.policy for run in runs)]
    runs = sorted(runs, key=lambda run: order.index(run.policy))
    first = runs[0].manifest
    where = "" if first["backend"] == "twin" else f" · {first['backend']}"
    name = f"{first['name']} · {first['about']} · seed {runs[0].seed}{where} · {key[-8:]}"
    made_at = max(str(run.manifest["created_at"]) for run in runs)
    return _Question(key, name, tuple(run.id for run in runs), made_at)


def _chosen(questions: dict[str, _Question]) -> list[Run]:
    """Return the runs of the chosen questions under the chosen policies. The address remembers the
    questions."""
    _preset(questions)
    named = {key: question.title for key, question in questions.items()}
    left, right = st.columns(2)
    key = left.selectbox("Question", list(questions), format_func=named.__getitem__, key=_QUESTION)
    others = [other for other in questions if other != key]
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
    st.query_params.from_dict({"question": key} | ({"beside": beside} if beside else {}))
    runs = running.opened([run for each in (key, beside) if each for run in questions[each].runs])
    policies = list(dict.fromkeys(run.policy for run in runs))
    kept = st.pills(
        "Policies shown",
        policies,
        selection_mode="multi",
        default=policies,
        format_func=lambda text: html.markdown(title(text)),
        key=f"cluster_shown_{key}_{beside}",
    )
    # The same policy of both questions side by side.
    runs = sorted((run for run in runs if run.policy in kept), key=lambda run: policies.index(run.policy))
    if len(runs) > MAX_POLICIES:
        st.info(f"{len(runs)} runs are chosen; the first {MAX_POLICIES:d} are shown. Choose fewer policies.")
    return runs[:MAX_POLICIES]


def _preset(questions: dict[str, _Question]) -> None:
    """Set the widgets to a job's question, or to those of the address when the page is shown first."""
    fresh = st.session_state.pop(_FRESH, ())
    made = [key for key, question in questions.items() if set(fresh) & set(question.runs)]
    if made:
        before = st.session_state.get(_QUESTION)
        st.session_state[_QUESTION] = made[0]
        if before in questions and before != made[0]:
            st.session_state[_BESIDE] = before
    elif st.session_state.get(_QUESTION) not in questions:
        for key, name in ((_QUESTION, "question"), (_BESIDE, "beside")):
            asked = st.query_params.get(name)
            if asked in questions:
                st.session_state[key] = asked
            else:
                st.session_state.pop(key, None)
                if asked:
                    st.warning(html.markdown(f"The question {asked} of the address is not stored here."))


def _show(looks: Sequence[Shown]) -> None:
    st.subheader("Side by side", anchor="figures")
    st.html(html.table(looks, METRICS))
    for note in dict.fromkeys(note for look in looks for note in look.run.manifest["notes"]):
        st.caption(html.markdown(note))
    measured = st.segmented_control(
        "Over time",
        list(charts.MEASURED),
        default="waiting",
        required=True,
        format_func=lambda name: charts.MEASURED[name][0],
        key="cluster_measured",
    )
    for number, figure in enumerate(charts.over_all(looks, str(measured))):
        _draw(figure, f"cluster-{number}")
    titles = [look.title for look in looks]
    picked = st.selectbox("Schedule of", titles, key="cluster_gantt")
    drawn = charts.gantt(looks[titles.index(picked)])
    if drawn is None:
        st.caption("This run has too many jobs for a chart of who ran where.")
    else:
        _draw(drawn, "cluster-gantt")


def _draw(figure: Figure, key: str) -> None:
    st.subheader(html.markdown(figure.title), anchor=False)
    assert isinstance(figure.chart, alt.Chart | alt.LayerChart)
    st.altair_chart(figure.chart, key=key)
    st.caption(html.markdown(figure.caption))
