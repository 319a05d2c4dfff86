"""Fixtures for every test: where the public data sets are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def public_data() -> Callable[[str], Path]:
    """A function: name of a public data set → its folder; skips the test where the data is not there."""
    given = os.environ.get("TWINBED_DATA")
    root = Path(given) if given else Path(__file__).parents[2] / "shared" / "data"

    def folder(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"public data set {name} is not in {root} (set TWINBED_DATA to its parent folder)")
        return root / name

    return folder
