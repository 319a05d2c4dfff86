"""Draws the page "Services": choose an application, a load and policies, and see the clients' latency.

For: the order of this page. Not for: its parts (services_chooser, running, services_results).
"""

from __future__ import annotations

import streamlit as st

from lab.explorer import html, running, sections, services_chooser, services_results, session
from lab.explorer.selection import ServiceChoices
from lab.runs.store import Run, RunStore

_KEPT = session.SERVICES


def page() -> None:
    """Draw the page."""
    running.take_finished()
    with st.sidebar:
        chosen, ready, below = services_chooser.choose(running=session.job() is not None)
        _KEPT.change(**{key: getattr(chosen, key) for key in services_chooser.FIELDS})
        pressed = running.button(
            below, "Simulates the application under each policy and stores the runs.", ready=ready
        )
    if pressed:
        running.start(_KEPT, lambda: services_chooser.request(_KEPT.selection(), RunStore().root))
    sections.title("Services", "How fast are answers to clients under each policy, and what does it reserve?")
    messages = st.container()
    for line in _KEPT.address_problems():
        messages.warning(html.markdown(line))
    with messages:
        running.show()
    _results()
    _KEPT.publish()


def _results() -> None:
    chosen = _KEPT.selection()
    busy = session.job() is not None
    runs = _with_clients(running.opened(chosen.runs))
    if not runs:
        if not busy:
            st.markdown(
                "Choose an application and a workload, and press **Run**: every policy meets the same "
                "requests, and you see latency, throughput, and the reserved resources."
            )
        services_chooser.preview(chosen)
        return
    if not busy and _stale(runs, chosen):
        running.say_outdated()
    services_results.show(runs, chosen, _KEPT.keep)


def _with_clients(runs: list[Run]) -> list[Run]:
    """Return the runs in which clients sent requests to a service graph."""
    fitting = [run for run in runs if "services" in run.manifest["spec"]]
    if len(fitting) < len(runs):
        st.warning("The page Runs shows those runs of the address that have no clients.")
    return fitting


def _stale(runs: list[Run], chosen: ServiceChoices) -> bool:
    """Return whether the shown runs answer another question than the one that is chosen now."""
    return running.answered(runs, services_chooser.answered(runs[0], chosen)) != chosen
