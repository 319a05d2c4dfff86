"""Writes a file whole or not at all, and says where a user's own files are.

For: files of verbs outside the store, such as reports and converted traces. Not for: runs (lab.runs.store).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from twinbed import BackendError


def own_path(variable: str, name: str) -> Path:
    """Return the path in an environment variable, else twinbed/NAME in the folder of this user's data."""
    if chosen := os.environ.get(variable):
        return Path(chosen)
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "twinbed" / name


def check_place(*files: Path | None, folder: Path | None = None, inputs: Iterable[str | Path] = ()) -> None:
    """Raise BackendError that names the path if a file, or a folder of files, could not be written.

    Long work begins with this check. folder: it may exist, or its parent must. inputs: paths that are read
    and must not be overwritten.
    """
    kept = {Path(place).resolve(): "it is read, too; choose another file" for place in inputs}
    for path in (*files, folder):
        if path is None:
            continue
        why = kept.get(path.resolve(), "")
        kept[path.resolve()] = "it is to be written twice; choose another file"
        if not path.parent.is_dir():
            why = f"there is no folder {path.parent}; make it or choose another"
        elif not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
            why = f"{path.parent} is not yours to write to; choose another folder"
        elif path is not folder and path.is_dir():
            why = "it is a folder; name a file in it"
        elif path is folder and path.exists() and not path.is_dir():
            why = "it is a file; name a folder"
        if why:
            raise BackendError(f"{path}: cannot be written, {why}")


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


def write_bytes(path: Path, content: bytes) -> int:
    """Write a file's content as `write_whole` does, and return its size in bytes."""
    return write_whole(path, lambda file: file.write(content))
