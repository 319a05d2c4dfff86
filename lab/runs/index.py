"""Caches the contents of manifests, so that a store of many runs is listed without reading each manifest
again.

For: `list` and `query` of the stores. Not for: deciding which runs exist: a row counts only while its stamp
equals that of the run's present manifest, which the store reads. An index that is lost, damaged or made by
other code is made again from the manifests.
"""

from __future__ import annotations

import io
import os
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from lab.runs.code import code_sha256
from lab.runs.shelf import Shelf
from twinbed import StoreError

if TYPE_CHECKING:
    from lab.runs.store import Run

SHELF = ".index"
HEAD = ("id", "name", "policy", "seed", "created_at")
_ENDS = ("currency", "bytes", "censored", "problem")
_OWN = ("tables", "stamp", "read_s")
DIGITS = 16
"""Hex digits of a table's hash that distinguish it from other tables of its name."""
_SETTLED_S = 2.0
"""Age from which a file's time of change identifies its content: a file system's clock may be coarse."""


def stamps(root: Path, names: Iterable[str], manifest: str) -> dict[str, int]:
    """Return for each folder a number that changes with the content of its manifest and with the names beside
    it. It is 0 if the next change may have the same time, and if there is no manifest."""
    newest_ns = int((time.time() - _SETTLED_S) * 1e9)
    return {name: _stamp(f"{root}/{name}", manifest, newest_ns) for name in names}


def _stamp(folder: str, manifest: str, newest_ns: int) -> int:
    try:
        # Path objects take longer than the system calls.
        around, file = os.stat(folder), os.stat(f"{folder}/{manifest}")  # noqa: PTH116
    except OSError:
        return 0
    if around.st_ctime_ns > newest_ns or file.st_ctime_ns > newest_ns:
        return 0
    return hash((around.st_ino, around.st_ctime_ns, file.st_ino, file.st_ctime_ns, file.st_size))


def row_of(run: Run, stamp: object, read_s: float = 0.0) -> dict[str, Any]:
    """Return a run's row: its metrics and their currency, id, name, policy, seed, created_at, bytes,
    censored, tables and stamp.

    tables: NAME.HASH of each table, separated by spaces; stamp: stamp of the manifest; read_s: time of
    reading it.
    """
    tables = run.manifest["tables"]
    own = {
        "censored": " ".join(sorted(run.censored)),
        "tables": " ".join(f"{name}.{tables[name][:DIGITS]}" for name in run.tables),
        "stamp": stamp,
        "read_s": read_s,
        "problem": "",
        "currency": run.manifest["spec"].get("price", {}).get("currency", ""),
        "bytes": run.manifest.get("bytes") or run.measured_bytes(),
    }
    return run.metrics | {key: run.manifest[key] for key in HEAD} | own


def together(parts: Sequence[pd.DataFrame], rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return frames and rows combined into one frame."""
    new = pd.DataFrame(list(rows))
    full = [part for part in (*parts, new) if len(part)]
    if not full:
        return pd.DataFrame(columns=[*HEAD, *_ENDS, *_OWN])
    return full[0] if len(full) == 1 else pd.concat(full, ignore_index=True)


def unread(folder: Path, problem: str) -> dict[str, Any]:
    """Return the row of a directory that is no healthy run. Its bytes are those of the files right in it."""
    size = 0
    with suppress(OSError):  # It may be removed at this moment, or be a file.
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    return {"id": folder.name, "problem": problem, "stamp": 0, "bytes": size}


def shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of rows that a user sees, newest first."""
    metrics = [key for key in frame if key not in (*HEAD, *_ENDS, *_OWN)]
    ordered = frame.reindex(columns=[*HEAD, *metrics, *_ENDS])
    ordered["bytes"] = ordered["bytes"].fillna(0).astype("int64")
    keys = pa.table(
        {key: pa.array(ordered[key], pa.string(), from_pandas=True) for key in ("created_at", "id")}
    )
    order = pc.sort_indices(keys, sort_keys=[("created_at", "descending"), ("id", "ascending")])
    return ordered.take(order.to_numpy()).reset_index(drop=True)


class Index:
    """Keeps a store's rows in files on its shelf. A file never changes; new rows get a new file."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def files(self) -> list[str]:
        """Return the names of the files that this version of the code wrote; [] if they cannot be listed."""
        with suppress(StoreError, OSError):
            return [name for name in self._shelf.names() if name.startswith(_own())]
        return []

    def forget_others(self) -> None:
        """Remove the files that another version of the code wrote. That version then reads all manifests."""
        for name in self._shelf.names():
            if not name.startswith(_own()):
                self._shelf.remove(name)

    def read(self, files: Sequence[str]) -> pd.DataFrame:
        """Return the rows of files. If a run has several rows, the one read last counts."""
        parts = []
        for name in files:
            # A damaged file counts as missing, and another reader may have replaced it.
            with suppress(StoreError, OSError, pa.ArrowException, ValueError, KeyError):
                part = pd.read_parquet(io.BytesIO(self._shelf.read(name)))
                part[[*HEAD, "bytes", "censored", *_OWN]]
                parts.append(part)
        frame = together(parts, ())
        if len(parts) > 1:
            frame = frame.sort_values("read_s").drop_duplicates("id", keep="last", ignore_index=True)
        return frame

    def write(self, frame: pd.DataFrame, instead_of: Sequence[str]) -> bool:
        """Store the rows in place of files. Return False if the store is read-only or full."""
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False, compression="zstd")
        try:
            self._shelf.write(f"{_own()}{secrets.token_hex(8)}", buffer.getvalue())
            for name in instead_of:
                self._shelf.remove(name)
        except (StoreError, OSError):
            return False
        return True


def _own() -> str:
    """Return the beginning of the names of this code's files."""
    return f"rows-{code_sha256()[:10]}."
