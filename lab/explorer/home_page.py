"""Draws the home page: what twinbed is, and one example question of each pillar that a click answers.

For: this page, and starting the four examples. Not for: the pages that show the answers. An address
`/?ask=cluster` starts a question like its button, so that a link can lead to an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from lab.explorer import cloud_page, cluster_page, html, running, session, trace_chooser
from lab.explorer.selection import TraceChoices
from lab.runs.store import RunStore
from traces.load import shipped

_RECORDING = "ddp_training"
"""The recording of the question about containers: four ranks of a PyTorch job, whose bursts differ."""
_COLUMNS = 2
_ASK = "ask"


@dataclass(frozen=True, slots=True)
class _Example:
    """A question with its shipped example.

    title: the question.
    about: the example, and what its answer shows.
    button: the effect of a click.
    begin: starts the computation; the page of the answer shows its progress, or why it could not start.
    """

    title: str
    about: str
    button: str
    begin: Callable[[], Any]


def _containers() -> None:
    if _RECORDING not in shipped():
        return
    session.TRACES.reset(TraceChoices(recording=_RECORDING))
    running.begin(session.TRACES, lambda: trace_chooser.request(session.TRACES.selection(), RunStore().root))


_EXAMPLES = {
    "containers": _Example(
        "Which limits would my containers need?",
        "A recorded PyTorch job is replayed under Escra, Autopilot, VPA and static limits. You see what each "
        "one reserves, throttles and kills. It takes some seconds.",
        "Replay a training job",
        _containers,
    ),
    "fabric": _Example(
        "What does a broken link cost a job?",
        "An uplink of a host dies silently. You see each step from detection to the first packet on the new "
        "path, how long packets are lost, and when RDMA sends again.",
        "Break a link",
        lambda: None,  # The page computes its answer when it is drawn.
    ),
    "cloud": _Example(
        "Which cluster trains my job cheapest?",
        "A recogniser of spoken words comes with a local run. Every cluster that a catalogue of prices "
        "offers gets a time and a cost with an interval, and the first in the ranking has its reasons.",
        "Recommend a cluster",
        cloud_page.ask,
    ),
    "cluster": _Example(
        "Who waits if another scheduler decides?",
        "The shipped jobs queue for 24 GPUs under each scheduler. You see how long they wait, their servers, "
        "and how fair it was. It takes some seconds.",
        "Schedule a queue of jobs",
        cluster_page.ask,
    ),
}
"""The examples, by the page that shows their answer."""


def page(pages: Mapping[str, StreamlitPage]) -> None:
    """Draw the page. pages: the explorer's other pages, by their place in the address."""
    running.take_finished()
    asked = _asked()
    st.title("What if your infrastructure decided otherwise?", anchor=False)
    st.markdown(
        "twinbed is a digital twin with a real testbed for the infrastructure under AI workloads. You ask "
        "**what if** of the twin, which computes the answer in virtual time. The testbed checks it with real "
        "processes and real links on Linux. The code that decides is the same on both sides."
    )
    busy = session.job() is not None
    if asked and asked not in _EXAMPLES:
        known = ", ".join(_EXAMPLES)
        st.warning(html.markdown(f"The address asks for {asked}; known are {known}."))
    running.show()
    pressed = _cards(pages, busy) or (asked if asked in _EXAMPLES and not busy else None)
    if pressed:
        st.query_params.clear()
        _EXAMPLES[pressed].begin()
        st.switch_page(pages[pressed])
    _further(pages)


def _asked() -> str:
    return "" if session.goes_through_history() else str(st.query_params.get(_ASK, ""))


def _cards(pages: Mapping[str, StreamlitPage], busy: bool) -> str | None:
    """Show a card for each question. Returns the one whose button was pressed."""
    pressed = None
    names = list(_EXAMPLES)
    for start in range(0, len(names), _COLUMNS):
        columns = st.columns(_COLUMNS)
        for name, column in zip(names[start : start + _COLUMNS], columns, strict=True):
            example = _EXAMPLES[name]
            with column.container(border=True, height="stretch"):
                st.markdown(
                    f":gray[{html.markdown(pages[name].title)}]\n#### {html.markdown(example.title)}\n"
                    f"{html.markdown(example.about)}"
                )
                if st.button(
                    html.markdown(example.button),
                    type="primary",
                    disabled=busy,
                    key=f"home_{name}",
                    width="stretch",
                ):
                    pressed = name
    return pressed


def _further(pages: Mapping[str, StreamlitPage]) -> None:
    """Say where the user's own questions and the twin's errors are."""
    stored = len(RunStore().names())  # Reading 100,000 runs takes a minute.
    own, errors, runs = st.columns(3)
    with own:
        st.page_link(pages["advise"], label="Bring your own history", icon=":material/upload:")
        st.caption("Sizes requests and limits from your monitoring, and rehearses them.")
    with errors:
        st.page_link(pages["validation"], label="How wrong is the twin?", icon=":material/balance:")
        st.caption("Twin against testbed, quantity by quantity, with the testbed's own spread.")
    with runs:
        st.page_link(pages["runs"], label="Stored runs", icon=":material/inventory_2:")
        st.caption(f"{stored:,d} {'run is' if stored == 1 else 'runs are'} stored here: compare, download.")
