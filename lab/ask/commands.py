"""A command and its environment as a user writes them in YAML, for every file that names commands.

For: the two field types of pydantic models. Not for: running anything.
"""

from __future__ import annotations

import shlex
from typing import Annotated, Any

from pydantic import BeforeValidator, Field


def _split(given: Any) -> Any:
    return shlex.split(given) if isinstance(given, str) else given


def _as_text(given: Any) -> Any:
    """Numbers are text to a command: OMP_NUM_THREADS: 1 needs no quotes."""
    if not isinstance(given, dict):
        return given
    return {
        key: str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
        for key, value in given.items()
    }


Command = Annotated[list[str], Field(min_length=1), BeforeValidator(_split)]
"""Program and arguments; text is split as a shell would, and runs without one."""

Environment = Annotated[dict[str, str], BeforeValidator(_as_text)]
"""Variables and their values as text."""
