"""The marks that everything of a fabric carries, and how to find what carries them.

For: finding everything of a fabric, even if its maker was killed and its file is gone. Not for: removing it
(leftovers.py). Source: our design. Namespaces and FRR's directories are named `tb-<fabric>-<part>`. Devices
are in these namespaces only. Processes run in them or have the fabric's name in their environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from testbed.containers.ownership import LINK_PREFIX, RUN_ROOT

ENVIRONMENT = "TWINBED_FABRIC"
"""Environment variable with the fabric's name, which processes inherit before they enter a namespace."""

STATE_ROOT = RUN_ROOT / "fabric"
NAMESPACES = Path("/run/netns")
FRR_FOLDERS = (Path("/etc/frr"), Path("/run/frr"))
"""FRR's folders for configurations, and for sockets and process ids, with a directory per namespace."""

_PART = re.compile(rf"{LINK_PREFIX}(?P<name>[a-z0-9-]+)-(?:[ts][0-9]+|h[0-9]+(?:e[0-9]+)?)")


def namespace(fabric: str, part: str) -> str:
    """Return the name of a part's namespace. part: `s0`, `t0`, `h0` or `h0e0`."""
    return f"{LINK_PREFIX}{fabric}-{part}"


def fabric_of(mark: str) -> str | None:
    """Return the fabric in a namespace's or directory's name; None if it is not a fabric's."""
    match = _PART.fullmatch(mark)
    # `tb-run-…` are the networks of containers.
    return match["name"] if match and not match["name"].startswith("run-") else None


def state_folder(fabric: str) -> Path:
    """Return the folder of a fabric's own files."""
    return STATE_ROOT / fabric


def fabrics() -> tuple[str, ...]:
    """Return the names of all fabrics that have anything on this machine, sorted."""
    names = {fabric_of(path.name) for folder in (NAMESPACES, *FRR_FOLDERS) for path in _listed(folder)}
    # A leading dot marks a name that is being claimed (state.py).
    names |= {path.name for path in _listed(STATE_ROOT) if not path.name.startswith(".")}
    return tuple(sorted(name for name in names if name is not None))


def namespaces_of(fabric: str) -> list[Path]:
    """Return a fabric's namespaces, sorted by name."""
    return [path for path in _listed(NAMESPACES) if fabric_of(path.name) == fabric]


def frr_folders_of(fabric: str) -> list[Path]:
    """Return FRR's directories of a fabric."""
    return [path for folder in FRR_FOLDERS for path in _listed(folder) if fabric_of(path.name) == fabric]


def processes_of(fabric: str) -> list[int]:
    """Return the ids of all processes in the fabric's namespaces or with its mark, without this process."""
    inodes = inodes_of(namespaces_of(fabric))
    mark = f"{ENVIRONMENT}={fabric}".encode()
    return [pid for pid in _process_ids() if _network(pid) in inodes or mark in _environment(pid)]


def inodes_of(places: Iterable[Path]) -> set[tuple[int, int]]:
    """Return the device and inode numbers that identify the namespaces mounted at these paths."""
    inodes = set()
    for path in places:
        with suppress(OSError):
            status = path.stat()
            inodes.add((status.st_dev, status.st_ino))
    return inodes


def _process_ids() -> list[int]:
    names = (path.name for path in Path("/proc").iterdir())
    return [int(name) for name in names if name.isdecimal() and int(name) != os.getpid()]


def _network(pid: int) -> tuple[int, int] | None:
    try:
        status = Path(f"/proc/{pid}/ns/net").stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
