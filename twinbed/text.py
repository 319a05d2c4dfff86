"""Makes text of others fit for a terminal.

For: every place that prints names, paths or messages. They come from files and from machines of others, and
must not steer the terminal. Not for: what is stored or handed to a program, which stays as it is.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return `text` with a replacement character for each one that is not printable, line breaks included."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
