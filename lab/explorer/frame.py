"""Which pages the explorer has, and the last line of defence against a traceback on one.

For: navigation and errors. Not for: what is on a page.
"""

from __future__ import annotations

import streamlit as st

from lab.explorer import containers_page, runs_page
from twinbed import TwinbedError


def show() -> None:
    """Draws the page that the address asks for; what a user did wrong is one line on it."""
    page = st.navigation(
        [
            st.Page(containers_page.page, title="Containers", url_path="containers", default=True),
            st.Page(runs_page.page, title="Runs", url_path="runs"),
        ],
        position="top",
    )
    try:
        page.run()
    except TwinbedError as error:
        st.error(str(error))
