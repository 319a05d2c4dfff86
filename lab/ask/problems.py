"""Checks plain data against a pydantic model, with an error of one line.

For: every file that a user writes. An error names the file, the dotted key, the problem and the nearest valid
key. Not for: the models (lab.ask.scenario and the pillars).
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from typing import Any, TypeVar

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from twinbed import ScenarioError
from twinbed.text import nearest, printable

Model = TypeVar("Model", bound=BaseModel)

_NAMES = re.compile(r"\^\[A-Za-z0-9\]\[A-Za-z0-9(?P<marks>[_.-]+)\]\{0,(?P<further>\d+)\}(?P<parts>\(/.*)?\$")
"""Patterns of names: a letter or digit, and then at most `further` letters, digits and `marks`; maybe several
such parts."""


_KEYS, _LIST = "expected keys with values below it", "expected a list, as [A, B]"
_SORTS = {
    "string_type": "expected text in quotes",
    "model_type": _KEYS, "dict_type": _KEYS, "model_attributes_type": _KEYS, "dataclass_type": _KEYS,
    "tuple_type": _LIST, "list_type": _LIST,
}  # fmt: skip
"""Pydantic's sort of problem → what is expected, in words."""


def validated(model: type[Model], data: Any, where: str) -> Model:
    """Return `data` as a `model`. Raises ScenarioError that begins with `where`, usually the file's path."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ScenarioError(describe(error, model, where)) from None


def describe(error: ValidationError, model: type[BaseModel], where: str) -> str:
    """Return the first problem as `where: key.path: problem`, followed by the number of further problems."""
    problems = error.errors(include_url=False)
    # A union reports one problem per branch. The deepest one is about the branch that the user meant.
    first = max((problem for problem in problems if problem["loc"][:1] == problems[0]["loc"][:1]), key=_depth)
    if first["type"] == "missing":
        # A misspelt key is unknown, and the key that was meant is missing.
        beside = (other for other in problems if other["loc"][:-1] == first["loc"][:-1])
        first = next((other for other in beside if other["type"] == "extra_forbidden"), first)
    path, siblings = _locate(model, first["loc"])
    message = first["msg"].removeprefix("Value error, ").replace("\n", " ")
    if first["type"] == "extra_forbidden":
        message = f"unknown key; {nearest(str(first['loc'][-1]), siblings)}"
    elif first["type"] == "missing":
        message = "missing"
    elif isinstance(first["input"], str | int | float):
        message = _in_words(first) or message
        message += f", not {first['input']!r}" if first["type"] != "value_error" else ""
    keys = {_locate(model, problem["loc"])[0] for problem in problems}
    more = f" (and {len(keys) - 1} more)" if len(keys) > 1 else ""
    return f"{where}: {printable(f'{path}: ' if path else '')}{printable(message)}{more}"


def _in_words(problem: ErrorDetails) -> str:
    """Return what is expected, if the problem is a value of another sort or a name that does not match its
    pattern; else "".
    """
    if problem["type"] in _SORTS:
        return _SORTS[problem["type"]]
    pattern = str(problem.get("ctx", {}).get("pattern", ""))
    if (name := _NAMES.fullmatch(pattern)) is None:
        return ""
    marks = ", ".join(map(repr, name["marks"]))
    parts = "; / joins such parts" if name["parts"] else ""
    most = f"at most {name['further']} more"
    return f"expected a letter or digit, and then {most} of letters, digits, {marks}{parts}"


def _depth(problem: ErrorDetails) -> int:
    return len(problem["loc"])


def _locate(model: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[str, list[str]]:
    """Return the dotted path of `loc` without pydantic's own marks, and the valid keys at its last step."""
    place: Any = model
    parts: list[str] = []
    siblings: list[str] = []
    for step in loc:
        if isinstance(step, int):
            parts.append(str(step))
            place = _inner(place, 0)
        elif isinstance(place, type) and issubclass(place, BaseModel):
            siblings = [field.alias or name for name, field in place.model_fields.items()]
            parts.append(step)
            place = _plain(place.model_fields[step].annotation) if step in place.model_fields else None
        elif dataclasses.is_dataclass(place):
            siblings = [field.name for field in dataclasses.fields(place)]
            parts.append(step)
        elif typing.get_origin(place) is dict:
            parts.append(step)
            place = _inner(place, 1)
        elif _is_union(place):
            place = _branch(place, step)
    return ".".join(parts), siblings


def _plain(annotation: Any) -> Any:
    """Return the annotation without Annotated and Optional around it."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _plain(typing.get_args(annotation)[0])
    if _is_union(annotation):
        members = [member for member in typing.get_args(annotation) if member is not type(None)]
        return _plain(members[0]) if len(members) == 1 else annotation
    return annotation


def _is_union(annotation: Any) -> bool:
    return isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union


def _branch(union: Any, tag: str) -> Any:
    """Return the union's member that pydantic calls `tag`: the member with this Tag, or with a field that
    allows this value."""
    for member in typing.get_args(union):
        marks = typing.get_args(member)[1:] if typing.get_origin(member) is typing.Annotated else ()
        plain = _plain(member)
        if any(isinstance(mark, Tag) and mark.tag == tag for mark in marks):
            return plain
        if isinstance(plain, type) and issubclass(plain, BaseModel):
            allowed = [typing.get_args(entry.annotation) for entry in plain.model_fields.values()]
            if any(tag in values for values in allowed):
                return plain
    return None


def _inner(annotation: Any, position: int) -> Any:
    """Return the element type of list[…] (position 0) or the value type of dict[…] (position 1)."""
    arguments = typing.get_args(annotation)
    return _plain(arguments[position]) if len(arguments) > position else None
