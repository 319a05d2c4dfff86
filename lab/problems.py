"""One line for what pydantic found wrong: file, dotted key, problem and the nearest valid key.

For: turning a ValidationError into the text of a ScenarioError. Not for: validating.
"""

from __future__ import annotations

import difflib
import types
import typing
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails


def describe(error: ValidationError, model: type[BaseModel], where: str) -> str:
    """The first problem of `error` against `model`, as `where: key.path: problem`, and how many more."""
    problems = error.errors(include_url=False, include_context=False)
    # A union reports one problem per branch; the one deepest inside is about the branch that was meant.
    first = max((each for each in problems if each["loc"][:1] == problems[0]["loc"][:1]), key=_depth)
    path, siblings = _locate(model, first["loc"])
    message = first["msg"].removeprefix("Value error, ").replace("\n", " ")
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(str(first["loc"][-1]), siblings, n=1, cutoff=0.5)
        message = "unknown key; " + (
            f"did you mean {close[0]!r}?" if close else f"known are {', '.join(siblings)}"
        )
    elif first["type"] == "missing":
        message = "missing"
    elif isinstance(first["input"], str | int | float):
        message += f", not {first['input']!r}" if first["type"] != "value_error" else ""
    keys = {_locate(model, problem["loc"])[0] for problem in problems}
    more = f" (and {len(keys) - 1} more)" if len(keys) > 1 else ""
    return f"{where}: {path + ': ' if path else ''}{message}{more}"


def _depth(problem: ErrorDetails) -> int:
    return len(problem["loc"])


def _locate(model: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[str, list[str]]:
    """The dotted path of `loc` without pydantic's union tags, and the valid keys at its last step."""
    here: Any = model
    parts: list[str] = []
    siblings: list[str] = []
    for step in loc:
        if isinstance(step, int):
            parts.append(str(step))
            here = _inner(here)
        elif isinstance(here, type) and issubclass(here, BaseModel):
            siblings = list(here.model_fields)
            parts.append(step)
            here = here.model_fields[step].annotation if step in here.model_fields else None
            here = _model_of(here)
        elif here is dict:
            parts.append(step)
    return ".".join(parts), siblings


def _model_of(annotation: Any) -> Any:
    """The model inside Optional[…], or the annotation as it is."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        kept = [each for each in typing.get_args(annotation) if each is not type(None)]
        return kept[0] if len(kept) == 1 else None
    return annotation


def _inner(annotation: Any) -> Any:
    """The element type of list[…]."""
    arguments = typing.get_args(annotation)
    return _model_of(arguments[0]) if arguments else None
