"""Cgroups that appear and disappear below a directory: the Watcher.

For: joining containers that something else starts (Docker, Kubernetes). Not for: attaching to them
(cgroup/attached.py). It looks once a second: one listing per watched directory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from testbed.containers.remote.origin import Origin


class Watcher:
    """root: the directory that watched parents are below, e.g. the mount point of a hierarchy."""

    interval_s = 1.0

    def __init__(self, root: Path) -> None:
        self._root = root
        self._watches: list[tuple[str, str]] = []
        self._known: dict[str, Origin] = {}

    def begin(self, watches: Sequence[tuple[str, str]]) -> list[Origin]:
        """Watches these (parent, pattern) from here on; what is there now."""
        self._watches = list(watches)
        self._known = self._there()
        return list(self._known.values())

    def look(self) -> tuple[list[Origin], set[str]]:
        """What appeared since the last look, and the names of what vanished."""
        present = self._there()
        appeared = [origin for name, origin in present.items() if name not in self._known]
        vanished = self._known.keys() - present.keys()
        self._known = present
        return appeared, vanished

    def _there(self) -> dict[str, Origin]:
        origins = {}
        for number, (parent, pattern) in enumerate(self._watches, 1):
            with suppress(OSError), os.scandir(self._root / parent.strip("/")) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False) and fnmatchcase(entry.name, pattern):
                        path = f"{parent.rstrip('/')}/{entry.name}"
                        name = f"{number}:{entry.name}"
                        origins[name] = Origin(name, attach={"": path}, watch=number)
        return dict(sorted(origins.items()))
