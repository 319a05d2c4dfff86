"""A file that is there whole or not at all.

For: what verbs write beside the store (reports, converted traces). Not for: runs (lab.runs.store).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from twinbed import BackendError


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> int:
    """Lets `write` fill a file and puts it at `path`, replacing what was there; returns its bytes.

    On any failure, and on Ctrl-C, the old file is untouched and nothing is left behind. Raises
    BackendError naming the path when it cannot be written (folder missing, no permission, disk full).
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
