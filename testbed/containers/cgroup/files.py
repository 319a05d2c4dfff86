"""Keep control files of a cgroup open, and turn the kernel's refusals into errors.

For: reading and writing one file by `pread` and `pwrite`, many times a second. Not for: the files' contents
(v1.py, v2.py).
"""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

from testbed.containers.ports import GroupGoneError
from twinbed import BackendError

CURE = "run it as root, where cgroups are mounted for writing"

_MAX_FILE_BYTES = 16_384
_SPARE_FILES = 64
"""Number of files that other code may still open when the limit is raised, such as pipes and sockets."""

_BUSY = (errno.EBUSY, errno.EAGAIN)


class ControlFile:
    """One open file. Raises BackendError naming the file, GroupGoneError if its cgroup no longer exists."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        self.path = path
        try:
            self._descriptor = open_file(path, flags | os.O_CLOEXEC)
        except OSError as error:
            raise refused(path, "opening it", error) from error

    @property
    def descriptor(self) -> int:
        """The file descriptor, −1 once it is closed."""
        return self._descriptor

    def read(self) -> bytes:
        """Return the content now."""
        try:
            return os.pread(self._descriptor, _MAX_FILE_BYTES, 0)
        except OSError as error:
            raise refused(self.path, "reading it", error) from error

    def write(self, text: str) -> None:
        """Write a value; it is in force when this returns."""
        if not self.try_write(text):
            raise BackendError(f"{self.path}: writing {text!r} was refused (busy); try again later")

    def try_write(self, text: str) -> bool:
        """Write a value; return False where the kernel cannot free enough memory for it (EBUSY, EAGAIN)."""
        try:
            os.pwrite(self._descriptor, f"{text}\n".encode(), 0)
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise refused(self.path, f"writing {text!r}", error) from error
        return True

    def close(self) -> None:
        """Close the file. Later reads and writes are refused, and never reach another file. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def open_file(path: Path, flags: int) -> int:
    """Open a file. Raise the limit of open files first if it is near and may be raised. Ten files per group
    soon exceed the default limit of 1,024 per process, and other code that opens files does not check it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptor = os.open(path, flags)
    if descriptor >= soft - _SPARE_FILES and soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return descriptor


def field(text: bytes, key: bytes) -> int:
    """Return the number after `key` in a file of `key number` lines; 0 where the kernel does not count it."""
    start = (b"\n" + text).find(b"\n" + key + b" ")
    if start < 0:
        return 0
    end = text.find(b"\n", start)
    return int(text[start + len(key) + 1 : end if end >= 0 else None])


def read(path: Path) -> str:
    """Return the text of a file that is not kept open, without white space around it. Raises as ControlFile
    does."""
    try:
        return path.read_text().strip()
    except OSError as error:
        raise refused(path, "reading it", error) from error


def write(path: Path, text: str) -> None:
    """Write a file that is not kept open. Raises as ControlFile does."""
    try:
        path.write_text(text)
    except OSError as error:
        raise refused(path, f"writing {text!r}", error) from error


def refused(path: Path, action: str, error: OSError) -> BackendError:
    """Return our error for an error of the kernel, with its cure."""
    if error.errno == errno.ENODEV or (error.errno == errno.ENOENT and not path.parent.exists()):
        return gone(path.parent)
    cure = {
        errno.ENOENT: "this kernel, or a group above, does not give the group that controller",
        errno.EMFILE: "raise the limit of open files (ulimit -n)",
        errno.EINVAL: "a group above it allows less: raise that one's limit first",
    }.get(error.errno or 0, CURE)
    return BackendError(f"{path}: {action} was refused ({error.strerror}); {cure}")


def inode(directory: Path) -> int:
    """Return the directory's inode, which a later cgroup of the same name does not have. Raises
    GroupGoneError."""
    try:
        return directory.stat().st_ino
    except OSError:
        raise gone(directory) from None


def gone(directory: Path | str) -> GroupGoneError:
    """Return the error for a cgroup that others removed."""
    return GroupGoneError(f"{directory}: the cgroup is gone, somebody removed it; start its container again")
