"""Into a namespace and back: commands and files there, by the names that fabrics have.

For: everything that is done inside of a fabric. Not for: making namespaces (up.py). A thread changes its own
network namespace (setns(2)); what it starts meanwhile is born there. Mounts do not change, so that what is
pinned or mounted is seen by all, unlike with `ip netns exec`.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from testbed.fabric.ownership import ENVIRONMENT, NAMESPACES, fabric_of
from twinbed import BackendError

_CLONE_NEWNET = 0x40000000
_HERE = "/proc/thread-self/ns/net"
_libc = ctypes.CDLL(None, use_errno=True)

Completed = subprocess.CompletedProcess[str]


@contextmanager
def in_namespace(namespace: str) -> Iterator[None]:
    """This thread is in a namespace until the block ends; other threads are not.

    Raises BackendError where there is no such namespace or it may not be entered.
    """
    home = os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(NAMESPACES / namespace)
        try:
            yield
        finally:
            if _libc.setns(home, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")  # never seen; nothing may go on elsewhere
    finally:
        os.close(home)


def run_in(
    namespace: str, argv: Sequence[str], *, text: str | None = None, timeout_s: float = 30.0
) -> Completed:
    """Runs a command in a namespace to its end. text: its input. Whatever its exit code is.

    Raises BackendError when it is not installed, does not end, or there is no such namespace.
    """
    with in_namespace(namespace):
        try:
            return subprocess.run(
                argv,
                input=text,
                stdin=subprocess.DEVNULL if text is None else None,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_s,
                env=environment_of(namespace),
            )
        except FileNotFoundError as error:
            raise BackendError(f"{argv[0]}: not installed; {_CURE}") from error
        except subprocess.TimeoutExpired as error:
            raise BackendError(f"{argv[0]} in {namespace}: no end after {timeout_s:g} s") from error


def popen_in(
    namespace: str,
    argv: Sequence[str],
    *,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a command in a namespace; the fabric's end is its end, too. environment: added to this one's.

    Raises BackendError when it is not installed, or there is no such namespace.
    """
    with in_namespace(namespace):
        try:
            return subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env={**environment_of(namespace), **(environment or {})},
            )
        except FileNotFoundError as error:
            raise BackendError(f"{argv[0]}: not installed; {_CURE}") from error


def write_sysctls(namespace: str, values: Mapping[str, str | int]) -> None:
    """Writes settings under /proc/sys/net of a namespace; keys as paths there: `ipv4/ip_forward`.

    Raises BackendError for the first that the kernel does not take.
    """
    with in_namespace(namespace):
        for key, value in values.items():
            try:
                Path("/proc/sys/net", key).write_text(str(value))
            except OSError as error:
                raise BackendError(
                    f"/proc/sys/net/{key} in {namespace}: cannot be written ({error.strerror}); "
                    "needs root and a kernel that has it"
                ) from error


def environment_of(namespace: str) -> dict[str, str]:
    """This process's environment with the mark of the namespace's fabric, for what is started for it."""
    mark = fabric_of(namespace)
    return dict(os.environ) if mark is None else {**os.environ, ENVIRONMENT: mark}


_CURE = "sudo make system installs what the fabric needs"


def _enter(path: Path) -> None:
    try:
        door = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise BackendError(
            f"{path}: no such namespace here ({error.strerror}); twinbed testbed status lists what is up"
        ) from error
    try:
        if _libc.setns(door, _CLONE_NEWNET):
            reason = os.strerror(ctypes.get_errno())
            raise BackendError(f"{path}: cannot be entered ({reason}); run as root")
    finally:
        os.close(door)
