"""One line for what pydantic found wrong: file, dotted key, problem and the nearest valid key.

For: turning a ValidationError into the text of a ScenarioError. Not for: validating.
"""

from __future__ import annotations

import difflib
import types
import typing
from typing import Any

from pydantic import BaseModel, Tag, ValidationError
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
    """The dotted path of `loc` without pydantic's own marks, and the valid keys at its last step."""
    here: Any = model
    parts: list[str] = []
    siblings: list[str] = []
    for step in loc:
        if isinstance(step, int):
            parts.append(str(step))
            here = _inner(here, 0)
        elif isinstance(here, type) and issubclass(here, BaseModel):
            siblings = list(here.model_fields)
            parts.append(step)
            here = _model_of(here.model_fields[step].annotation) if step in here.model_fields else None
        elif typing.get_origin(here) is dict:
            parts.append(step)
            here = _inner(here, 1)
        elif _is_union(here):
            here = _branch(here, step)
    return ".".join(parts), siblings


def _model_of(annotation: Any) -> Any:
    """The annotation without Annotated and Optional around it."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _model_of(typing.get_args(annotation)[0])
    if _is_union(annotation):
        kept = [each for each in typing.get_args(annotation) if each is not type(None)]
        return _model_of(kept[0]) if len(kept) == 1 else annotation
    return annotation


def _is_union(annotation: Any) -> bool:
    return isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union


def _branch(union: Any, tag: str) -> Any:
    """The member of a union that pydantic calls `tag`: by a Tag, or by the value of the telling key."""
    for member in typing.get_args(union):
        marks = typing.get_args(member)[1:] if typing.get_origin(member) is typing.Annotated else ()
        plain = _model_of(member)
        if any(isinstance(mark, Tag) and mark.tag == tag for mark in marks):
            return plain
        if isinstance(plain, type) and issubclass(plain, BaseModel):
            values = [typing.get_args(each.annotation) for each in plain.model_fields.values()]
            if any(tag in options for options in values):
                return plain
    return None


def _inner(annotation: Any, position: int) -> Any:
    """The element type of list[…] (position 0) or the value type of dict[…] (position 1)."""
    arguments = typing.get_args(annotation)
    return _model_of(arguments[position]) if len(arguments) > position else None
