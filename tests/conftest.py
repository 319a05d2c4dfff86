"""Fixtures for every test: where the public data sets are, and whether cgroups can be made."""

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


@pytest.fixture(scope="session")
def cgroups() -> None:
    """Skips the test where no cgroup can be made, found out without the code that is under test."""
    mount = Path("/sys/fs/cgroup")
    there = (mount / "memory").is_dir() or (mount / "cgroup.controllers").exists()
    if os.geteuid() != 0 or not there or not os.access(mount, os.W_OK):
        pytest.skip("making cgroups needs root and /sys/fs/cgroup mounted for writing")
