"""Base class and field types shared by the files that users write.

For: the pydantic models of scenarios, applications, jobs, recordings and deployments. Not for: their
contents, nor the texts of errors (lab.ask.problems).
"""

from __future__ import annotations

import shlex
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _on_one_line(schema: dict[str, Any]) -> None:
    """Put each key's description in a JSON schema on one line; a docstring may have several."""
    for key in schema.get("properties", {}).values():
        if "description" in key:
            key["description"] = " ".join(key["description"].split())


DESCRIBED = ConfigDict(use_attribute_docstrings=True, json_schema_extra=_on_one_line)
"""Takes a key's description from `description`, or else from the docstring below the key."""


class Section(BaseModel):
    """A section of a file. Refuses unknown keys, type conversions and NaN, and cannot be changed."""

    model_config = ConfigDict(**DESCRIBED, extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _split(value: Any) -> Any:
    return shlex.split(value) if isinstance(value, str) else value


def _numbers_as_text(value: Any) -> Any:
    """Turn numbers into text, so that `OMP_NUM_THREADS: 1` needs no quotes in YAML."""
    if not isinstance(value, dict):
        return value
    return {
        key: str(entry) if isinstance(entry, int | float) and not isinstance(entry, bool) else entry
        for key, entry in value.items()
    }


Command = Annotated[list[str], Field(min_length=1), BeforeValidator(_split)]
"""Program and arguments. Text is split by the rules of a shell, but no shell runs it."""

Environment = Annotated[dict[str, str], BeforeValidator(_numbers_as_text)]
"""Environment variables by name."""
