"""Reads YAML that a user wrote, strictly: no key twice, `1e-3` is a number, errors in one line.

For: files of keys (scenarios, jobs, recordings) and the values of `--set`. Not for: what the keys mean
(lab.ask.scenario and others).
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from twinbed import ScenarioError


class _Loader(yaml.SafeLoader):
    """Loads safe YAML, without tags that build objects, and refuses a key that is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                line = key_node.start_mark.line + 1
                raise ScenarioError(f"line {line}: key {key_node.value!r} is given twice")
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


# YAML 1.1 wants a dot in a float, so PyYAML would read 1e-3 as text. Nobody who writes it means text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def parse(text: str, where: str) -> Any:
    """Return the plain data in `text`. Raises ScenarioError that begins with `where` and names the line."""
    try:
        return yaml.load(text, _Loader)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        problem = str(getattr(error, "problem", None) or error).split("\n", 1)[0]
        raise ScenarioError(f"{where}: {line}not YAML: {problem}") from None


def read_keys(path: Path, needed: str) -> dict[str, Any]:
    """Return the mapping in a file. Raises ScenarioError that names the file; `needed` is a key to mention
    in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: cannot be read ({getattr(error, 'strerror', 'not UTF-8')})") from error
    data = parse(text, str(path))
    if not isinstance(data, dict):
        raise ScenarioError(f"{path}: expected keys, `{needed}` among them")
    return data
