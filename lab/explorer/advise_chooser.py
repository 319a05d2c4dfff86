"""Draws the left side of the page "Advise": where the history comes from, and the risk.

For: these widgets and the request that they make. Not for: making the advice (lab.explorer.advise_job).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import streamlit as st

from lab.explorer import html, uploads
from lab.explorer.advise_job import AdviceRequest
from lab.explorer.uploads import Upload
from traces.load import shipped
from traces.prometheus import kept
from twinbed import TraceError

_OWN, _SERVER = "upload", "server"
_TITLES = {_OWN: "Upload a history…", _SERVER: "Ask a Prometheus…"}
_BIND: Literal["query-params"] = "query-params"
_LEAST_RISK, _MOST_RISK = 0.5, 25.0


def choose(*, running: bool) -> AdviceRequest | None:
    """Show the widgets, disabled while a job is running. Returns the request, None if it is not complete.

    Uploads are added to the request later, by `lent`.
    """
    names = [*shipped(), *_TITLES]
    source = st.selectbox(
        "History",
        names,
        index=None,
        format_func=lambda name: _TITLES.get(name, name.replace("_", " ")),
        placeholder="Choose a history",
        key="advice_source",
        bind=_BIND,
        disabled=running,
        help="A recording that comes with twinbed, a file of your own, or a Prometheus that the explorer's "
        "machine reaches.",
    )
    place = st.container()
    risk = st.slider(
        "Risk: largest share of throttled periods (%)",
        _LEAST_RISK,
        _MOST_RISK,
        5.0,
        step=0.5,
        format="%.1f",
        key="advice_risk",
        bind=_BIND,
        disabled=running,
        help="Largest accepted share of CFS periods in which a container is throttled by its CPU limit. A "
        "smaller risk gives larger limits.",
    )
    hosts, cores = _hosts(running)
    request = AdviceRequest(risk=risk / 100, hosts=hosts, host_cores=cores)
    with place:
        asked = _history(source, request, running)
    # This comes last, because a field that is not drawn forgets its file.
    if (hosts is None) != (cores is None):
        st.error("Give both the number of hosts and the cores of each, or neither.")
        return None
    return asked


def _history(source: str | None, request: AdviceRequest, running: bool) -> AdviceRequest | None:
    """Show the fields of the chosen source. Returns the request about its history, None if it lacks one."""
    if source == _OWN:
        return _own(request, running)
    if source == _SERVER:
        return _server(request, running)
    # A browser may send any text as its choice, even the path of another file.
    return replace(request, source=source) if source in shipped() else None


def _hosts(running: bool) -> tuple[int | None, float | None]:
    """Show the fields of the hosts that containers share. Returns their number, and the cores of each."""
    left, right = st.columns(2)
    # A whole number in an address may overflow inside the framework; another number may not.
    count: float | None = left.number_input(
        "Hosts",
        min_value=1.0,
        value=None,
        step=1.0,
        format="%.0f",
        placeholder="1 each",
        key="advice_hosts",
        bind=_BIND,
        disabled=running,
        help="Let the containers share N hosts in the rehearsal, placed in turn. Empty: a host for "
        "each container.",
    )
    cores: float | None = right.number_input(
        "Cores of each",
        min_value=0.1,
        value=None,
        step=1.0,
        format="%g",
        key="advice_host_cores",
        bind=_BIND,
        disabled=running,
    )
    return None if count is None else round(count), cores


def lent(request: AdviceRequest) -> AdviceRequest:
    """Return the request with the uploads in a folder of their own. Raises TraceError."""
    given = _uploaded()
    if not given or request.source != main_of(given).name:
        return request
    return replace(request, folder=str(uploads.lend(*given)))


def _own(request: AdviceRequest, running: bool) -> AdviceRequest | None:
    st.file_uploader(
        uploads.LABEL,
        type=list(uploads.TYPES),
        accept_multiple_files=True,
        max_upload_size=uploads.MAX_MIB,
        key="advice_files",
        disabled=running,
        help="A trace, a saved answer of query_range, or OpenMetrics text. An imported history has a second "
        "file beside it, which says what is set now: upload both.",
    )
    try:
        given = _uploaded()
    except TraceError as error:
        st.error(html.markdown(str(error)))
        return None
    return replace(request, source=main_of(given).name) if given else None


def _uploaded() -> list[Upload]:
    """Return the uploaded files. Raises TraceError for a file that is not a history."""
    given = [uploads.received(file) for file in st.session_state.get("advice_files") or []]
    return [uploads.accept(file.name, file.content, file.problem) for file in given]


def main_of(given: list[Upload]) -> Upload:
    """Return the history among the files: the one that does not lie beside another."""
    return min(given, key=lambda upload: upload.name.endswith(kept.SUFFIX))


def _server(request: AdviceRequest, running: bool) -> AdviceRequest | None:
    url = st.text_input(
        "Address", placeholder="http://localhost:9090", key="advice_url", bind=_BIND, disabled=running
    ).strip()
    selector = st.text_input(
        "Which containers",
        placeholder='namespace="shop",pod=~"web-.*"',
        key="advice_selector",
        bind=_BIND,
        disabled=running,
        help="Matchers as in PromQL; empty for all.",
    )
    back, interval = st.columns(2)
    since = back.text_input("How far back", "7d", key="advice_since", bind=_BIND, disabled=running)
    step = interval.text_input("Interval", "30s", key="advice_step", bind=_BIND, disabled=running)
    st.caption("For a server that requires a token: `twinbed advise --prometheus URL --token-file FILE`.")
    return replace(request, url=url, selector=selector, since=since, step=step) if url else None
