"""Puts the directory of a run into a store and removes it, so that the run is always either whole or absent.

For: all changes of a store's directory. Not for: the contents of a run (lab.runs.store). Any number of
processes may read, write and remove at the same time, in different PID namespaces, containers and machines,
as far as the lock of twinbed/ownership.py holds among them; see there for NFS.

All names of a store change under the lock on `.lock`:

- `.new-<digits>-<run>` is being written. Its writer holds the lock on the file `lock` inside. The first
  digits name the machine and its boot. Where a mount does not pass locks on to the server, a writer on
  another machine looks dead, so what it writes is left alone until nothing in it has changed for a day.
- `<run>` is a whole run.
- `.old-<digits>-<run>` makes room for a run of the same id. It goes back where the id is free.
- `.gone-<digits>-<run>` is removed. Any process may delete it.

A run is published in this order: every file is written and synced; then, under the store's lock, the file
`lock` is removed, the new directory is synced and renamed, and the store's root is synced. A run is removed
in this order: its directory is renamed to `.gone-…`, the root is synced, and the files are deleted. So a
process that is killed between two steps, and a machine that loses power there, leaves the run whole or gone.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from twinbed.ownership import Ownership, is_held, take

_LOCK, _STORE_LOCK = "lock", ".lock"
_HIDDEN = re.compile(r"\.(?P<kind>new|old|gone)-(?P<machine>[0-9a-f]{8})[0-9a-f]{8}-(?P<id>.+)")

ELSEWHERE_S = 24 * 3600.0
"""Age at which files of another machine count as left over, s: no run takes that long to write."""


class Working:
    """A new hidden directory of a run, which its writer fills. It exists from `make` until `discard`."""

    def __init__(self, root: Path, run_id: str) -> None:
        self._root, self._home = root, root / run_id
        self.folder = _hidden(root, "new", run_id)
        self._lock: Ownership | None = None

    def make(self) -> None:
        """Make the directory. Raises OSError."""
        self._root.mkdir(parents=True, exist_ok=True)
        with locked(self._root):
            self.folder.mkdir()
            self._lock = take(self.folder / _LOCK)

    def install(self) -> None:
        """Make the directory visible, in place of a run of the same id. Raises OSError. The former run then
        stays, unless only the last sync failed."""
        with locked(self._root):
            # The lock is released first, because NFS keeps a file that is removed while it is open under
            # another name.
            self._release()
            (self.folder / _LOCK).unlink()
            _sync(self.folder)
            former = _hidden(self._root, "old", self._home.name)
            gone = None
            try:
                if self._home.exists():
                    self._home.rename(former)
                self.folder.rename(self._home)
            finally:
                # Only the names that this call changed are checked, because listing a store of many runs
                # takes long.
                if former.exists():
                    gone = _placed(former, self._home)
            _sync(self._root)
        if gone is not None:
            discard(gone)

    def discard(self) -> None:
        """Remove the directory if it was not installed. Idempotent."""
        discard(self.folder)
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()


def retire(run: Path) -> None:
    """Remove a run. Raises OSError if it cannot be removed; it then stays."""
    gone = _hidden(run.parent, "gone", run.name)
    with locked(run.parent):
        run.rename(gone)
        _sync(run.parent)
    discard(gone)


def sweep(root: Path, elsewhere_s: float = ELSEWHERE_S) -> int:
    """Remove leftovers of dead writers. A former run returns if its place is free. A read-only store stays
    unchanged. Return the number of leftovers.

    elsewhere_s: age at which files of another machine count as left over, s.
    """
    left = 0
    with suppress(OSError):
        left = sum(_is_left(entry, elsewhere_s) for entry in _leftovers(root))
        if left:
            with locked(root):
                _settle(root, elsewhere_s)
            _delete_gone(root)
    return left


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Let one process at a time change names in the store. Raises OSError."""
    lock = take(root / _STORE_LOCK, math.inf)
    assert lock is not None, "it waits for ever"
    try:
        yield
    finally:
        lock.release()


