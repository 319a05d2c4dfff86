"""Makes foreign text safe to print, finds the name that a user meant, and puts numbers into sentences.

For: every place that prints names, paths or messages. These texts come from users' files and from other
machines, and must not contain control sequences. Not for: text that is stored or handed to a program, which
stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def printable(text: str) -> str:
    """Return `text` with a replacement character for each one that is not printable, line breaks included."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def nearest(name: str, known: Collection[str], otherwise: str | None = None) -> str:
    """Return a question with the known name that is spelled most alike. If none is near, return `otherwise`,
    or the list of known names."""
    close = get_close_matches(name, known, n=1) or [text for text in known if sorted(text) == sorted(name)]
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known are {', '.join(known)}" if otherwise is None else otherwise


def counted(number: float, noun: str, nouns: str = "") -> str:
    """Return a number with its noun: `1 sample`, `1,200 samples`, `0.5 cores`. nouns: the plural, if it is
    not the noun with an s."""
    return f"{number:,.15g} {noun if number == 1 else nouns or noun + 's'}"


def are(number: int) -> str:
    """Return the verb of a counted noun."""
    return "is" if number == 1 else "are"


def continued(text: str) -> str:
    """Return a sentence without the capital at its beginning, to follow a colon. Names and values within it
    stay as they are."""
    return text[:1].lower() + text[1:]
