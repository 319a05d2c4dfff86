"""Stores the state that an apply needs to take its changes back, before it makes the first change.

For: one file per apply, and the lock that lets one apply work at a time. Not for: the audit, which is never
read back (testbed.containers.attach.audit). A file with the phase `carrying` while no process holds the lock
belongs to an apply that was killed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from lab.ask import guard
from lab.ask.problems import validated
from lab.ask.section import Section
from lab.containers.apply.plan import Amount, Change, worded
from twinbed import BackendError
from twinbed.files import MIB, read_user_text
from twinbed.ownership import holder, take
from twinbed.writing import write_bytes

_LOCK = "apply.lock"
_NAME = re.compile(r"apply-([0-9]{6})\.json")
_MOST_BYTES = 64 * MIB

Phase = Literal["carrying", "applied"]


class Made(Section):
    """One change, made or about to be made."""

    row: str = Field(description="Row of the advice.")
    target: str = Field(description="Full name of the container.")
    quantity: str = Field(description="Key of advise.model.Setting.")
    found: Amount = Field(description='What was in force, cores or bytes; "none" is no limit.')
    wanted: Amount = Field(description="What the apply put in force.")
    reason: str = Field(description="Reason of the change.")

    @classmethod
    def of(cls, change: Change) -> Made:
        """Return a change in its stored form."""
        return cls(
            row=change.row,
            target=change.target,
            quantity=change.quantity,
            found=worded(change.found),
            wanted=worded(change.wanted),
            reason=change.reason,
        )


class ApplyState(Section):
    """The state of an apply, as its journal stores it."""

    version: Literal[1] = 1
    phase: Phase = Field(description="carrying: it may be half done; applied: it is done.")
    kind: str = Field(description="Where the containers are: Places.kind.")
    advice: str = Field(description="Path of the advice.")
    sha256: str = Field(description="SHA-256 of the advice.")
    changes: list[Made] = Field(description="Changes of the steps that were begun, in order.")
    records: dict[str, dict[str, Any]] = Field(
        description="Target.record of each container before its change."
    )


class Journal:
    """The files in `folder`, which is made for root only. Raises BackendError naming what cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock. Raises BackendError at once while another apply has it."""
        path = self.folder / _LOCK
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = take(path, 0.0)
        except OSError as error:
            raise BackendError(f"{path}: cannot be locked ({error.strerror}); run as root") from error
        if lock is None:
            pid = holder(path)
            who = f"process {pid}" if pid else "another process"
            raise BackendError(f"{path}: {who} applies an advice now; wait until it ends")
        try:
            for part in self.folder.glob(".apply-*.part"):
                part.unlink(missing_ok=True)
            yield
        finally:
            lock.release()

    def newest(self) -> Path | None:
        """Return the file of the latest apply that was not taken back."""
        files = sorted(path for path in self.folder.glob("apply-*.json") if _NAME.fullmatch(path.name))
        return files[-1] if files else None

    def next(self) -> Path:
        """Return the file of a new apply."""
        newest = self.newest()
        match = _NAME.fullmatch(newest.name) if newest is not None else None
        return self.folder / f"apply-{int(match[1]) + 1 if match else 1:06d}.json"

    def load(self, path: Path) -> ApplyState:
        """Return the apply that a file of the journal holds."""
        return validated(
            ApplyState, guard.parse_json(read_user_text(path, _MOST_BYTES), str(path)), str(path)
        )

    def save(self, path: Path, state: ApplyState) -> None:
        """Write a file, whole or not at all."""
        write_bytes(path, json.dumps(state.model_dump(mode="json"), indent=1).encode())

    def drop(self, path: Path) -> None:
        """Forget an apply whose changes are taken back."""
        path.unlink(missing_ok=True)


def number(amount: Amount) -> float:
    """Return a kept value as a number, math.inf for no limit."""
    return math.inf if amount == "none" else float(amount)
