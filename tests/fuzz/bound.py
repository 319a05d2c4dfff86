"""The bound of a case: a result, or one printable line; never another exception, nor a warning beside it.

For: judging one call of a reader. Not for: its time and memory, which only another process can judge
(__main__.py).
"""

from __future__ import annotations

import traceback
import warnings
from pathlib import Path

from tests.fuzz.readers import Reader
from twinbed import InvariantError, TwinbedError

MOST_S = 10.0
"""Longest time of a case, s."""

MOST_BYTES = 1_000_000_000
"""Most memory of a reader's process while it reads, bytes: the largest resident set, its modules included."""

TOO_SLOW = f"takes more than {MOST_S:g} s"
TOO_MUCH = f"takes more than {MOST_BYTES / 1e9:g} GB of memory"


def problem(reader: Reader, path: Path) -> str:
    """Return what is wrong with how the reader took the file, in one line; "" if nothing is."""
    try:
        with warnings.catch_warnings():
            # A warning is printed on the standard error, where a user expects one line.
            warnings.simplefilter("error")
            reader.read(path)
    except InvariantError as error:
        return f"InvariantError: {error!s:.300}"
    except TwinbedError as error:
        return (
            "" if str(error).isprintable() and str(error) else f"not one printable line: {str(error)!r:.300}"
        )
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {last.filename}:{last.lineno}: {str(error)!r:.200}"
    return ""
