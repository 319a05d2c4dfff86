"""Checks the size and the name of a file that a user uploads.

For: the way of an upload from the browser to a temporary folder. Not for: reading it (lab.explorer.reading)
or widgets (the pages). The file is on disk only while it is needed.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePath

from twinbed import TraceError

MAX_MIB = 64
"""Largest upload, MiB. The server's config.toml has the same number and stops a larger file while it is
being sent."""
TYPES = ("csv", "parquet")


@dataclass(frozen=True, slots=True)
class Upload:
    """An uploaded file: its name, made harmless, and its content."""

    name: str
    content: bytes


def accept(name: str, content: bytes) -> Upload:
    """Returns the upload. Raises TraceError if it is too large, empty, or not of one of TYPES."""
    plain = harmless(name) or "trace"
    if PurePath(plain).suffix.lower().lstrip(".") not in TYPES:
        raise TraceError(f"{plain}: not a trace that can be uploaded; it must be a .csv or .parquet file")
    if len(content) > MAX_MIB << 20:
        raise TraceError(
            f"{plain}: {len(content) / (1 << 20):.0f} MiB, more than the {MAX_MIB} MiB an upload may have; "
            "use `twinbed whatif` on the command line"
        )
    if not content:
        raise TraceError(f"{plain}: the file is empty")
    return Upload(plain, content)


def harmless(name: str) -> str:
    """Returns the last part of a name, without characters that a file system or a terminal interprets."""
    return re.sub(r"[^\w.-]+", "-", PurePath(name.replace("\\", "/")).name).lstrip(".-")[-80:]


def lend(*uploads: Upload) -> Path:
    """Returns a new folder with the uploads, readable by this user only. The caller removes it.

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