@contextmanager
def settled(root: Path) -> Iterator[None]:
    """Let no name change inside the block, so that a run that is being replaced is seen. A store that is
    read-only, or to which no process has written, is read without a lock."""
    lock = None
    with suppress(OSError):
        if (root / _STORE_LOCK).exists():
            lock = take(root / _STORE_LOCK, math.inf)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def opened(folder: Path, stack: ExitStack) -> dict[str, BinaryIO]:
    """Return the open files of one whole run by name. They stay readable if it is replaced or removed. Raises
    OSError."""
    with settled(folder.parent):
        paths = sorted(path for path in folder.iterdir() if path.is_file())
        return {path.name: stack.enter_context(path.open("rb")) for path in paths}


def write_table(path: Path, table: pa.Table) -> str:
    """Write and sync one table, and return its SHA-256. The same table gives the same bytes.

    Raises OSError, also for what Arrow refuses.
    """
    try:
        with path.open("wb") as handle:
            encode(table, handle)
            handle.flush()
            os.fsync(handle.fileno())
    except pa.ArrowException as error:
        raise OSError(errno.EIO, str(error)) from None
    return sha256_of(path)


def encode(table: pa.Table, handle: BinaryIO) -> None:
    """Write a table as Parquet, in the same way for all stores. Raise the errors of Arrow and of the file."""
    # Dictionary pages only pay off for the container column; floats compress as well without them.
    encoded = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    pq.write_table(
        table, handle, compression="zstd", compression_level=1, use_dictionary=encoded, row_group_size=1 << 18
    )


def write_file(path: Path, content: bytes) -> None:
    """Write and sync a file. Raises OSError."""
    with path.open("wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256, in hexadecimal digits. Raises OSError."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _hidden(root: Path, kind: str, run_id: str) -> Path:
    return root / f".{kind}-{machine()}{secrets.token_hex(4)}-{run_id}"


@cache
def machine() -> str:
    """Return 8 digits that identify this machine, and its containers, until it is booted again."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        boot = platform.node()
    return hashlib.sha256(boot.encode()).hexdigest()[:8]


def _is_left(entry: Path, elsewhere_s: float) -> bool:
    """Return whether no process works on a hidden directory. It is certain only under the store's lock."""
    match = _HIDDEN.fullmatch(entry.name)
    if match is None or match["kind"] != "new":
        return match is not None
    if is_held(entry / _LOCK):
        return False
    return match["machine"] == machine() or _age_s(entry) > elsewhere_s


def _age_s(folder: Path) -> float:
    """Return the time since the last change in a directory, s; 0 if unknown."""
    try:
        return time.time() - max(entry.stat().st_ctime for entry in (folder, *folder.iterdir()))
    except OSError:
        return 0.0


def _leftovers(root: Path) -> list[Path]:
    """Return the hidden directories of runs, sorted. A store may have many runs beside them."""
    with os.scandir(root) as entries:
        return sorted(root / entry.name for entry in entries if _HIDDEN.fullmatch(entry.name))


def _settle(root: Path, elsewhere_s: float) -> None:
    """Move every hidden directory without a writer to its place, or mark it for deletion."""
    for entry in _leftovers(root):
        match = _HIDDEN.fullmatch(entry.name)
        if match is None or match["kind"] == "gone" or not _is_left(entry, elsewhere_s):
            continue
        if match["kind"] == "old":
            _placed(entry, root / match["id"])
        else:
            entry.rename(_hidden(root, "gone", match["id"]))


def _placed(former: Path, home: Path) -> Path | None:
    """Return a former run to its place, or else to a new path among the deleted ones."""
    place = _hidden(home.parent, "gone", home.name) if home.exists() else home
    former.rename(place)
    return None if place == home else place


def _delete_gone(root: Path) -> None:
    with suppress(OSError):
        for entry in _leftovers(root):
            if entry.name.startswith(".gone-"):
                discard(entry)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(path: Path) -> None:
    """Remove as much as possible of a folder, or a file, without an error."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
