"""Opens files that a user named: regular files only, of bounded size, and text in UTF-8.

For: every room that reads a user's file. Not for: what the file says, nor for files that twinbed wrote.
A FIFO, a device or a socket is refused without being opened, so that no reader waits or reads without end.
"""

from __future__ import annotations

import os
import stat
import sys
from io import BufferedReader
from pathlib import Path

from twinbed import ScenarioError, TwinbedError

MIB = 2**20

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""Name of each kind of file that is not regular, by the format bits of its mode."""


def open_regular(
    path: str | Path, most_bytes: int, error: type[TwinbedError] = ScenarioError
) -> BufferedReader:
    """Return a regular file, opened for reading. Raises `error` that names the path and the problem.

    most_bytes: largest size of the file at this moment. Whoever reads a file that may grow counts too.
    """
    try:
        _check(Path(path).stat(), path, most_bytes, error)
        # The path may name something else by now; O_NONBLOCK returns even if that is a FIFO.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as refused:
        raise error(f"{path}: {refused.strerror}") from None
    except ValueError:
        raise error(f"{path}: a path cannot have a null character") from None
    try:
        _check(os.fstat(descriptor), path, most_bytes, error)
    except TwinbedError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_head(path: str | Path, size: int, error: type[TwinbedError] = ScenarioError) -> bytes:
    """Return the first bytes of a regular file of any size. Raises `error` that names the path."""
    with open_regular(path, sys.maxsize, error) as file:
        try:
            return file.read(size)
        except OSError as refused:
            raise error(f"{path}: {refused.strerror}") from None


def read_user_bytes(path: str | Path, most_bytes: int, error: type[TwinbedError] = ScenarioError) -> bytes:
    """Return the content of a regular file of at most `most_bytes`. Raises `error` that names the path."""
    with open_regular(path, most_bytes, error) as file:
        try:
            content = file.read(most_bytes + 1)
        except OSError as refused:
            raise error(f"{path}: {refused.strerror}") from None
    # Files under /proc have no size until they are read.
    if len(content) > most_bytes:
        raise error(f"{path}: {_too_large(most_bytes)}")
    return content


def read_user_text(path: str | Path, most_bytes: int, error: type[TwinbedError] = ScenarioError) -> str:
    """Return the text of a regular UTF-8 file of at most `most_bytes`. Raises `error` that names the path."""
    return as_text(read_user_bytes(path, most_bytes, error), str(path), error)


def read_standard_input(most_bytes: int) -> str:
    """Return UTF-8 text of at most `most_bytes` from standard input. Raises ScenarioError that names `-`."""
    content = sys.stdin.buffer.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ScenarioError(f"-: {_too_large(most_bytes)}")
    return as_text(content, "-")


def as_text(content: bytes, where: str, error: type[TwinbedError] = ScenarioError) -> str:
    """Return UTF-8 as text, without the byte order mark with which some programs begin it.

    Raises `error` that begins with `where` and names the first wrong byte.
    """
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as wrong:
        raise error(f"{where}: not UTF-8 text (byte {wrong.start}); save it as UTF-8") from None


def _check(status: os.stat_result, path: str | Path, most_bytes: int, error: type[TwinbedError]) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        cure = "; save its content as a file first" if stat.S_ISFIFO(status.st_mode) else ""
        raise error(f"{path}: is {kind}, not a regular file{cure}")
    if status.st_size > most_bytes:
        raise error(f"{path}: {_too_large(most_bytes)}")


def _too_large(most_bytes: int) -> str:
    size = f"{most_bytes // MIB} MiB" if most_bytes >= MIB else f"{most_bytes} bytes"
    return f"larger than {size}, the most that is read"
