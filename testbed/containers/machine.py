"""The facts about this machine that a recording carries.

For: metadata. Nothing here names the host, its user or its folders.
"""

from __future__ import annotations

import os
from pathlib import Path


def facts() -> dict[str, str]:
    """cpu_model, cpus (logical CPUs online), machine_memory_bytes, kernel (name and release)."""
    system = os.uname()
    return {
        "cpu_model": _value(Path("/proc/cpuinfo"), "model name") or system.machine,
        "cpus": str(os.cpu_count()),
        "machine_memory_bytes": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "kernel": f"{system.sysname} {system.release}",
    }


def _value(path: Path, key: str) -> str | None:
    """The first `key : value` of a file of such lines."""
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None
