"""Leads from the choices on a page to runs and back: the Run button, the start of the job, the stored
runs.

For: what every page that runs something does in the same way. Not for: the choices (the choosers), the job
itself (lab.explorer.job) or the look of results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from lab.explorer import limits, progress, session
from lab.explorer.job import Job
from lab.explorer.selection import AnyChoices
from lab.explorer.worker import AnyRequest
from lab.runs.store import Run, RunStore
from twinbed import StoreError, TwinbedError


def button(place: DeltaGenerator, about: str, *, ready: bool) -> bool:
    """Shows the Run button, disabled while a job is running or nothing can be run. Returns whether it was
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
    """Starts the job whose result `owner`'s page will show. A reason against it becomes a line there."""
    if begin(owner, request):
        # Redrawn at once, so that the button that was pressed is seen to be out of use.
        st.rerun()


def begin(owner: session.Owner, request: Callable[[], AnyRequest]) -> bool:
    """Starts the job like `start`, and returns whether there is one now. The page is not redrawn."""
    progress.clear()
    try:
        session.keep_job(Job(request(), session.presence()), owner)
    except (TwinbedError, OSError) as error:
        progress.fail(str(error))
        return False
    return True


def opened(ids: Sequence[str]) -> list[Run]:
    """Returns those of these runs that are stored. A line on the page says how many are missing."""
    store = RunStore()
    runs: dict[str, Run] = {}
    missing = 0
    for run_id in ids:
        try:
            runs[run_id] = store.open(run_id)
        except StoreError:
            missing += 1
    if missing:
        st.warning(
            f"{missing:d} of the runs in the address are not stored here: press Run to make them again."
        )
    return list(runs.values())


def answered(runs: Sequence[Run], chosen: AnyChoices) -> AnyChoices:
    """Returns `chosen` with the conditions under which these runs were made."""
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
    """Shows a line for results that answer another question than the one that is chosen now."""
    st.info("The choices on the left have changed since these results: press Run to bring them up to date.")
