"""The audit file: each change of another system's container limits, with old and new value, time and reason.

For: `twinbed apply` and agents, which append to it; one JSON object a line. Not for: undoing anything
(lab.containers.apply.journal). Lines are only appended. A line that a killed process left half-written is
ended before the next one, so that every other line stays whole.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

from twinbed import BackendError

FOLDER = Path("/var/lib/twinbed")
"""Folder of the audit file and of the states from which `twinbed apply` takes changes back. It outlives a
reboot."""

NAME = "audit.jsonl"

Value = str | float | int | None


class Audit:
    """The audit file in `folder`. A note that cannot be written raises BackendError, which names the file:
    callers do nothing that cannot be noted."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.path = folder / NAME

    def note(self, what: str, **said: Value) -> None:
        """Append a line and sync it. what: set, put back, attach, detach, begin, end, abort or leave."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": at, "what": what, **said, "pid": os.getpid()}) + "\n"
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(descriptor).st_size
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                os.write(descriptor, (b"\n" if torn else b"") + line.encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise BackendError(
                f"{self.path}: cannot be written ({error.strerror}); run as root, with space left there"
            ) from error
