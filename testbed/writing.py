"""Write small files that other processes read while they are replaced.

For: states and progress in text. Not for: files that must survive a crash of the machine, which are synced
too (containers.remote.certificates.write_private), nor files that only grow (containers.attach.audit).
"""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file completely or not at all: a reader sees the former content or this one. Raises OSError."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
