"""Finds the files that ship with twinbed: scenarios, applications and training jobs.

For: every place where a user gives a shipped name or the path of a file of their own. Not for: reading the
file. The folder `scenarios` is beside the packages, both in a checkout and in an installed wheel.
"""

from __future__ import annotations

from pathlib import Path

from twinbed import ScenarioError
from twinbed.text import nearest

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
FOLDERS = {"scenario": SCENARIOS, "application": SCENARIOS / "apps", "job": SCENARIOS / "jobs"}
"""Folder of the YAML files of each sort."""


def names(sort: str) -> tuple[str, ...]:
    """Return the sorted names of the shipped files of a sort, a key of FOLDERS."""
    return tuple(sorted(path.stem for path in FOLDERS[sort].glob("*.yaml")))


def path_of(sort: str, name_or_path: str | Path) -> Path:
    """Return the path of a shipped file by its name, or the user's own path unchanged.

    A text is a path if it names an existing file, has a folder, or ends in .yaml or .yml. The path itself
    is not read. Raises ScenarioError, with the nearest name, for a name that does not ship.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1 or path.is_file():
        return path
    known, name = names(sort), str(name_or_path)
    if name in known:
        return FOLDERS[sort] / f"{name}.yaml"
    hint = nearest(name, known, f"shipped are {', '.join(known)}")
    raise ScenarioError(f"no {sort} {name!r}; {hint} (a path ends in .yaml)")
