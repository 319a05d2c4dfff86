"""Makes foreign text safe to print on a terminal, and counts things in words.

For: every place that prints names, paths, messages or numbers of things. Names and messages come from users'
files and from other machines, and must not contain control sequences. Not for: text that is stored or handed
to a program, which stays as it is.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return `text` with a replacement character for each one that is not printable, line breaks included."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def counted(number: int, thing: str, things: str = "") -> str:
    """Return a number of things in words: `1 probe`, `1,200 probes`. things: the plural if it is not the
    singular with an s."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"
