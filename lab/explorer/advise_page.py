"""Draws the page "Advise": choose a history and a risk, and see the advised settings and their past effect.

For: the order of this page and its states. Not for: its parts (advise_chooser, advise_results).
"""

from __future__ import annotations

import streamlit as st

from lab.explorer import advise_chooser, advise_results, limits, running, session
from lab.explorer.advise_results import Answer
from lab.explorer.job import Status
from lab.explorer.shelf import Shelf

_ANSWER, _NAME = "advice_answer", "answer"
_SHELF: Shelf[Answer] = Shelf(limits.SHELF, limits.SHELF_S)
"""Answers that an address names."""


class _Keeper:
    """Keeps the session's last advice, and gives it a name for the address."""

    def take(self, status: Status) -> None:
        """See session.Owner."""
        answer = Answer.of_plain(status.answer)
        st.session_state[_ANSWER] = _SHELF.put(answer), answer


def _kept() -> Answer | None:
    """Return the session's last advice; after a reload the one that the address names."""
    if _ANSWER not in st.session_state and (name := st.query_params.get(_NAME)):
        st.session_state[_ANSWER] = name, _SHELF.get(name)
        if st.session_state[_ANSWER][1] is None:
            st.warning("The advice of this address is not kept here any more: press Run to make it again.")
    kept: tuple[str | None, Answer | None] = st.session_state.get(_ANSWER, (None, None))
    name, answer = kept
    if answer is not None and name and st.query_params.get(_NAME) != name:
        st.query_params[_NAME] = name
    return answer


def page() -> None:
    """Draw the page."""
    running.take_finished()
    with st.sidebar:
        request = advise_chooser.choose(running=session.job() is not None)
        about = "Replays the history under each candidate for requests and limits."
        pressed = running.button(st.container(), about, ready=request is not None)
    if pressed and request is not None:
        running.start(_Keeper(), lambda: advise_chooser.lent(request))
    st.title("Advise", anchor=False)
    running.show()
    answer = _kept()
    if answer is None:
        if session.job() is None:
            st.markdown(
                "Choose a history and press **Run**: twinbed replays it under several settings for each "
                "container, and shows the advised settings, their past effect, and whether to apply them. "
                "Nothing is applied."
            )
        return
    if session.job() is None and request is not None and request.asked != answer.asked:
        running.say_outdated()
    advise_results.show(answer)
