"""Keeps a session's state between reruns and pages: selections and their addresses, the upload, the job.

For: the only place that touches st.session_state under these names and st.query_params, and the bound on
tabs that are open at once. Not for: widgets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import streamlit as st
from streamlit import runtime
from streamlit.errors import StreamlitAPIException
from streamlit.runtime.scriptrunner import get_script_run_ctx

from lab.explorer import html, limits
from lab.explorer.job import Job, Status
from lab.explorer.selection import AnyChoices, ServiceChoices, TraceChoices, from_query, to_query
from lab.explorer.shelf import Shelf
from lab.explorer.uploads import SHELF as UPLOADS
from lab.explorer.uploads import Upload

Answer = TypeVar("Answer")

_UPLOAD, _JOB, _KEPT_JOB = "upload", "job", "kept_job"
_ANSWER = "answer"
_NAMED = (_UPLOAD, _JOB)
"""Parts of an address that name objects kept by a server. Every page has them."""
_LASTING = {
    _UPLOAD,
    _KEPT_JOB,
    "uploaded",
    "upload_token",
    "upload_trace",
    "upload_problem",
    "cloud_answered",
}
"""Parts of a session that stay when the browser goes back: what a visitor gave or waits for, not choices."""


class Owner(Protocol):
    """A page that receives a job's result."""

    def take(self, status: Status) -> None:
        """Keep the result of a job that is done."""


class Kept(Generic[AnyChoices]):
    """One page's selection, in the session and in the page's address."""

    def __init__(self, kind: type[AnyChoices]) -> None:
        self._kind = kind
        self._selection, self._problems = f"selection-{kind.__name__}", f"problems-{kind.__name__}"

    def selection(self) -> AnyChoices:
        """Return the session's selection. When the page is first shown, it is the selection in the
        address."""
        if self._selection not in st.session_state:
            query = {key: st.query_params.get_all(key) for key in st.query_params}
            st.session_state[self._selection], st.session_state[self._problems] = from_query(
                self._kind, query
            )
        chosen: AnyChoices = st.session_state[self._selection]
        return chosen

    def change(self, **values: Any) -> AnyChoices:
        """Change fields of the selection and return it. `publish` then changes the address."""
        st.session_state[self._selection] = replace(self.selection(), **values)
        return self.selection()

    def reset(self, selection: AnyChoices) -> None:
        """Replace the whole selection, whatever the address says."""
        st.session_state[self._selection], st.session_state[self._problems] = selection, []

    def take(self, status: Status) -> None:
        """Show the runs of a job that is done."""
        self.change(runs=status.runs)
        st.session_state.pop("shown_window", None)

    def publish(self) -> None:
        """Write the selection into the address if it differs: each write is a message to the browser."""
        write_address(to_query(self.selection()))

    def address_problems(self) -> list[str]:
        """Return one line per part of the address that could not be used."""
        problems: list[str] = st.session_state.get(self._problems, [])
        return problems

    def keep(self, **values: Any) -> None:
        """Change fields of the selection and the address. Has no effect if nothing differs."""
        before = self.selection()
        if self.change(**values) != before:
            self.publish()


TRACES = Kept(TraceChoices)
"""Selection of the page "Containers"."""
SERVICES = Kept(ServiceChoices)
"""Selection of the page "Services"."""


class Answers(Generic[Answer]):
    """The last answer of a page whose jobs store no runs: in the session, and by its name in the address.

    page: prefix of its name in the session; read: makes an answer of a child's plain data.
    """

    def __init__(self, page: str, read: Callable[[dict[str, Any]], Answer]) -> None:
        self._key, self._read = f"{page}_answer", read
        self._shelf: Shelf[Answer] = Shelf(limits.SHELF, limits.SHELF_S)

    def take(self, status: Status) -> None:
        """Keep the answer of a job that is done."""
        answer = self._read(status.answer)
        st.session_state[self._key] = self._shelf.put(answer), answer

    def kept(self) -> Answer | None:
        """Return the last answer; after a reload the one that the address names, or a line on the page if it
        is gone."""
        if self._key not in st.session_state and (asked := st.query_params.get(_ANSWER)):
            st.session_state[self._key] = asked, self._shelf.get(asked)
            if st.session_state[self._key][1] is None:
                st.warning("The answer of this address is not kept here any more: ask again.")
        named, answer = st.session_state.get(self._key, (None, None))
        if answer is not None:
            write_one(_ANSWER, named)
        found: Answer | None = answer
        return found


