"""Finds and reads the file of an application: a shipped one by name, or a user's by path.

For: `services.app` of a scenario and everything else that names an application. Not for: what the file may
say (application.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.ask import guard, shipped
from lab.ask.problems import validated
from lab.containers.input.services.application import AppSpec


def load_app(name_or_path: str | Path) -> AppSpec:
    """Return the checked application. Raises ScenarioError with file, dotted key, problem and nearest
    valid name."""
    path = shipped.path_of("application", name_or_path)
    return build_app(guard.read_keys(path, "keys and values"), str(path))


def build_app(raw: dict[str, Any], where: str = "application") -> AppSpec:
    """Return the checked application of plain data. Raises ScenarioError that begins with `where`."""
    return validated(AppSpec, raw, where)
