"""The work of the units in the engines' contract. A worker finds these functions by this module's name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from lab.ask.kind import Progress
from lab.engine.ports import Places
from twinbed import BackendError, ScenarioError


def squared(asked: int, places: Places, progress: Progress) -> int:
    progress(f"unit {asked}", 1.0)
    return asked * asked


def refused(asked: int, places: Places, progress: Progress) -> int:
    if asked == 1:
        raise ScenarioError("unit 1: refused")
    return asked


def counted(asked: tuple[str, int], places: Places, progress: Progress) -> int:
    """Fail as often as asked, and then return the number of attempts. The folder counts them."""
    folder, failures = asked
    attempt = len(list(Path(folder).iterdir()))
    (Path(folder) / str(attempt)).touch()
    if attempt < failures:
        raise BackendError(f"attempt {attempt} failed")
    return attempt


def deadly(asked: str, places: Places, progress: Progress) -> str:
    """Kill the worker as long as the folder has no mark, if there is a folder."""
    if asked and not (Path(asked) / "mark").exists():
        (Path(asked) / "mark").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if asked == "always":
        os.kill(os.getpid(), signal.SIGKILL)
    return asked


def process(asked: int, places: Places, progress: Progress) -> int:
    """Return the id of the worker's process."""
    return os.getpid()


def murderous(asked: bool, places: Places, progress: Progress) -> bool:
    if asked:
        os.kill(os.getpid(), signal.SIGKILL)
    return asked


def content(asked: str, places: Places, progress: Progress) -> tuple[str, str]:
    place = Path(places[asked])
    return place.name, place.read_text()


class _UnportableError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} {two}")


def unportable(asked: int, places: Places, progress: Progress) -> Any:
    raise _UnportableError(1, 2)


def unanswered() -> tuple[str, str]:
    """A worker's answer to who it is, which comes late."""
    time.sleep(2)
    return "", ""
