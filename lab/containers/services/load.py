"""Finds and reads the file of an application: one that ships with twinbed, by name, or a user's, by path.

For: `services.app` of a scenario and everything else that names an application. Not for: what the file
may say (lab.containers.services.application).
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lab.ask import strict_yaml
from lab.ask.problems import describe
from lab.containers.services.application import AppSpec
from twinbed import ScenarioError

APPS = Path(__file__).resolve().parents[3] / "scenarios" / "apps"
"""The applications that ship with twinbed."""

_SUFFIXES = (".yaml", ".yml")


def shipped_apps() -> tuple[str, ...]:
    """Names of the applications that come with twinbed, sorted."""
    return tuple(sorted(path.stem for path in APPS.glob("*.yaml")))


def app_path(name_or_path: str | Path) -> Path:
    """The file meant by a shipped application's name, or by a path (with a folder or ending in .yaml).

    Raises ScenarioError, with the nearest name, for a name that is not shipped; a path is not looked at.
    """
    path = Path(name_or_path)
    if path.suffix in _SUFFIXES or len(path.parts) > 1:
        return path
    name = str(name_or_path)
    known = shipped_apps()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"shipped are {', '.join(known)}"
        raise ScenarioError(f"no application {name!r}; {hint} (a path ends in .yaml)")
    return APPS / f"{name}.yaml"


def load_app(name_or_path: str | Path) -> AppSpec:
    """The checked application; raises ScenarioError (file, dotted key, problem, nearest valid name)."""
    path = app_path(name_or_path)
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
