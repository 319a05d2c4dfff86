"""A folder of small files beside the runs of a store, each written whole or not at all.

For: the notes of sweeps (lab.sweep.book). Not for: runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from twinbed import StoreError
from twinbed.writing import whole


class Shelf(Protocol):
    """Files by name. Raises StoreError that names the file where it cannot be read or written."""

    def names(self) -> list[str]:
        """Return the sorted names of all files."""
        ...

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write a file, in place of an older one."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file. Idempotent."""
        ...


class FolderShelf:
    """A shelf in a folder, which the first file makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        """Return the names of the files."""
        if not self.folder.is_dir():
            return []
        return sorted(entry.name for entry in self.folder.iterdir() if not entry.name.startswith("."))

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise StoreError(f"{self.folder / name}: cannot be read: {error.strerror}") from None

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with whole(self.folder / name) as file:
                file.write(content)
        except OSError as error:
            raise StoreError(f"{self.folder / name}: cannot be written: {error.strerror}") from None

    def remove(self, name: str) -> None:
        """Remove a file."""
        try:
            (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{self.folder / name}: cannot be removed: {error.strerror}") from None
