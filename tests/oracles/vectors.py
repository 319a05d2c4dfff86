"""Finds expected values that nobody here wrote: vectors from the tests and the code of other projects.

The vectors lie in a folder `oracles` beside the public data sets. Each of its folders has a README that names
the source, its licence and the tolerances. They are not shipped, because they are not ours. more.json holds
further facts from the same projects' tests, in the same form.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

_DATA = Path(os.environ.get("TWINBED_DATA") or Path(__file__).parents[3] / "shared" / "data")
ROOT = _DATA.parent / "oracles"
MORE: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("more.json").read_text())
ABSENT = f"public data set oracles is not in {ROOT.parent} (set TWINBED_DATA to the folder data beside it)"


def rows(file: str, differs: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return the vectors of `file` (folder/name without .json) that no pattern (name/id) of `differs` names.

    Without the folder these are those of more.json.
    """
    path = ROOT / f"{file}.json"
    every: list[dict[str, Any]] = json.loads(path.read_text())["vectors"] if path.is_file() else []
    known = {row["id"] for row in every}
    every += [row for row in MORE.get(file, []) if row["id"] not in known]
    return [row for row in every if not any(fnmatch(f"{path.stem}/{row['id']}", key) for key in differs)]


def vectors(file: str, differs: Iterable[str] = ()) -> pytest.MarkDecorator:
    """Return a decorator: the test gets each of `rows` as `vector`, with an id that names file and vector.

    Without any vector there is one test, which is skipped with the reason.
    """
    name = file.rpartition("/")[2]
    params = [pytest.param(row, id=_id(name, row)) for row in rows(file, differs)]
    params = params or [pytest.param({}, id=f"{name}-absent", marks=pytest.mark.skip(reason=ABSENT))]
    return pytest.mark.parametrize("vector", params)


def series(changes: list[list[float]], ticks: int) -> NDArray[np.float64]:
    """Return the value at ticks 0 to `ticks`, float64[ticks + 1]: changes are [tick, value from it on]."""
    at, values = np.array(changes, np.float64).T
    return values[np.searchsorted(at, np.arange(ticks + 1), side="right") - 1]


def _id(file: str, vector: dict[str, Any]) -> str:
    group = vector["group"]
    return "-".join([file, vector["id"]] if group == vector["id"] else [file, group, vector["id"]])
