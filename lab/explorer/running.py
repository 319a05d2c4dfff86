"""The steps from the choices on a page to its runs: the Run button, the start of the job, its progress, the
stored runs.

For: the common behaviour of all pages that run something. Not for: the choices (the choosers), the job itself
(lab.explorer.job) or the look of results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from lab.charts.palette import title
from lab.explorer import html, limits, session
from lab.explorer.job import Job, Status
from lab.explorer.selection import AnyChoices
from lab.explorer.worker import AnyRequest
from lab.runs.store import Run, RunStore
from twinbed import StoreError, TwinbedError


def button(place: DeltaGenerator, about: str, *, ready: bool) -> bool:
    """Show the Run button, disabled while a job is running or nothing can be run. Return whether it was
    pressed."""
    busy = session.job() is not None
    pressed: bool = place.button(
        "Run",
        type="primary",
        width="stretch",
        disabled=busy or not ready,
        key="run",
        help=f"{about} {limits.shared().sentence()}",
    )
    return pressed and not busy


def start(owner: session.Owner, request: Callable[[], AnyRequest]) -> None:
    """Start the job whose result `owner`'s page will show. A reason against it becomes a line there."""
    if begin(owner, request):
        # Redrawn at once, so that the pressed button is shown as disabled.
        st.rerun()


def begin(owner: session.Owner, request: Callable[[], AnyRequest]) -> bool:
    """Start the job like `start`, and return whether there is a job now. The page is not redrawn."""
    clear()
    try:
        visitor = session.Presence()
        session.keep_job(Job(request(), visitor), owner, visitor)
    except (TwinbedError, OSError) as error:
        fail(str(error))
        return False
    return True


def opened(ids: Sequence[str]) -> list[Run]:
    """Return those of these runs that are stored. A line on the page gives the number of missing runs."""
    store = RunStore()
    runs: dict[str, Run] = {}
    missing = 0
    for run_id in ids:
        try:
            runs[run_id] = store.open(run_id)
        except StoreError:
            missing += 1
    if missing:
        are, them = ("is", "it") if missing == 1 else ("are", "them")
        st.warning(
            html.markdown(
                f"{missing} of the runs in the address {are} not stored here: press Run to make {them} again."
            )
        )
    return list(runs.values())


def answered(runs: Sequence[Run], chosen: AnyChoices) -> AnyChoices:
    """Return `chosen` with the conditions under which these runs were made."""
    first = runs[0].manifest
    price = first["spec"]["price"]
    return replace(
        chosen,
        policies=tuple(run.policy for run in runs),
        budget=first["spec"]["budget_factor"],
        seed=first["seed"],
        cpu_price=price["cpu_core_hour"],
        memory_price=price["memory_gib_hour"],
    )


def say_outdated() -> None:
    """Show a line for results that answer another question than the one that is chosen now, be it that the
    choices have changed or that an address names runs alone."""
    st.info("These results are of other choices than those on the left: press Run for an answer to those.")


_EVERY_S = 0.4
_FAILURE, _CANCELLED = "failure", "cancelled"


def take_finished() -> None:
    """Show the runs of a job that has ended, or store the reason why it failed."""
    job = session.job()
    if job is None:
        return
    status = job.status()
    if not status.ended:
        return
    owner = session.drop_job()
    if status.phase == "done":
        owner.take(status)
    elif status.phase == "failed":
        fail(status.message)
    else:
        st.session_state[_CANCELLED] = "Cancelled. Finished runs are stored; the run in progress is not."


def show(so_far: Callable[[Status], object] = lambda _status: None) -> None:
    """Show the session's job, or why the last one failed. so_far: function that draws the part of the answer
    that has arrived."""
    if session.job() is not None:
        _follow(so_far)
    elif failed := st.session_state.get(_FAILURE):
        st.error(html.markdown(failed))
    elif cancelled := st.session_state.get(_CANCELLED):
        st.info(html.markdown(cancelled))


def clear() -> None:
    """Forget how the last job ended."""
    for key in (_FAILURE, _CANCELLED):
        st.session_state.pop(key, None)


def fail(message: str) -> None:
    """Record why no job was started, so that the page shows it."""
    st.session_state[_FAILURE] = message


@st.fragment(run_every=_EVERY_S)
def _follow(so_far: Callable[[Status], object]) -> None:
    """Follow the job without redrawing the rest of the page."""
    job = session.job()
    if job is None:
        return
    status = job.status()
    if status.ended:
        st.rerun()
    bar, button = st.columns([6, 1], vertical_alignment="center")
    bar.progress(min(1.0, status.fraction), html.markdown(_text(status)))
    if button.button("Cancel", key="cancel", width="stretch"):
        job.cancel()
        st.rerun()
    so_far(status)


def _text(status: Status) -> str:
    if status.place:
        return (
            f"Waiting for other visitors' runs: place {status.place:d} in the queue, {status.elapsed_s:.0f} s"
        )
    if not status.label:
        return f"Preparing… {status.elapsed_s:.0f} s"
    return f"{title(status.label)}: {status.fraction:.0%} of the whole, {status.elapsed_s:.0f} s"
