"""Draws the page "Containers": choose a trace and policies, run them in the background, see the results.

For: the order of this page. Not for: its parts (trace_chooser, running, results).
"""

from __future__ import annotations

import streamlit as st

from lab.explorer import html, results, running, sections, session, trace_chooser
from lab.explorer.selection import TraceChoices
from lab.runs.store import Run, RunStore

_KEPT = session.TRACES


def page() -> None:
    """Draw the page."""
    running.take_finished()
    with st.sidebar:
        chosen, ready, below = trace_chooser.choose(running=session.job() is not None)
        _KEPT.change(**{key: getattr(chosen, key) for key in trace_chooser.FIELDS})
        pressed = running.button(
            below, "Replays the trace under each policy and stores the runs.", ready=ready
        )
    if pressed:
        running.start(_KEPT, lambda: trace_chooser.request(_KEPT.selection(), RunStore().root))
    sections.title("Containers", "Which limits does my workload need, and what does each policy cost it?")
    messages = st.container()
    for line in _KEPT.address_problems():
        messages.warning(html.markdown(line))
    if problem := trace_chooser.problem(chosen):
        messages.error(html.markdown(problem))
    with messages:
        running.show()
    _results()
    _KEPT.publish()


def _results() -> None:
    chosen = _KEPT.selection()
    busy = session.job() is not None
    runs = running.opened(chosen.runs)
    if not runs:
        if not busy:
            st.markdown(
                "Choose a recording, or bring your own trace, and press **Run**: each policy replays it, "
                "and you see its reservations, throttling and kills."
            )
        trace_chooser.preview(chosen)
        return
    if not busy and _stale(runs, chosen):
        running.say_outdated()
    results.show(runs, chosen.container, lambda name: _KEPT.keep(container=name))


def _stale(runs: list[Run], chosen: TraceChoices) -> bool:
    """Return whether the shown runs answer another question than the one that is chosen now."""
    source = trace_chooser.source_name(chosen)
    of_another = source is not None and runs[0].manifest["inputs"][0].get("source") != source
    return of_another or running.answered(runs, chosen) != chosen
