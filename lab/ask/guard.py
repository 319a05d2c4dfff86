"""Reads YAML, JSON and TOML that a user wrote into plain data, strictly and within limits.

For: files of keys (scenarios, applications, jobs, recordings, deployments, fabrics, calibrations) and the
values of `--set`. Every reader of such text goes through here. Strict: no key twice, keys are text, `1e-3` is
a number, a date exists. Within limits: a small file cannot expand to gigabytes, and no number or text passes
that later code cannot use. Not for: the meaning of keys (lab.ask.scenario and others).
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from twinbed import ScenarioError
from twinbed.files import read_user_text
from twinbed.text import printable

MOST_BYTES = 256 * 1024
"""Largest file, enough for some thousand containers. PyYAML reads it in two seconds."""

MOST_DEPTH = 32
"""Deepest nesting. Valid files stay far below."""

MOST_NODES = 100_000
"""Most values of a file. An alias counts as the values that it stands for. MOST_BYTES of text cannot hold
many more."""

MOST_NUMBER = 2.0**63
"""Numbers must be smaller, whatever their unit: int64 arrays hold them, and sums of them stay finite."""

_MOST_DIGITS = 400
"""Longest number or date as text, characters."""

_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
"""Characters that no path, command or UTF-8 file can hold. YAML and JSON can write them as escapes."""

_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")
"""Numbers that need no YAML to be read: a sweep has 100,000 of them, and YAML takes 50 µs each."""

_DEEP_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}""")
"""A dotted TOML key of more than MOST_DEPTH parts. tomllib needs memory by the square of their number."""

_MERGE, _PREFIX = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:"
_SCALARS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "timestamp": "a date",
}
"""Tags of the scalar values that are read, and their names in messages."""


def parse(text: str, where: str, *, aliases: bool = True) -> Any:
    """Return the plain data in YAML. Raises ScenarioError that begins with `where` and names line or key.

    aliases: whether `*NAME` may stand for the value at `&NAME`
    """
    if _PLAIN_NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    try:
        loader = _Loader(text, aliases=aliases)
        node = loader.get_single_node()
        data = None if node is None else loader.plain(node)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        problem = str(getattr(error, "problem", None) or error).split("\n", 1)[0]
        if problem.startswith("mapping values"):
            problem += "; a text that holds a colon and a space needs quotes around all of it"
        raise ScenarioError(f"{where}: {line}not YAML: {problem}") from None
    return usable(data, where)


def parse_json(text: str | bytes, where: str) -> Any:
    """Return the plain data in JSON. Raises ScenarioError that begins with `where` and names line or key."""
    return _parsed(
        "JSON",
        lambda: json.loads(text, object_pairs_hook=_once, parse_int=_whole, parse_constant=float),
        where,
    )


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Return the plain data in TOML. Raises ScenarioError that begins with `where` and names line or key."""
    if _DEEP_KEY.search(text):
        raise ScenarioError(f"{where}: nested deeper than {MOST_DEPTH} levels")
    data: dict[str, Any] = _parsed("a TOML file", lambda: tomllib.loads(text), where)
    return data


def read_keys(path: Path, expected: str, *, aliases: bool = True) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises ScenarioError that names the file.

    expected: content that the message asks for if the file holds no mapping; aliases: as for `parse`
    """
    return keys(read_user_text(path, MOST_BYTES), str(path), expected, aliases=aliases)


def keys(text: str, where: str, expected: str, *, aliases: bool = True) -> dict[str, Any]:
    """Return the mapping in YAML, as `read_keys` does. Raises ScenarioError that begins with `where`."""
    data = parse(text, where, aliases=aliases)
    if not isinstance(data, dict):
        raise ScenarioError(f"{where}: {'empty file; ' if data is None else ''}expected {expected}")
    return data


def usable(data: Any, where: str) -> Any:
    """Return `data` if every value in it can be used. Raises ScenarioError that begins with `where` and names
    the key."""
    pending: list[tuple[str, int, Any]] = [("", 0, data)]
    while pending:
        key, depth, value = pending.pop()
        problem = _problem(value) if depth <= MOST_DEPTH else f"nested deeper than {MOST_DEPTH} levels"
        if problem:
            raise ScenarioError(f"{where}: {key and f'{printable(key)}: '}{problem}")
        if isinstance(value, dict):
            pending += [(name, depth + 1, name) for name in value]
            pending += [(f"{key}.{name}" if key else name, depth + 1, entry) for name, entry in value.items()]
        elif isinstance(value, list | tuple):
            pending += [(f"{key}.{place}", depth + 1, entry) for place, entry in enumerate(value)]
    return data


