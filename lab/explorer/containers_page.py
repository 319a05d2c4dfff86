"""The page "Containers": choose a trace and policies, run them in the background, see what comes of it.

For: this page's order of things. Not for: its pieces (chooser, job, results).
"""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from lab.explorer import chooser, progress, results, session
from lab.explorer.job import Job
from lab.explorer.selection import Selection
from lab.store import Run, RunStore
from twinbed import StoreError, TwinbedError


def page() -> None:
    """Draws the page."""
    progress.take_finished()
    job = session.job()
    with st.sidebar:
        chosen, ready, below = chooser.choose(running=job is not None)
        session.change(**{key: getattr(chosen, key) for key in chooser.FIELDS})
        pressed = below.button(
            "Run",
            type="primary",
            width="stretch",
            disabled=job is not None or not ready,
            key="run",
            help="Replays the trace under each policy and stores the runs.",
        )
    if pressed and job is None:
        job = _start()
    st.title("Containers", anchor=False)
    messages = st.container()
    for line in session.address_problems():
        messages.warning(line)
    if problem := chooser.problem(chosen):
        messages.error(problem)
    with messages:
        progress.show()
    _results(running=job is not None)
    session.publish()


def _start() -> Job | None:
    progress.clear()
    try:
        session.keep_job(Job(chooser.request(session.selection(), RunStore().root)))
    except (TwinbedError, OSError) as error:
        progress.fail(str(error))
        return None
    # Redrawn at once, so that the button that was pressed is seen to be out of use.
    st.rerun()


def _results(*, running: bool) -> None:
    chosen = session.selection()
    runs, missing = _open(chosen.runs)
    if missing:
        st.warning(
            f"{len(missing)} of the runs in the address are not stored here: press Run to make them again."
        )
    if not runs:
        if not running:
            st.markdown(
                "Choose a recording, or bring your own trace, and press **Run**: each policy replays it, "
                "and you see what it would reserve, throttle and kill."
            )
        chooser.preview(chosen)
        return
    if not running and _stale(runs, chosen):
        st.info(
            "The choices on the left have changed since these results: press Run to bring them up to date."
        )
    results.show(runs, chosen.container, _look_at)


def _open(ids: tuple[str, ...]) -> tuple[list[Run], list[str]]:
    store = RunStore()
    runs, missing = [], []
    for run_id in ids:
        try:
            runs.append(store.open(run_id))
        except StoreError:
            missing.append(run_id)
    return list({run.id: run for run in runs}.values()), missing


def _stale(runs: list[Run], chosen: Selection) -> bool:
    """Whether the shown runs answer another question than the one that is chosen now."""
    first = runs[0].manifest
    price = first["spec"]["price"]
    source = chooser.source_name(chosen)
    answered = replace(
        chosen,
        policies=tuple(run.policy for run in runs),
        budget=first["spec"]["budget_factor"],
        seed=first["seed"],
        cpu_price=price["cpu_core_hour"],
        memory_price=price["memory_gib_hour"],
    )
    return answered != chosen or (source is not None and first["inputs"][0].get("source") != source)


def _look_at(container: str) -> None:
    if container != session.selection().container:
        session.change(container=container)
        session.publish()
