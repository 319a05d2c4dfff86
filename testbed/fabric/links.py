"""Make a fabric's namespaces and work inside them: run commands and write settings there.

For: all work inside a fabric. Not for: nodes and cables (topology.py), or links, addresses and routes
(rtnetlink.py). Source: setns(2). A thread changes its own network namespace, and the processes that it starts
meanwhile begin there. Mounts do not change, so pinned and mounted files are visible everywhere, unlike with
`ip netns exec`.
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
_END_S = 5.0
"""Time for a process to end after SIGTERM, s."""

_libc = ctypes.CDLL(None, use_errno=True)

Completed = subprocess.CompletedProcess[str]


def make_namespace(name: str) -> None:
    """Make a network namespace. Raises BackendError with the reason of a refusal."""
    try:
        done = subprocess.run(("ip", "netns", "add", name), capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BackendError(f"ip: not installed; {_CURE}") from error
    if done.returncode:
        raise BackendError(f"namespace {name}: refused ({done.stderr.strip()}); run as root")


@contextmanager
def in_namespace(namespace: str) -> Iterator[None]:
    """Move this thread, and no other, into a namespace until the block ends.

    Raises BackendError if there is no such namespace or it may not be entered.
    """
    home = os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(NAMESPACES / namespace)
        try:
            yield
        finally:
            if _libc.setns(home, _CLONE_NEWNET):
                # This has never happened. The thread must not continue in the wrong namespace.
                raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(home)


def run_in(
    namespace: str, argv: Sequence[str], *, text: str | None = None, timeout_s: float = 30.0
) -> Completed:
    """Run a command in a namespace to its end, whatever its exit code. text: its input.

    Raises BackendError if it is not installed, does not end in timeout_s, or there is no such namespace.
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
            raise BackendError(f"{argv[0]} in {namespace}: still running after {timeout_s:g} s") from error


def output_of(
    namespace: str,
    argv: Sequence[str],
    *,
    text: str | None = None,
    cure: str = "twinbed testbed doctor says more",
) -> str:
    """Run a command in a namespace and return its output. text: its input. cure: for the message.

    Raises BackendError with the command's own message if it fails, and as run_in does.
    """
    done = run_in(namespace, argv, text=text)
    if done.returncode:
        reason = " ".join(done.stderr.split()) or "no reason given"
        raise BackendError(f"{argv[0]} in {namespace}: {reason}; {cure}")
    return done.stdout


def popen_in(
    namespace: str,
    argv: Sequence[str],
    *,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in a namespace. Removing the fabric ends it. environment: further variables.

    Raises BackendError if it is not installed or there is no such namespace.
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


def end(*processes: subprocess.Popen[bytes]) -> None:
    """End processes of ours that still run: SIGTERM to all, then SIGKILL to the remaining ones."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def write_sysctls(namespace: str, values: Mapping[str, str | int]) -> None:
    """Write settings under /proc/sys/net of a namespace. A key is a path there, such as `ipv4/ip_forward`.

    Raises BackendError for the first setting that the kernel refuses.
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
    """Return this process's environment plus the mark of the namespace's fabric, for its processes."""
    mark = fabric_of(namespace)
    return dict(os.environ) if mark is None else {**os.environ, ENVIRONMENT: mark}


_CURE = "sudo make system installs what the fabric needs"


def _enter(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise BackendError(
            f"{path}: there is no such namespace ({error.strerror}); twinbed testbed status lists what is up"
        ) from error
    try:
        if _libc.setns(descriptor, _CLONE_NEWNET):
            reason = os.strerror(ctypes.get_errno())
            raise BackendError(f"{path}: cannot be entered ({reason}); run as root")
    finally:
        os.close(descriptor)
