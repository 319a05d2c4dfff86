"""Waits for what other processes and threads do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.patience import PATIENCE_S


def until(look: Callable[[], object], what: str = "it comes to pass", timeout_s: float = PATIENCE_S) -> None:
    """Waits until `look` returns something true; fails when it has not within the time."""
    deadline = time.monotonic() + timeout_s
    while not look():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    """Whether a process has ended: it is not there, or only waits for its parent to bury it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
