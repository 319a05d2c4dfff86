"""Finds and reads the file of an application: one that ships with twinbed, by name, or a user's, by path.

For: `services.app` of a scenario and everything else that names an application. Not for: what the file
may say (lab.containers.input.services.application).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lab.ask import shipped, strict_yaml
from lab.ask.problems import describe
from lab.containers.input.services.application import AppSpec
from twinbed import ScenarioError


def load_app(name_or_path: str | Path) -> AppSpec:
    """The checked application; raises ScenarioError (file, dotted key, problem, nearest valid name)."""
    path = shipped.path_of("application", name_or_path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ScenarioError(f"{path}: {reason}") from None
    raw = strict_yaml.parse(text, str(path))
    if not isinstance(raw, dict):
        raise ScenarioError(f"{path}: {'empty file' if raw is None else 'expected keys and values'}")
    return build_app(raw, str(path))


def build_app(raw: dict[str, Any], where: str = "application") -> AppSpec:
    """A checked application from plain data; raises ScenarioError that begins with `where`."""
    try:
        return AppSpec.model_validate(raw)
    except ValidationError as error:
        raise ScenarioError(describe(error, AppSpec, where)) from None
