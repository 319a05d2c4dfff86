"""Checks the arguments of the Python API's functions by their annotations.

For: lab.api. Not for: what values mean, which whoever takes them checks. A text for a list of texts is a list
of one.
"""

from __future__ import annotations

import inspect
import os
import re
import reprlib
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from twinbed import ScenarioError
from twinbed.text import printable

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")

_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "a text"),
    "Literal": (str, "a text"),
    "Path": (os.PathLike, "a path"),
    "None": (type(None), "None"),
    "bool": ((bool, int), "True or False"),
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "tuple": ((tuple, list), "a pair of numbers"),
    "Mapping": (Mapping, "a dict"),
    "Sequence": (Collection, "a list"),
    "Callable": (Callable, "a function"),  # type: ignore[dict-item]
}
"""Name of a type in an annotation → the types that are taken, and its noun."""

_PLURALS = {"str": "texts", "int": "whole numbers", "float": "numbers"}
"""Nouns of what is in lists, by their names in an annotation."""

_EXAMPLES = {
    "until": "'ci(METRIC) < 5%'",
    "shard": "'1/2' or (1, 2)",
    "vary": "{'KEY': [VALUE, VALUE]}",
    "settings": "{'KEY': VALUE}",
    "hosts": "(HOSTS, CORES)",
}
_PART = re.compile(r"(\w+)(\[(?:[^\[\]]|\[[^\[\]]*\])*\])?")
"""A part of a union: its name, and what is in its brackets."""


def checked(function: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """Return the function, which raises ScenarioError that names an argument of another type.

    Its annotations are texts, as `from __future__ import annotations` makes them, or names of texts in its
    module. Names that are not in _KINDS are those of classes.
    """
    signature, aliases = inspect.signature(function), function.__globals__
    annotations = {name: spec.annotation for name, spec in signature.parameters.items()}
    parts = {name: _PART.findall(aliases.get(text, text)) for name, text in annotations.items()}
    several = {name for name, spec in signature.parameters.items() if spec.kind is spec.VAR_POSITIONAL}

    @wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if name in several:
                bound.arguments[name] = tuple(_fitted(name, one, parts[name]) for one in value)
            else:
                bound.arguments[name] = _fitted(name, value, parts[name])
        return function(*bound.args, **bound.kwargs)

    return call


def as_in_a_file(value: Any) -> Any:
    """Return a copy with lists for tuples and arrays, texts for paths, and Python's numbers for NumPy's."""
    if isinstance(value, Mapping):
        return {key: as_in_a_file(inner) for key, inner in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [as_in_a_file(inner) for inner in value]
    return str(value) if isinstance(value, os.PathLike) else value


def _fitted(name: str, value: Any, parts: list[tuple[str, str]]) -> Any:
    kinds = [kind for kind, _ in parts]
    if hasattr(value, "tolist"):  # a number or an array of NumPy, or a column of pandas
        value = value.tolist()
    if isinstance(value, str) and "str" not in kinds and ("Sequence", "[str]") in parts:
        return [value]
    if any(_is(value, *part) for part in parts):
        return value
    nouns = [_noun(value, *part) for part in parts]
    example = f", such as {_EXAMPLES[name]}" if name in _EXAMPLES else ""
    raise ScenarioError(f"{name} is {_short(value)}; expected {' or '.join(dict.fromkeys(nouns))}{example}")


def _noun(value: Any, kind: str, inside: str) -> str:
    """Return the noun of a kind. A list that is refused is told what a list has to hold."""
    if kind not in _KINDS:
        return f"a {kind}"
    held = [_PLURALS.get(name, f"{name}s") for name, _ in _PART.findall(inside)]
    is_told = kind == "Sequence" and isinstance(value, list | tuple) and "object" not in inside
    return f"{_KINDS[kind][1]} of {' or '.join(held)}" if is_told else _KINDS[kind][1]


def _short(value: Any) -> str:
    return printable(" ".join(reprlib.repr(value).split()))


def _is(value: Any, kind: str, inside: str) -> bool:
    """Return whether a value is of a kind. inside: the rest of its annotation, such as `[str]`."""
    if kind not in _KINDS:
        return kind in (base.__name__ for base in type(value).__mro__)
    if kind == "Sequence":
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Collection):
            return False
        held = _PART.findall(inside)
        return held == [("object", "")] or all(any(_is(one, *part) for part in held) for one in value)
    if isinstance(value, bool) and kind in ("int", "float"):
        return False
    if kind == "tuple":
        is_pair = isinstance(value, tuple | list) and len(value) == 2
        return is_pair and all(_is(one, "float", "") for one in value)
    return isinstance(value, _KINDS[kind][0])
