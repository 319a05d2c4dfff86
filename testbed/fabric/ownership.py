"""Whose is it? The marks that everything of a fabric carries, and what carries them on this machine.

For: finding all that is a fabric's, though the process that made it was killed and its file may be gone. Not
for: removing it (leftovers.py). Namespaces and FRR's directories are named `tb-<fabric>-<part>`, devices lie
in these namespaces only, and processes run in them or have the fabric's name in their environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from testbed.containers.ownership import LINK_PREFIX, RUN_ROOT

ENVIRONMENT = "TWINBED_FABRIC"
"""Variable with the fabric's name, which processes started for a fabric inherit before they enter it."""

STATE_ROOT = RUN_ROOT / "fabric"
NAMESPACES = Path("/run/netns")
FRR_FOLDERS = (Path("/etc/frr"), Path("/run/frr"))
"""Where FRR keeps configurations, and sockets and process ids: a directory for each namespace in both."""

_PART = re.compile(rf"{LINK_PREFIX}(?P<name>[a-z0-9-]+)-(?:t[0-9]+|h[0-9]+(?:e[0-9]+)?)")


def namespace(fabric: str, part: str) -> str:
    """The name of a part's namespace; part: `t0`, `h0` or `h0e0`."""
    return f"{LINK_PREFIX}{fabric}-{part}"


def fabric_of(mark: str) -> str | None:
    """The fabric in a namespace's or directory's name; None for what is not a fabric's."""
    match = _PART.fullmatch(mark)
    # `tb-run-…` are the networks of containers.
    return match["name"] if match and not match["name"].startswith("run-") else None


def state_folder(fabric: str) -> Path:
    """Where a fabric's own files are."""
    return STATE_ROOT / fabric


def fabrics() -> tuple[str, ...]:
    """Everything that has something here, by name."""
    names = {fabric_of(each.name) for folder in (NAMESPACES, *FRR_FOLDERS) for each in _listed(folder)}
    # What begins with a dot is a name that is being taken (state.py).
    names |= {each.name for each in _listed(STATE_ROOT) if not each.name.startswith(".")}
    return tuple(sorted(each for each in names if each is not None))


def namespaces_of(fabric: str) -> list[Path]:
    """Sorted by name."""
    return [each for each in _listed(NAMESPACES) if fabric_of(each.name) == fabric]


def frr_folders_of(fabric: str) -> list[Path]:
    """FRR's directories."""
    return [each for folder in FRR_FOLDERS for each in _listed(folder) if fabric_of(each.name) == fabric]


def processes_of(fabric: str) -> list[int]:
    """Ids of all that run in the fabric's namespaces or carry its mark, but for this process."""
    inodes = inodes_of(namespaces_of(fabric))
    mark = f"{ENVIRONMENT}={fabric}".encode()
    return [each for each in _process_ids() if _network(each) in inodes or mark in _environment(each)]


def processes_in(place: Path) -> list[int]:
    """Ids of all that run in a namespace."""
    inodes = inodes_of([place])
    return [each for each in _process_ids() if _network(each) in inodes]


def inodes_of(places: Iterable[Path]) -> set[tuple[int, int]]:
    """What identifies the namespaces that are mounted there."""
    found = set()
    for each in places:
        with suppress(OSError):
            status = each.stat()
            found.add((status.st_dev, status.st_ino))
    return found


def _process_ids() -> list[int]:
    found = (each.name for each in Path("/proc").iterdir())
    return [int(each) for each in found if each.isdecimal() and int(each) != os.getpid()]


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