def goes_through_history() -> bool:
    """Return whether the browser went back or forward to this address. A write into the address would add an
    entry to the history, and the visitor could not go forward any more."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def follow_history() -> None:
    """Forget all choices if the browser went back or forward: the address has them, as after a reload."""
    if goes_through_history():
        for key in set(map(str, st.session_state)) - _LASTING:
            del st.session_state[key]


def write_address(wanted: Mapping[str, str | list[str]]) -> None:
    """Write a page's parameters into the address if they differ: each write is a message to the browser.
    Names of jobs and uploads stay. So do the values of widgets that keep them in the address; these widgets
    must be drawn before this call."""
    if goes_through_history():
        return
    for key in set(st.query_params) - {*wanted, *_NAMED}:
        with suppress(StreamlitAPIException):  # A widget's own parameter, which only the widget may remove
            del st.query_params[key]
    changed = {
        key: value
        for key, value in wanted.items()
        if st.query_params.get_all(key) != (value if isinstance(value, list) else [value])
    }
    if changed:
        st.query_params.update(changed)


def place(options: Sequence[str], asked: str, key: str, widget: str) -> int | None:
    """Return the index of an address's value among the options; None if it is not one of them, which a line
    on the page reports when the widget is first drawn. key: key of the value in the address."""
    if asked in options:
        return options.index(asked)
    if asked and widget not in st.session_state:
        st.warning(html.markdown(f"The address says {key}={asked}, which this page does not take."))
    return None


def recalled(widget: str, key: str, options: Collection[str], *, first: str = "") -> str | None:
    """Return the choice for a widget that is drawn again: the address's, else the last that `remember` was
    told, if it is still an option: the framework forgets widgets while another page is shown. key: key of the
    choice in the address; first: key without which the address says nothing, `key` if left out."""
    if (first or key) in st.query_params:
        return st.query_params.get(key)
    last: str | None = st.session_state.get(f"last-{widget}")
    return last if last in options else None


def remember(widget: str) -> None:
    """Keep a widget's choice while another page is shown."""
    st.session_state[f"last-{widget}"] = st.session_state[widget]


def write_one(key: str, text: str | None) -> None:
    """Write one parameter into the address, such as the name of an object that a server keeps, or remove
    it."""
    if goes_through_history():
        return
    if text is None:
        st.query_params.pop(key, None)
    elif st.query_params.get(key) != text:
        st.query_params[key] = text


def upload() -> Upload | None:
    """Return the trace that the user uploaded, if any; after a reload the one that the address names."""
    if _UPLOAD not in st.session_state and (name := st.query_params.get(_UPLOAD)):
        st.session_state[_UPLOAD] = name, UPLOADS.get(name)
    kept: Upload | None = st.session_state.get(_UPLOAD, (None, None))[1]
    return kept


def keep_upload(upload: Upload | None) -> None:
    """Remember the uploaded trace, also while another page is shown."""
    st.session_state[_UPLOAD] = (None, None) if upload is None else (UPLOADS.put(upload), upload)


@dataclass(frozen=True, slots=True)
class _KeptJob:
    """A job, the page that receives its result, and its visitor, who is another session after a reload."""

    job: Job
    owner: Owner
    visitor: Presence


_JOBS: Shelf[_KeptJob] = Shelf(limits.shared().workers + limits.shared().waiting, limits.RUN_S)
"""The jobs of this server. Each ends by itself if its visitor leaves."""


def job() -> Job | None:
    """Return the session's only job: waiting, running, or ended and not yet removed by `drop_job`. After a
    reload this is the one that the address names."""
    if _KEPT_JOB not in st.session_state and (name := st.query_params.get(_JOB)):
        found = _JOBS.get(name)
        if found is not None:
            found.visitor.follow()
        st.session_state[_KEPT_JOB] = name, found
    _, kept = st.session_state.get(_KEPT_JOB, (None, None))
    return None if kept is None else kept.job


def keep_job(started: Job, owner: Owner, visitor: Presence) -> None:
    """Make this the session's job. The page that has `owner` will show its result. visitor: the presence that
    the job checks."""
    kept = _KeptJob(started, owner, visitor)
    st.session_state[_KEPT_JOB] = _JOBS.put(kept), kept


def publish() -> None:
    """Write the names of the session's job and upload into the address, on every page."""
    for key, state in ((_JOB, _KEPT_JOB), (_UPLOAD, _UPLOAD)):
        named, kept = st.session_state.get(state, (None, None))
        write_one(key, None if kept is None else named)


class Presence:
    """Tells, on any thread, whether a visitor is connected in any of the sessions that it follows."""

    def __init__(self) -> None:
        self._connected = [_presence()]

    def follow(self) -> None:
        """Look after the session of this script run, too."""
        self._connected = [*self._connected, _presence()]

    def __call__(self) -> bool:
        """Return whether the visitor is connected."""
        return any(is_connected() for is_connected in self._connected)


def _presence() -> Callable[[], bool]:
    context = get_script_run_ctx()
    if context is None or not runtime.exists():
        return lambda: True
    server, session_id = runtime.get_instance(), context.session_id
    return lambda: server.is_active_session(session_id)


def is_admitted() -> bool:
    """Return whether this tab has a place among those that may be open at once."""
    context = get_script_run_ctx()
    return context is None or TABS.admit(context.session_id, _presence())


def drop_job() -> Owner:
    """Remove a job that has ended, and return its owner."""
    name, kept = st.session_state[_KEPT_JOB]
    st.session_state[_KEPT_JOB] = None, None
    _JOBS.drop(name)
    owner: Owner = kept.owner
    return owner


class Tabs:
    """The tabs that are open. most: largest number of open tabs. Any thread may call every method."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._present: dict[str, Callable[[], bool]] = {}

    def admit(self, tab: str, present: Callable[[], bool]) -> bool:
        """Return whether the tab has a place, after giving it a free one if possible. present: whether the
        tab is connected; a disconnected tab gives up its place."""
        with self._lock:
            self._present = {name: is_there for name, is_there in self._present.items() if is_there()}
            if tab not in self._present and len(self._present) >= self._most:
                return False
            self._present[tab] = present
            return True


TABS = Tabs(limits.TABS)
"""The tabs of this server."""
