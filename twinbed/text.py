"""Makes foreign text safe to print on a terminal.

For: every place that prints names, paths or messages. These texts come from users' files and from other
machines, and must not contain control sequences. Not for: text that is stored or handed to a program, which
stays as it is.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return `text` with a replacement character for each one that is not printable, line breaks included."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
