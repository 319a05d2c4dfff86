"""Stored questions, which are runs that differ only in their policy, and the command that repeats one.

For: the pages "Cluster", "Fabric" and "Market". Not for: their own widgets and charts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import streamlit as st

from lab.ask.kind import Figure
from lab.ask.scenario import Scenario
from lab.charts.palette import Shown, title
from lab.explorer import downloads, html, session
from lab.explorer.job import Status
from lab.explorer.sections import section
from lab.explorer.selection import MAX_POLICIES
from lab.runs.labels import conditions
from lab.runs.metric import Metric
from lab.runs.store import Run, RunStore

_LOOK_AGAIN_S = 30.0
"""How long the list of questions is kept, s: reading it opens every stored run."""


@dataclass(frozen=True, slots=True)
class Question:
    """Runs that differ in their policy alone.

    key: its name in the address; title: shown to the visitor; runs: ids, one per policy;
    made_at: when the newest run was made
    """

    key: str
    title: str
    runs: tuple[str, ...]
    made_at: str


@dataclass(frozen=True, slots=True)
class Keeper:
    """Shows the question whose runs a job has made. page: prefix of the page's keys in the session."""

    page: str

    def take(self, status: Status) -> None:
        """Keep the result of a job that is done, so that its question is shown next."""
        stored.clear()
        st.session_state[f"{self.page}_fresh"] = status.runs[:1]

    def made(self, questions: Iterable[Question]) -> str | None:
        """Return the key of the question that a job has made since the last time, None if there is none."""
        fresh = set(st.session_state.pop(f"{self.page}_fresh", ()))
        return next((question.key for question in questions if fresh & set(question.runs)), None)

    def chosen(self, asked: Mapping[str, Question]) -> Question:
        """Show the widget that chooses one of these questions, by their keys, and return the chosen one: a
        job's, or that of the address when the page is shown first. The address remembers it."""
        widget = f"{self.page}_question"
        wanted = session.recalled(widget, "question", asked)
        if made := self.made(asked.values()):
            st.session_state[widget] = made
        elif st.session_state.get(widget) not in asked:
            st.session_state[widget] = wanted if wanted in asked else next(iter(asked))
            if wanted and wanted not in asked:
                missing(wanted)
        key: str = st.selectbox("Question", list(asked), format_func=lambda key: asked[key].title, key=widget)
        session.remember(widget)
        session.write_one("question", key)
        return asked[key]


@st.cache_data(ttl=_LOOK_AGAIN_S, max_entries=4, show_spinner="Reading the stored runs")
def stored(root: str, kind: str, policies: tuple[str, ...]) -> list[Question]:
    """Return the stored questions of a kind, the newest first. policies: the order of a question's runs; the
    user's own policies come last."""
    asked: dict[str, dict[str, Run]] = {}
    for run in RunStore(root).runs():
        if run.kind.name == kind:
            same = asked.setdefault(_key(run), {})
            if run.policy not in same or same[run.policy].manifest["created_at"] < run.manifest["created_at"]:
                same[run.policy] = run
    found = [_question(key, list(same.values()), policies) for key, same in asked.items()]
    return sorted(found, key=lambda question: question.made_at, reverse=True)


def by_key(kind: str, policies: Iterable[str]) -> dict[str, Question]:
    """Return the stored questions of a kind by their keys, the newest first."""
    return {question.key: question for question in stored(str(RunStore().root), kind, tuple(policies))}


def _key(run: Run) -> str:
    told = [conditions(run), run.seed, run.manifest.get("repeat")]
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    return f"{run.manifest['name']}-{digest[:8]}"


def _question(key: str, runs: Sequence[Run], policies: Sequence[str]) -> Question:
    order = [*policies, *(run.policy for run in runs)]
    runs = sorted(runs, key=lambda run: order.index(run.policy))
    first = runs[0].manifest
    where = "" if first["backend"] == "twin" else f" · {first['backend']}"
    name = f"{first['name']} · {first['about']} · seed {runs[0].seed}{where} · {key[-8:]}"
    made_at = max(str(run.manifest["created_at"]) for run in runs)
    return Question(key, name, tuple(run.id for run in runs), made_at)


def missing(asked: str) -> None:
    """Show that the question of the address is not stored."""
    st.warning(html.markdown(f"The question {asked} of the address is not stored here."))


def policies(page: str, scenario: Scenario, known: Sequence[str]) -> list[str]:
    """Show the widget that chooses policies, and return the chosen ones.

    A browser may send any text, whatever the widget allows, so that only known policies are returned.
    """
    chosen = st.multiselect(
        "Policies",
        list(known),
        default=scenario.policies,
        max_selections=MAX_POLICIES,
        format_func=title,
        disabled=session.job() is not None,
        key=f"{page}_policies",
        bind="query-params",
    )
    return [policy for policy in chosen if policy in known][:MAX_POLICIES]


def number(
    label: str, least: float, most: float, usual: float, key: str, *, whole: bool = False, busy: bool = False
) -> float:
    """Show a field for a number, and return it within its bounds: a browser may send any number, whatever the
    widget allows.

    whole: for whole numbers. The field's value stays a float, because an int in an address may overflow
    inside the framework. busy: whether the field is disabled.
    """
    entered = st.number_input(
        label, least, most, usual, 1.0, "%.0f" if whole else "%g",
        key=key, disabled=busy, bind="query-params",
    )  # fmt: skip
    return min(most, max(least, round(entered) if whole else entered))


def side_by_side(looks: Sequence[Shown], metrics: Sequence[Metric]) -> None:
    """Show all figures of the runs, the downloads, and the assumptions."""
    section("Side by side")
    st.html(html.table(looks, metrics))
    st.caption("The best of each line is marked; point at a line for its definition.")
    for note in dict.fromkeys(note for look in looks for note in look.run.manifest["notes"]):
        st.caption(html.markdown(note))
    downloads.whole(looks)


def draw(figure: Figure, key: str) -> None:
    """Show a chart between its title and its caption."""
    section(figure.title)
    assert isinstance(figure.chart, alt.Chart | alt.LayerChart)
    st.altair_chart(figure.chart, key=key)
    st.caption(html.markdown(figure.caption))
