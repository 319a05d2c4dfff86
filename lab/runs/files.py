"""Says where a user's own files are, and whether a verb could write its files.

For: files of verbs outside the store, such as reports and converted traces. Not for: writing them
(twinbed.writing), nor runs (lab.runs.store).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from twinbed import BackendError
from twinbed.writing import is_special


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
        elif is_special(path):
            why = "it is a device or a pipe; name a file"
        elif path is folder and path.exists() and not path.is_dir():
            why = "it is a file; name a folder"
        if why:
            raise BackendError(f"{path}: cannot be written, {why}")
