"""Writes a file whole or not at all.

For: files of verbs outside the store, such as reports and converted traces. Not for: runs (lab.runs.store).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from twinbed import BackendError


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> int:
    """Let `write` fill a file, put the file at `path` in place of an older one, and return its size in bytes.

    On any failure, and on Ctrl-C, the old file stays and nothing is left behind. Raises BackendError that
    names the path if it cannot be written (folder missing, no permission, disk full).
    """
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with hidden.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        hidden.replace(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BackendError(f"{path}: cannot be written ({reason}); nothing was left behind") from error
    finally:
        hidden.unlink(missing_ok=True)
    return size
