"""The JSON form of a service graph (control.services), which a deployment hands to its containers.

For: writing and reading it. Not for: running it (serve.py), addresses (deploy.py) nor the text that a user
writes (lab.containers.input.services.application). The twin's network_s is left out, because messages between
real processes take as long as the loopback device needs. The reader follows the types of the fields of
control.services. It does not use pydantic, which would add 5 MiB to the memory of every container.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from control.services import Draw, ServiceApp
from twinbed import ScenarioError

_WORDS: Mapping[object, tuple[Callable[[object], bool], str]] = {
    str: (lambda value: isinstance(value, str), "text"),
    int: (lambda value: type(value) is int, "a whole number"),
    float: (lambda value: type(value) in (int, float), "a number"),
}
"""For each simple type: a check of a JSON value, and the type's name in messages."""


def to_plain(app: ServiceApp) -> dict[str, Any]:
    """Return an application as plain data that `from_plain` reads. Draws are their names in lower case."""
    return asdict(app, dict_factory=lambda items: {key: _plain(value) for key, value in items})


def _plain(value: object) -> object:
    return value.name.lower() if isinstance(value, Draw) else value


def from_plain(raw: object, where: str = "application") -> ServiceApp:
    """Return the application in a JSON parser's result. Raises ScenarioError that begins with `where`."""
    try:
        app: ServiceApp = _read(ServiceApp, raw, "")
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    return app


def _read(kind: Any, value: Any, key: str) -> Any:
    """Return a value as the type `kind` of control.services. key: its dotted path, for messages."""
    if is_dataclass(kind):
        return _read_fields(kind, value, key)
    if kind is Draw:
        draws = {draw.name.lower(): draw for draw in Draw}
        if not isinstance(value, str) or value not in draws:
            raise ScenarioError(f"{key}: {value!r} is not one of {', '.join(draws)}")
        return draws[value]
    if get_origin(kind) is UnionType:
        kind = get_args(kind)[0]
        return None if value is None else _read_simple(kind, value, key, " or null")
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise ScenarioError(f"{key}: expected a list")
        return tuple(_read(get_args(kind)[0], entry, f"{key}.{place}") for place, entry in enumerate(value))
    if get_origin(kind) is Mapping:
        return {
            name: _read(get_args(kind)[1], entry, f"{key}.{name}")
            for name, entry in _table(value, key).items()
        }
    return _read_simple(kind, value, key)


def _read_fields(kind: Any, value: Any, key: str) -> Any:
    """Return a dataclass. All fields must be present, and no others."""
    table, hints = _table(value, key or "top"), _hints(kind)
    prefix = f"{key}." if key else ""
    for name in [*hints, *table]:
        if name not in table:
            raise ScenarioError(f"{prefix}{name}: missing")
        if name not in hints:
            raise ScenarioError(f"{prefix}{name}: no such key")
    return kind(**{name: _read(hint, table[name], f"{prefix}{name}") for name, hint in hints.items()})


def _read_simple(kind: Any, value: Any, key: str, more: str = "") -> Any:
    fits, words = _WORDS[kind]
    if not fits(value):
        raise ScenarioError(f"{key}: expected {words}{more}, not {value!r}")
    return kind(value)


def _table(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ScenarioError(f"{key}: expected keys and values")
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
