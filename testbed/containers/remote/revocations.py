"""The certificates that the authority has issued to agents, and the revoked ones.

For: the two lists in the authority's folder, and a reader that notices when the second changes. Not for:
other checks of a certificate (TLS makes them), nor ending calls (controller.py). A line is a serial number in
hexadecimal digits, then the agent's name. Lists are written completely, by one writer at a time.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from testbed.containers.remote.certificates import write_private
from twinbed import BackendError, ScenarioError, ownership

_ISSUED, _REVOKED, _LOCK = "issued", "revoked", "lists.lock"
_SERIAL = re.compile(r"[0-9a-f]{16,40}")
"""A serial number has 159 random bits, so it has at least 16 digits. A name can be short."""

_log = logging.getLogger("twinbed.controller")


def note_issued(folder: Path, name: str, serial: int) -> None:
    """Record an agent's certificate, so that it can be revoked by name. Raises BackendError."""
    _add(folder, _ISSUED, {serial: name})


def revoke(folder: Path, which: str) -> frozenset[int]:
    """Revoke all certificates of the agent `which`, or the one with this serial number. Returns their serial
    numbers. Raises ScenarioError if there is none, BackendError if the list cannot be written."""
    issued = _read(folder / _ISSUED)
    revoked = {serial: name for serial, name in issued.items() if name == which}
    if not revoked and _SERIAL.fullmatch(which.lower()):
        serial = int(which, 16)
        revoked = {serial: issued.get(serial, "?")}
    if not revoked:
        raise ScenarioError(
            f"{which}: no agent with a certificate of {folder}; give the agent's name, or the serial number "
            "that `twinbed controller enroll` printed"
        )
    _add(folder, _REVOKED, revoked)
    return frozenset(revoked)


class Revocations:
    """Reads the list of revoked certificates, and reads it again when it has changed. Raises BackendError if
    the list is damaged from the start."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _REVOKED
        self._seen = _version(self._path)
        self._serials = frozenset(_read(self._path))

    def __call__(self) -> frozenset[int]:
        """Return the serial numbers in the list. While the list is damaged, earlier revocations stay in
        force."""
        version = _version(self._path)
        if version != self._seen:
            self._seen = version
            try:
                self._serials = frozenset(_read(self._path))
            except BackendError as error:
                _log.warning("%s; earlier revocations stay in force", error)
            else:
                _log.info("revoked certificates: %d", len(self._serials))
        return self._serials


def _version(path: Path) -> tuple[int, int] | None:
    """Return a value that differs after each change of the file; None: there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _read(path: Path) -> dict[int, str]:
    """Return names by serial number. Raises BackendError."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BackendError(f"{path}: cannot be read ({error}); restore it from a copy") from None
    entries = {}
    for number, line in enumerate(lines, 1):
        serial, _, name = line.partition(" ")
        if not (_SERIAL.fullmatch(serial) and name):
            raise BackendError(f"{path}: line {number} is no serial number and name; restore it from a copy")
        entries[int(serial, 16)] = name
    return entries


def _add(folder: Path, file: str, entries: dict[int, str]) -> None:
    try:
        lock = ownership.take(folder / _LOCK)
    except OSError as error:
        raise BackendError(f"{folder / _LOCK}: {error.strerror}; run it as the folder's owner") from error
    if lock is None:
        raise BackendError(f"{folder / _LOCK}: another process writes the lists; try again")
    try:
        all_ = _read(folder / file) | entries
        write_private(
            folder / file, "".join(f"{serial:x} {name}\n" for serial, name in all_.items()).encode()
        )
    finally:
        lock.release()
