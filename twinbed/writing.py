"""Writes files completely or not at all, so that a reader sees the former content or the new one.

For: every file that is written at once and may be there already. Not for: files that only grow, runs
(lab.runs.publishing), nor secrets (testbed.containers.remote.certificates.write_private).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from twinbed import BackendError

_LONGEST_NAME = 200
"""Characters of a file's name that its unfinished part repeats: file systems allow 255 bytes."""


def is_special(path: Path) -> bool:
    """Return whether something is there that a file must not replace: root could replace /dev/null, and
    /dev/stdout where it leads to a file."""
    parts = path.parent.resolve().parts
    within = parts[1:] == ("dev",) or parts[1:2] == ("proc",)
    return within or (path.exists() and not (path.is_file() or path.is_dir()))


@contextmanager
def whole(path: Path, *, synced: bool = False) -> Iterator[BinaryIO]:
    """Open a new file, which takes the place of `path` when the block ends. Raises OSError.

    If the block raises, also on Ctrl-C, an older file stays and nothing is left behind. synced: whether the
    content is on the disk before the file takes its place, so that it survives a crash of the machine.
    """
    if is_special(path):
        raise OSError(errno.EINVAL, "it is a device or a pipe", str(path))
    hidden = path.with_name(f".{path.name[:_LONGEST_NAME]}.{os.urandom(4).hex()}.part")
    try:
        with hidden.open("xb") as file:
            yield file
            if synced:
                file.flush()
                os.fsync(file.fileno())
        hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> int:
    """Let `write` fill a synced file, as `whole` does, and return its size in bytes.

    Raises BackendError that names the path if it cannot be written (folder missing, no permission, disk
    full).
    """
    try:
        with whole(path, synced=True) as file:
            write(file)
            return file.tell()
    except OSError as error:
        reason = error.strerror or str(error)
        raise BackendError(f"{path}: cannot be written ({reason}); nothing was left behind") from error


def write_bytes(path: Path, content: bytes) -> int:
    """Write a file's content as `write_whole` does, and return its size in bytes."""
    return write_whole(path, lambda file: file.write(content))
