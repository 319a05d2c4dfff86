"""Finds expected values that nobody here wrote: vectors from the tests and the code of other projects.

The vectors lie in a folder `oracles` beside the public data sets. Each of its folders has a README that names
the source, its licence and the tolerances. They are not shipped, because they are not ours.
"""

from __future__ import annotations

import json
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

_DATA = Path(os.environ.get("TWINBED_DATA") or Path(__file__).parents[3] / "shared" / "data")
ROOT = _DATA.parent / "oracles"


def vectors(file: str, differs: dict[str, str] | None = None) -> pytest.MarkDecorator:
    """Returns a decorator: the test gets each vector of `file` (folder/name without .json) as `vector`.

    A test's id names the file and the vector. differs: pattern of `name/id` → why we differ on purpose.
    Such vectors are left out. Without the folder there is one test, which is skipped with the reason.
    """
    path = ROOT / f"{file}.json"
    if not path.is_file():
        reason = (
            f"public data set oracles/{file} is not in {ROOT.parent} (set TWINBED_DATA to its data folder)"
        )
        missing = pytest.param({}, id=f"{path.stem}-absent", marks=pytest.mark.skip(reason=reason))
        return pytest.mark.parametrize("vector", [missing])
    rows: list[dict[str, Any]] = json.loads(path.read_text())["vectors"]
    kept = [row for row in rows if not any(fnmatch(f"{path.stem}/{row['id']}", key) for key in differs or {})]
    return pytest.mark.parametrize("vector", [pytest.param(row, id=_name(path.stem, row)) for row in kept])


def _name(file: str, vector: dict[str, Any]) -> str:
    group = vector["group"]
    return "-".join([file, vector["id"]] if group in (vector["id"], "") else [file, group, vector["id"]])
