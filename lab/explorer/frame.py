"""Lists the explorer's pages and shows an unexpected error on one of them as one line.

For: navigation and errors. Not for: the content of a page.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import streamlit as st
from altair.utils import schemapi
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.state.query_params import parse_url_param

from lab.explorer import (
    advise_page,
    cloud_page,
    cluster_page,
    containers_page,
    fabric_page,
    home_page,
    html,
    limits,
    market_page,
    runs_page,
    sections,
    services_page,
    session,
    sweep_page,
    validation_page,
)
from twinbed import TwinbedError, own

_LOG = logging.getLogger(__name__)

# By default the framework leaves much empty space above the title and between the sections, has too little
# contrast in captions, chosen options and charts, and does not mark the element that has the keyboard focus.
_STYLE = """<style>
[data-testid="stMainBlockContainer"] { padding-top: 4rem; padding-bottom: 4rem; max-width: 100rem; }
[data-testid="stSidebarUserContent"] { padding-top: 0; }
[data-testid="stMainBlockContainer"] h1 { font-size: 1.75rem; padding: 0 0 0.4rem; }
[data-testid="stMainBlockContainer"] h3 { font-size: 1.2rem; padding: 1.2rem 0 0.2rem; }
.tb-phone { display: none; opacity: 0.72; font-size: 0.875rem; }
[data-testid="stTable"] :is(th, td):not(:first-child) { min-width: 5.5rem; }
[data-testid="stTable"] td:last-child { min-width: 14rem; }
@media (max-width: 640px) {
  .tb-phone { display: block; }
  [data-testid="stTable"] td:last-child { min-width: 7.5rem; }
}
[data-testid="stCaptionContainer"] { opacity: 1; color: color-mix(in srgb, currentcolor 75%, transparent); }
[data-testid="stButtonGroup"] button, [data-testid="stTab"] { color: inherit !important; }
[data-testid="stSliderThumbValue"] { color: inherit; }
:is(a, button):focus-visible { outline: 2px solid currentcolor !important; outline-offset: 2px; }
[data-testid="stVegaLiteChart"] svg text { fill: currentcolor; fill-opacity: 0.75; }
</style>"""

_ON_A_PHONE = '<div class="tb-phone">The choices of a page and the other pages are behind » above.</div>'
"""A narrow window hides the side with the Run button, to which the pages refer."""

_NO_OWN_CODE = "your own code runs from the command line and the Python API, not here"


def show() -> None:
    """Draw the page that the address names. A user's mistake becomes one line on it. A tab beyond the limit
    shows only a line."""
    if not session.is_admitted():
        st.error(f"{limits.TABS:d} tabs are open here, which is the most. Reload this one in some minutes.")
        return
    pages = {
        page.url_path: page
        for page in (
            st.Page(containers_page.page, title="Containers", url_path="containers"),
            st.Page(advise_page.page, title="Advise", url_path="advise"),
            st.Page(services_page.page, title="Services", url_path="services"),
            st.Page(fabric_page.page, title="Fabric", url_path="fabric"),
            st.Page(cluster_page.page, title="Cluster", url_path="cluster"),
            st.Page(cloud_page.page, title="Cloud", url_path="cloud"),
            st.Page(market_page.page, title="Market", url_path="market"),
            st.Page(sweep_page.page, title="Sweep", url_path="sweep"),
            st.Page(validation_page.page, title="Validation", url_path="validation"),
            st.Page(runs_page.page, title="Runs", url_path="runs"),
        )
    }
    home = st.Page(partial(home_page.page, pages), title="Home", url_path="home", default=True)
    page = st.navigation([home, *pages.values()], position="top")
    # A chart is checked as a whole when it is drawn. Checking its parts, too, takes 50 % more time.
    schemapi.disable_debug_mode()
    st.html(_STYLE)
    st.html(_ON_A_PHONE)
    try:
        session.follow_history()
        place, given = st.container(), _of_new_widgets()
        with own.forbidden(_NO_OWN_CODE), sections.listed():
            page.run()
        for line in _not_taken(given):
            place.warning(html.markdown(line))
        session.publish()
    except TwinbedError as error:
        st.error(html.markdown(str(error)))
    except Exception as error:
        _LOG.exception("page %s failed", page.title)
        st.error(html.markdown(f"The page failed, which is our bug: {type(error).__name__}: {error}"))


def _of_new_widgets() -> dict[str, list[str]]:
    """Return the address's values for widgets that are about to be drawn for the first time."""
    return {key: st.query_params.get_all(key) for key in st.query_params if key not in st.session_state}


def _not_taken(given: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield a line for each value in the address that its field did not take. The framework itself reports
    nothing."""
    context = get_script_run_ctx()
    if context is None:
        return
    # Only the framework's own state knows a field's type and how it writes a value into the address.
    state = context.session_state._state
    for key, texts in given.items():
        field = state.query_params.get_binding_for_param(key)
        form = None if field is None else state.get_widget_metadata(field.widget_id)
        if field is None or form is None or not any(texts):
            continue
        value = form.serializer(st.session_state[key])
        used = value if isinstance(value, list) else [] if value is None else [value]
        if refused := [text for text in texts if not _is_among(text, used, field.value_type)]:
            named = ", ".join(str(each).removesuffix(".0") for each in used)
            is_used = f"{named} {'is' if len(used) == 1 else 'are'} used" if used else "it is left empty"
            yield f"The address says {key}={', '.join(refused)}, which this page does not take: {is_used}."


def _is_among(text: str, used: Sequence[object], value_type: str) -> bool:
    """Return whether a field's values contain a value that the address gave as text."""
    try:
        value = parse_url_param(text, value_type)
    except ValueError:
        return False
    return (value[0] if isinstance(value, list) else value) in used
