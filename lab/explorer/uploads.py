"""A trace that a user brings: bounded, checked as the command line checks it, on disk only as long as needed.

For: the way of an upload from the browser to a temporary folder. Not for: reading formats (traces) or
widgets (the pages).
"""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePath

from traces.load import load
from traces.schema import UsageTrace
from twinbed import TraceError

MAX_MIB = 64
"""Also in .streamlit/config.toml, which stops a larger file while it is still being sent."""
TYPES = ("csv", "parquet")


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as it came: its name, made harmless, and its content."""

    name: str
    content: bytes


def accept(name: str, content: bytes) -> Upload:
    """The upload; raises TraceError when it is too large, empty or of another type than TYPES."""
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
    """Only the last part of a name, of letters that mean nothing to a file system or a terminal."""
    return re.sub(r"[^\w.-]+", "-", PurePath(name.replace("\\", "/")).name).lstrip(".-")[-80:]


def check(upload: Upload) -> UsageTrace:
    """The trace in the upload; TraceError with the text that the command line gives, naming the file."""
    folder = lend(upload)
    try:
        return load(str(folder / upload.name))
    except TraceError as error:
        raise TraceError(str(error).replace(f"{folder}/", "")) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def lend(upload: Upload) -> Path:
    """A fresh folder, readable by this user only, that holds the upload; who asks for it removes it.

    Raises TraceError when it cannot be written."""
    folder = Path(tempfile.mkdtemp(prefix="twinbed-upload-"))
    try:
        (folder / upload.name).write_bytes(upload.content)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise TraceError(f"{upload.name}: cannot be kept for the run: {error.strerror}") from None
    return folder
