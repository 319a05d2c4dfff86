"""Draws the page "Advise": choose a history and a risk, and see what to set and what would have come of it.

For: the order of this page and its states. Not for: its parts (advise_chooser, advise_results).
"""

from __future__ import annotations

import streamlit as st

from lab.explorer import advise_chooser, advise_results, running, session
from lab.explorer.advise_results import Answer
from lab.explorer.job import Status

_ANSWER = "advice_answer"


class _Keeper:
    """Keeps the session's last advice."""

    def take(self, status: Status) -> None:
        """See session.Owner."""
        st.session_state[_ANSWER] = Answer.of_plain(status.answer)


def page() -> None:
    """Draws the page."""
    running.take_finished()
    with st.sidebar:
        request = advise_chooser.choose(running=session.job() is not None)
        about = "Replays the history under each candidate for requests and limits."
        pressed = running.button(st.container(), about, ready=request is not None)
    if pressed and request is not None:
        running.start(_Keeper(), lambda: advise_chooser.lent(request))
    st.title("Advise", anchor=False)
    running.show()
    answer: Answer | None = st.session_state.get(_ANSWER)
    if answer is None:
        if session.job() is None:
            st.markdown(
                "Choose a history and press **Run**: twinbed replays it under several settings for each "
                "container, and says what to set, what would have come of it, and whether to apply it. "
                "Nothing is applied."
            )
        return
    if session.job() is None and request is not None and request.asked != answer.asked:
        running.say_outdated()
    advise_results.show(answer)
