"""Headings of a page's sections, and the list of them at its top: pages may be many screens high.

For: every page. Not for: the pages' titles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import streamlit as st

from lab.explorer import html

_LEAST = 2
"""Fewest sections of a page that lists them."""

_drawn: ContextVar[list[str] | None] = ContextVar("drawn", default=None)


def section(text: str) -> None:
    """Draw the heading of a section, which others may have chosen, and remember it for the list."""
    st.subheader(html.markdown(text), anchor=_anchor(text))
    if (drawn := _drawn.get()) is not None:
        drawn.append(text)


@contextmanager
def listed() -> Iterator[None]:
    """List the sections that are drawn within, above them."""
    place = st.empty()
    drawn: list[str] = []
    token = _drawn.set(drawn)
    try:
        yield
    finally:
        _drawn.reset(token)
    if len(drawn) >= _LEAST:
        place.caption(
            "On this page: "
            + " · ".join(f"[{html.markdown(text)}](#{html.markdown(_anchor(text))})" for text in drawn)
        )


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
