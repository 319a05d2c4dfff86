"""Draws a page's head: its title, the question that it answers, and the list of its sections; and fragments.

For: every page but the home page. Not for: what the sections contain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import ParamSpec

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from lab.explorer import html
from twinbed import TwinbedError

Asked = ParamSpec("Asked")

_LEAST = 3
"""Fewest sections of a page that lists them."""


@dataclass(slots=True)
class _Page:
    """A page's list of sections. place: where the list is drawn, below the title; drawn: the sections so
    far."""

    place: DeltaGenerator | None = None
    drawn: list[str] = field(default_factory=list)


_page: ContextVar[_Page | None] = ContextVar("page", default=None)


def title(text: str, question: str) -> None:
    """Draw the page's title and the question that it answers, above the list of its sections."""
    st.title(html.markdown(text), anchor=False)
    st.markdown(html.markdown(question))
    if (page := _page.get()) is not None:
        page.place = st.empty()


def section(text: str) -> None:
    """Draw the heading of a section, which others may have chosen, and remember it for the list."""
    st.subheader(html.markdown(text), anchor=_anchor(text))
    if (page := _page.get()) is not None:
        page.drawn.append(text)


def fragment(draw: Callable[Asked, None], run_every: float | None = None) -> Callable[Asked, None]:
    """Return a part of a page that is also drawn again alone. A user's mistake becomes one line in it: the
    framework itself shows an error of a fragment, before lab.explorer.frame could."""

    @wraps(draw)
    def drawn(*args: Asked.args, **named: Asked.kwargs) -> None:
        try:
            draw(*args, **named)
        except TwinbedError as error:
            st.error(html.markdown(str(error)))

    return st.fragment(drawn, run_every=run_every)


@contextmanager
def listed() -> Iterator[None]:
    """List the sections that are drawn within, below the title."""
    page = _Page()
    token = _page.set(page)
    try:
        yield
    finally:
        _page.reset(token)
    if page.place is not None and len(page.drawn) >= _LEAST:
        page.place.caption(
            "On this page: "
            + " · ".join(f"[{html.markdown(text)}](#{html.markdown(_anchor(text))})" for text in page.drawn)
        )


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
