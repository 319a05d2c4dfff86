"""The hash of the code that can influence a result.

For: a run's identity (lab.runs.manifest), and refusing workers that have other code (lab.engine.dask). Not
for: code that only asks, shows or distributes, because it does not change results.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_TWIN = (
    "control", "lab/ask", "lab/cloud", "lab/cluster", "lab/containers", "lab/fabric", "lab/kinds.py",
    "lab/runs/manifest.py", "lab/runs/metric.py", "traces", "twin", "twinbed",
)  # fmt: skip
"""Packages that determine a run on the twin."""
_TESTBED = ("kernel", "testbed")
"""Packages that, in addition, determine a run on this machine."""
_SUFFIXES = (".c", ".csv", ".py", ".toml")


@cache
def code_sha256(*, testbed: bool = False) -> str:
    """Return the SHA-256 of the installed source files, with their names, in hexadecimal digits.

    testbed: with the code that runs containers on this machine.
    """
    digest = hashlib.sha256()
    for part in (*_TWIN, *(_TESTBED if testbed else ())):
        path = _ROOT / part
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in files:
            if file.suffix in _SUFFIXES:
                digest.update(f"{file.relative_to(_ROOT)}\n".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
