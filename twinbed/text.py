"""Makes foreign text safe to print on a terminal, and puts numbers into sentences.

For: every place that prints names, paths or messages. These texts come from users' files and from other
machines, and must not contain control sequences. Not for: text that is stored or handed to a program, which
stays as it is.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return `text` with a replacement character for each one that is not printable, line breaks included."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def counted(number: float, noun: str, nouns: str = "") -> str:
    """Return a number with its noun: `1 sample`, `2 samples`, `0.5 cores`. nouns: plural; "": with an s."""
    return f"{number:.15g} {noun if number == 1 else nouns or noun + 's'}"


def are(number: int) -> str:
    """Return the verb of a counted noun."""
    return "is" if number == 1 else "are"
