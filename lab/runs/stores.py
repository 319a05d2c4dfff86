"""Opens the store at a location: a folder, or a prefix on object storage.

For: locations given by a user or by another process. Not for: the stores themselves.
"""

from __future__ import annotations

import os
from pathlib import Path

from lab.runs.store import RunStore
from twinbed import StoreError


def store_at(location: str | Path | RunStore | None = None) -> RunStore:
    """Return the store at a path or URL; None: $TWINBED_STORE, else the folder of this user's data. An open
    store is returned as it is.

    Raises StoreError, also for an empty name, and ModuleNotFoundError if a URL needs a package that is not
    installed.
    """
    if isinstance(location, RunStore):
        return location
    if location == "":
        raise StoreError("the store's name is empty; give a folder or a URL, or leave it out")
    text = str(location or os.environ.get("TWINBED_STORE") or "")
    if text.startswith("file://"):
        return RunStore(text.removeprefix("file://"))
    if "://" in text:
        from lab.runs.remote import ObjectStore

        return ObjectStore(text)
    return RunStore(location)
