"""Ownership by an exclusive lock on a file. The lock ends with the process that holds it.

For: telling what a living process uses from what a dead process left behind, in the run store, for runs of
containers, temporary directories, fabrics and agents. Not for: what is owned. A lock works across PID
namespaces, where process ids mean nothing, and a zombie holds none, because the kernel has closed its files.
Source: flock(2); docs/decisions/0031-ownership-by-locks.md.

A process's children do not hold its lock: the file is closed at exec, and in a child right after fork. Until
then a child of a killed process still holds it.

On NFS the server keeps the lock: Linux passes flock on as a lock of the whole file (NFSv4, or NFSv3 with
lockd). Locks then work among all machines that mount the share with locks. With the mount options `nolock` or
`local_lock` they work among the processes of one machine only. A client that loses its server for longer than
the lease loses its locks, and then counts as dead.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

PATIENCE_S = 2.0
"""Time for which `take` tries again, s. A process that looks at a lock holds it for a moment."""

_AGAIN_S = 0.01
_LOOKS = 20
"""Number of looks at a lock without a visible holder until it counts as held."""
_held: set[int] = set()


class Ownership:
    """A lock that this process holds until `release`, or until it ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _held.add(descriptor)

    def release(self) -> None:
        """Release the lock. The file stays. Idempotent."""
        if self._descriptor in _held:
            _held.remove(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = -1


def take(path: Path, patience_s: float = PATIENCE_S) -> Ownership | None:
    """Return the lock on the file, which is made where it is missing; None if another process holds it.

    Raises OSError if the file cannot be opened, or its file system has no locks.
    """
    deadline_s = time.monotonic() + patience_s
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A former owner may have removed the file between opening it and locking it.
            if _is_at(descriptor, path):
                return Ownership(descriptor)
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                os.close(descriptor)
                return None
            time.sleep(_AGAIN_S)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Return whether a living process holds the lock on the file.

    A file that cannot be looked at counts as held, and a missing one does not. Where /proc shows no
    living holder, a child of a killed process may hold the lock for a moment, so the lock is looked at again
    for 0.2 s.
    """
    for _ in range(_LOOKS):
        if not _is_locked(path):
            return False
        if holder(path) is not None:
            break
        time.sleep(_AGAIN_S)
    return True


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def is_mine(path: Path) -> bool:
    """Return whether this process itself holds the lock on the file."""
    return any(_is_at(descriptor, path) for descriptor in _held)


def holder(path: Path) -> int | None:
    """Return the living process that took the lock on the file, as far as /proc of this PID namespace shows
    it."""
    try:
        if Path("/proc/self").readlink() != Path(str(os.getpid())):
            return None
        status = path.stat()
        for line in Path("/proc/locks").read_text().splitlines():
            # A line of a process that waits has `->` as its second field.
            _, kind, *_, pid, place, _, _ = line.split()
            major, minor, inode = place.split(":")
            found = os.makedev(int(major, 16), int(minor, 16)), int(inode)
            if kind == "FLOCK" and found == (status.st_dev, status.st_ino) and _lives(int(pid)):
                return int(pid)
    except (OSError, ValueError):
        pass
    return None


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _disown() -> None:
    """Close a forked child's copies of lock files. The parent's locks must end with the parent."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_disown)
