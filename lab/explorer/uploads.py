"""Checks the size and the name of a file that a user uploads, and bounds all uploads together.

For: an upload from the browser to a temporary folder. Not for: reading it (lab.explorer.reading) or widgets
(the pages). The file is on disk only while it is needed. An upload is in memory while its widget is shown
(Streamlit's store) and while a session keeps it as an Upload, mostly as the same bytes.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from starlette.exceptions import HTTPException
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.uploaded_file_manager import UploadedFileRec

from lab.explorer import limits
from lab.explorer.shelf import Shelf
from twinbed import TraceError

MAX_MIB = 64
"""Largest upload, MiB. The server's config.toml has the same number and stops a larger file while it is
being sent."""
TYPES = ("csv", "parquet", "json", "txt", "om", "gz")
"""Endings of traces' names. A trace's content says what it is."""
LABEL = f"{', '.join(TYPES[:-1])} or {TYPES[-1]}, up to {MAX_MIB} MiB"
"""Label of a widget that takes traces."""
_NO_ROOM = "application/x-twinbed-no-room"
"""Type of a file that the server did not keep, because there was no room for it."""
_kept: dict[int, weakref.ref[Upload]] = {}
"""Every Upload that is alive in this process, by its id()."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Upload:
    """An uploaded file.

    name: its name, made harmless; content: its bytes; problem: why it cannot be used, one line, or "".
    """

    name: str
    content: bytes
    problem: str = ""

    def __post_init__(self) -> None:
        key = id(self)
        _kept[key] = weakref.ref(self, lambda _gone: _kept.pop(key, None))


SHELF: Shelf[Upload] = Shelf(limits.SHELF, limits.SHELF_S)
"""Uploads that an address names. They are dropped if there is no room for a new upload."""


class BoundedUploads(MemoryUploadedFileManager):
    """Streamlit's store of uploads with a limit on their total size. A file that exceeds it is stored without
    its content, so that its page can show the reason."""

    def add_file(self, session_id: str, file: UploadedFileRec) -> None:
        """Keep the file. Raises HTTPException if there are too many files to keep even its name."""
        if sum(map(len, list(self.file_storage.values()))) >= limits.UPLOADS:
            raise HTTPException(507, "too many uploads")
        if self._held_bytes() + len(file.data) > limits.UPLOADS_BYTES:
            SHELF.clear()
        if self._held_bytes() + len(file.data) > limits.UPLOADS_BYTES:
            file = file._replace(data=b"", type=_NO_ROOM)
        super().add_file(session_id, file)

    def _held_bytes(self) -> int:
        """Return the bytes of all uploads in this process, each object once."""
        uploads = [upload for kept in list(_kept.values()) if (upload := kept()) is not None]
        contents = {id(upload.content): len(upload.content) for upload in uploads}
        for files in list(self.file_storage.values()):
            contents |= {id(file.data): len(file.data) for file in list(files.values())}
        return sum(contents.values())


def received(given: Any) -> Upload:
    """Return the file of a file_uploader, with a problem if there was no room for it."""
    name = harmless(given.name) or "file"
    if given.type != _NO_ROOM:
        return Upload(name, given.getvalue())
    return Upload(
        name,
        b"",
        f"{name}: no room is left for it: the uploads of all visitors together have at most "
        f"{limits.UPLOADS_BYTES >> 20} MiB; try again in some minutes, or use the command line",
    )


def accept(name: str, content: bytes, problem: str = "") -> Upload:
    """Return the upload. Raises TraceError with its problem, or if it is too large, empty, or not of one of
    TYPES."""
    if problem:
        raise TraceError(problem)
    plain = harmless(name) or "trace"
    if PurePath(plain).suffix.lower().lstrip(".") not in TYPES:
        allowed = ", ".join(f".{ending}" for ending in TYPES)
        raise TraceError(f"{plain}: not a trace that can be uploaded; its name must end in one of {allowed}")
    if len(content) > MAX_MIB << 20:
        raise TraceError(
            f"{plain}: {len(content) / (1 << 20):.0f} MiB, more than the {MAX_MIB} MiB an upload may have; "
            "use `twinbed whatif` on the command line"
        )
    if not content:
        raise TraceError(f"{plain}: the file is empty")
    return Upload(plain, content)


def harmless(name: str) -> str:
    """Return the last part of a name, without characters that a file system or a terminal interprets."""
    return re.sub(r"[^\w.-]+", "-", PurePath(name.replace("\\", "/")).name).lstrip(".-")[-80:]


def lend(*uploads: Upload) -> Path:
    """Return a new folder with the uploads, readable by this user only. The caller removes it.

    Raises TraceError if the folder cannot be written.
    """
    folder = Path(tempfile.mkdtemp(prefix="twinbed-upload-"))
    for upload in uploads:
        try:
            (folder / upload.name).write_bytes(upload.content)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise TraceError(f"{upload.name}: cannot be kept for the run: {error.strerror}") from None
    return folder
