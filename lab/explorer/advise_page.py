"""Draws the page "Advise": choose a history and a risk, and see the advised settings and their past effect.

For: the order of this page and its states. Not for: its parts (advise_chooser, advise_results).
"""

from __future__ import annotations

import streamlit as st

from lab.explorer import advise_chooser, advise_results, running, sections, session
from lab.explorer.advise_results import Answer

_ANSWERS = session.Answers("advice", Answer.of_plain)


def page() -> None:
    """Draw the page."""
    running.take_finished()
    with st.sidebar:
        request = advise_chooser.choose(running=session.job() is not None)
        about = "Replays the history under each candidate for requests and limits."
        pressed = running.button(st.container(), about, ready=request is not None)
    if pressed and request is not None:
        running.start(_ANSWERS, lambda: advise_chooser.lent(request))
    sections.title("Advise", "Which requests and limits should my containers have, and is it safe?")
    running.show()
    answer = _ANSWERS.kept()
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
