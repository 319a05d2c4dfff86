"""A VM with Debian's stock kernel, kept up to run commands in: for what this machine's own kernel lacks.

For: tests of cgroup v2 and of kernel hooks, and a developer's `python -m testbed.vm -- COMMAND`. Not for:
measuring speed: without KVM every instruction is emulated, some 10 times slower. The guest sees this
machine's files, with a /tmp and a /run of its own; it has no network but what it is given. QEMU dies with the
thread that started it, and there is nothing else to leave behind: the initramfs and the console are unnamed
files in memory.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import math
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from testbed.vm import boot
from testbed.vm.boot import Machine, available
from twinbed import BackendError

BOOT_TIMEOUT_S = 240.0
"""Seconds until a VM must have come up; some 20 with two idle cores, a minute or two on busy ones."""

_GRACE_S = 60.0
_STOP_S = 20.0
_PR_SET_PDEATHSIG = 1
_CONSOLE_BYTES = 600
_PLAIN = Machine()
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended. rc: exit code, minus the signal that ended it, TIMED_OUT or NOT_STARTED;
    wall_s: seconds of this machine's clock."""

    rc: int
    stdout: str
    stderr: str
    wall_s: float


class Vm:
    """One VM. Usable as a context manager: started on entry, ended on exit.

    environment: QEMU's own, None = this process's.
    """

    def __init__(self, machine: Machine = _PLAIN, *, environment: Mapping[str, str] | None = None) -> None:
        self._machine, self._environment = machine, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._console = -1
        self._received = b""
        self.release = ""
        self.boot_s = 0.0

    def __enter__(self) -> Vm:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """QEMU's process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self, timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Boots it, and returns once it takes commands.

        Raises BackendError (what is missing, or the console's last words, and the cure).
        """
        there, reason = available()
        if not there:
            raise BackendError(f"no VM here: {reason}")
        began_s = time.monotonic()
        image = boot.kernel_image()
        initrd = os.memfd_create("twinbed-initramfs")
        self._console = os.memfd_create("twinbed-console")
        try:
            os.write(initrd, boot.initramfs(image))
            self._process = subprocess.Popen(
                boot.command(image, initrd, self._console, self._machine),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._console,
                pass_fds=(initrd, self._console, *(each.tap for each in self._machine.nics)),
                env=self._environment,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
            self.release = str(self._next_answer(began_s + timeout_s)["ready"])
        except BaseException:
            self.stop()
            raise
        finally:
            os.close(initrd)
        self.boot_s = time.monotonic() - began_s

    def run(
        self,
        argv: Sequence[str],
        timeout_s: float,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str, bytes], None] | None = None,
        silent_s: float = math.inf,
    ) -> Completed:
        """Runs a command in the VM. cwd: default the current directory; env: besides this process's own.

        on_output: told ("stdout" or "stderr", bytes) as it comes. After timeout_s seconds of the guest's
        clock the command is killed. Raises BackendError when the VM itself is gone, does not answer, or has
        said nothing for silent_s seconds. After that, or an interrupt, it is off.
        """
        began_s = time.monotonic()
        job = {
            "argv": list(argv),
            "cwd": str((cwd or Path()).resolve()),
            "env": {**os.environ, "TMPDIR": "/tmp", **(env or {})},
            "timeout_s": timeout_s,
        }
        self._send(json.dumps(job).encode() + b"\n")
        output = {"stdout": bytearray(), "stderr": bytearray()}
        try:
            while True:
                answer = self._next_answer(min(began_s + timeout_s + _GRACE_S, time.monotonic() + silent_s))
                if "rc" in answer:
                    out, err = (bytes(output[name]).decode(errors="replace") for name in ("stdout", "stderr"))
                    return Completed(int(str(answer["rc"])), out, err, time.monotonic() - began_s)
                name, data = str(answer["stream"]), base64.b64decode(str(answer["data"]))
                output[name] += data
                if on_output is not None:
                    on_output(name, data)
        except BaseException:
            # What it still answers would be taken for the next command's.
            self._kill()
            raise

    def stop(self) -> None:
        """Switches the VM off; QEMU is killed where it does not end by itself. Idempotent."""
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                # Hung up on, the guest writes back what it holds and switches itself off.
                self._process.wait(_STOP_S if self.release else 0)
        self._kill()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()
        if self._console >= 0:
            os.close(self._console)
            self._console = -1
        self.release, self._received = "", b""

    def _send(self, line: bytes) -> None:
        if self._process is None or self._process.stdin is None:
            raise BackendError("the VM is not running: start it first")
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError as error:
            raise self._lost("ended") from error

    def _next_answer(self, deadline_s: float) -> dict[str, object]:
        if self._process is None or self._process.stdout is None:
            raise BackendError("the VM is not running: start it first")
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._received:
                if not selector.select(max(0.0, deadline_s - time.monotonic())):
                    raise self._lost("does not answer")
                got = os.read(descriptor, 1 << 16)
                if not got:
                    raise self._lost("ended")
                self._received += got
        line, _, self._received = self._received.partition(b"\n")
        answer: dict[str, object] = json.loads(line)
        return answer

    def _lost(self, what: str) -> BackendError:
        size = os.fstat(self._console).st_size
        tail = os.pread(self._console, _CONSOLE_BYTES, max(0, size - _CONSOLE_BYTES)).decode(errors="replace")
        last = " | ".join(line.strip() for line in tail.splitlines()[-4:]) or "nothing"
        return BackendError(
            f"the VM {what}; its console said last: {last}; try again with fewer programs running"
        )


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