class _Loader(yaml.SafeLoader):
    """Composes YAML and builds plain data from it. An alias is built anew, and counted, at each place where
    it is used.
    """

    def __init__(self, text: str, *, aliases: bool) -> None:
        super().__init__(text)
        self._aliases = aliases
        self._depth = self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node as PyYAML does, which calls itself, up to the depth that is allowed."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) and not self._aliases:
            raise _at(event, f"aliases (*{event.anchor}) are not allowed")
        if self._depth > MOST_DEPTH:
            raise _at(event, f"nested deeper than {MOST_DEPTH} levels")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def plain(self, node: yaml.Node, depth: int = 0) -> Any:
        """Return the data of a node and of all below it."""
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise _at(node, f"more than {MOST_NODES:,} values, an alias counted as what it stands for")
        if depth > MOST_DEPTH:
            raise _at(node, f"nested deeper than {MOST_DEPTH} levels")
        if isinstance(node, yaml.MappingNode) and node.tag == _PREFIX + "map":
            return self._mapping(node, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == _PREFIX + "seq":
            return [self.plain(entry, depth + 1) for entry in node.value]
        kind = _SCALARS.get(node.tag.removeprefix(_PREFIX))
        if not isinstance(node, yaml.ScalarNode) or kind is None:
            raise _at(node, f"the tag {node.tag.replace(_PREFIX, '!!')} has no meaning here; leave it out")
        if kind != "text" and len(node.value) > _MOST_DIGITS:
            raise _at(node, f"{kind} of {len(node.value)} characters")
        if kind in ("a whole number", "a number") and ":" in node.value:
            return node.value  # YAML 1.1 reads 1:30 as 90. Users mean a range or a time by it.
        try:
            return self.construct_object(node)
        except (ArithmeticError, AttributeError, LookupError, ValueError):
            # Errors that PyYAML raises for `2023-99-99`, `!!int ""` or `!!bool 7`.
            raise _at(node, f"{node.value!r} is not {kind}; put it into quotes if it is text") from None

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged |= self._merged(value_node, depth)
                continue
            key = self.plain(key_node, depth + 1)
            if not isinstance(key, str):
                raise _at(key_node, f"the key {_short(key)} is not text; put it into quotes")
            if key in own:
                raise _at(key_node, f"key {_short(key)} is given twice")
            own[key] = self.plain(value_node, depth + 1)
        return merged | own

    def _merged(self, node: yaml.Node, depth: int) -> dict[str, Any]:
        """Return the keys that `<<: *NAME` or `<<: [*NAME, …]` adds; the first table with a key counts."""
        value = self.plain(node, depth + 1)
        tables = value if isinstance(value, list) else [value]
        if not all(isinstance(table, dict) for table in tables):
            raise _at(node, "`<<` takes a mapping, or a list of mappings")
        return {key: entry for table in reversed(tables) for key, entry in table.items()}


# YAML 1.1 requires a dot in a float, so PyYAML would read 1e-3 as text. Users mean a number by it.
_Loader.add_implicit_resolver(
    _PREFIX + "float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _at(place: yaml.Node | yaml.Event, problem: str) -> ScenarioError:
    line = place.start_mark.line if place.start_mark else 0
    return ScenarioError(f"line {line + 1}: {problem}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _parsed(form: str, read: Callable[[], Any], where: str) -> Any:
    try:
        data = read()
    except RecursionError:
        raise ScenarioError(f"{where}: nested deeper than {MOST_DEPTH} levels") from None
    except ValueError as error:
        raise ScenarioError(f"{where}: not {form}: {error}") from None
    return usable(data, where)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"key {_short(key)} is given twice")
        table[key] = value
    return table


def _whole(digits: str) -> int | float:
    """Return a whole number, as a float if it is far too large."""
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _problem(value: Any) -> str:
    """Return the problem of a single value, "" if it has none."""
    if isinstance(value, str):
        wrong = _NO_TEXT.search(value)
        return f"has the character {wrong[0]!r}; leave it out" if wrong else ""
    if not isinstance(value, int | float) or abs(value) < MOST_NUMBER:
        return ""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a finite number"
    return f"{_short(value)} is too large; numbers stay below {MOST_NUMBER:.3g}"
