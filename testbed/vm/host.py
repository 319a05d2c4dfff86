"""Boot a VM with Debian's stock kernel, keep it up, and run commands in it.

For: tests of cgroup v2 and of kernel hooks, and applications that need a kernel of their own. Not for:
measuring speed. Without KVM every instruction is emulated, some 10 times slower. The guest sees this
machine's files, with its own /tmp and /run. It has no network except the devices it is given. QEMU dies with
the thread that started it and leaves nothing behind: the initramfs and the console are unnamed files in
memory.

An emulated guest sometimes stops for ever. So the guest sends a heartbeat while a command runs. A guest that
sends nothing for STOPPED_S seconds has stopped. Seconds in which QEMU waited for one of this machine's CPUs
do not count, so that a slow guest is not taken for a stopped one.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.vm import boot
from testbed.vm.boot import Machine, available
from twinbed import BackendError

BOOT_S = 60.0
"""Longest time of a boot, s, without the time in which QEMU waited for a CPU. Usual are 20 s."""

BOOTS = 3
"""Number of boots that `start` tries before it gives up."""

STOPPED_S = 30.0
"""Time without a heartbeat after which a guest has stopped, s, counted like BOOT_S. The guest sends a
heartbeat every second."""

_GRACE_S = 60.0
_SLICE_S = 1.0
_STOP_S = 20.0
_PR_SET_PDEATHSIG = 1
_CONSOLE_BYTES = 600
_PLAIN = Machine()
_libc = ctypes.CDLL(None, use_errno=True)


class StoppedError(BackendError):
    """Raised when a guest stops for good or ends by itself, whatever the command in it does."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended.

    rc: exit code, minus the signal that ended it, TIMED_OUT or NOT_STARTED
    stdout, stderr: its output
    wall_s: duration by this machine's clock, s
    """

    rc: int
    stdout: str
    stderr: str
    wall_s: float


class Vm:
    """One VM. As a context manager it is started on entry and ended on exit.

    environment: environment variables of QEMU itself; None means those of this process.
    """

    def __init__(self, machine: Machine = _PLAIN, *, environment: Mapping[str, str] | None = None) -> None:
        self._machine, self._environment = machine, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._monitor: socket.socket | None = None
        self._console = -1
        self._received = b""
        self.release = ""
        self.boot_s = 0.0

    def __enter__(self) -> Vm:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """QEMU's process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Boot the VM, and return when it takes commands. A guest that stops while it boots is booted again.

        Raises BackendError (what is missing, or the console's last words, and the cure), and StoppedError
        when BOOTS guests in a row stopped.
        """
        bootable, reason = available()
        if not bootable:
            raise BackendError(f"no VM here: {reason}")
        for _ in range(BOOTS - 1):
            with contextlib.suppress(StoppedError):
                self._boot()
                return
        self._boot()

    def run(
        self,
        argv: Sequence[str],
        timeout_s: float,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        on_output: Callable[[str, bytes], None] | None = None,
    ) -> Completed:
        """Run a command in the VM.

        timeout_s: seconds of the guest's clock after which the command is killed
        cwd: the command's folder; default the current one
        env: environment variables besides those of this process
        on_output: function called with "stdout" or "stderr" and the bytes as they arrive

        Raises StoppedError if the guest stopped or ended, and BackendError if the command outlived its time.
        After an error or an interrupt the VM is off.
        """
        began_s = time.monotonic()
        job = {
            "argv": list(argv),
            "cwd": str((cwd or Path()).resolve()),
            # The emulated CPU announces some instructions of this machine's that it does not have.
            "env": {**os.environ, "TMPDIR": "/tmp", "OPENBLAS_CORETYPE": "Nehalem", **(env or {})},
            "timeout_s": timeout_s,
        }
        output = {"stdout": bytearray(), "stderr": bytearray()}
        try:
            self._send(json.dumps(job).encode() + b"\n")
            while True:
                answer = self._next_answer(STOPPED_S, began_s + timeout_s + _GRACE_S)
                if "rc" in answer:
                    out, err = (bytes(output[name]).decode(errors="replace") for name in ("stdout", "stderr"))
                    return Completed(int(str(answer["rc"])), out, err, time.monotonic() - began_s)
                if "stream" in answer:
                    name, data = str(answer["stream"]), base64.b64decode(str(answer["data"]))
                    output[name] += data
                    if on_output is not None:
                        on_output(name, data)
        except BaseException:
            # Later answers of this guest would be taken for answers to the next command.
            self._kill()
            raise

    def stop(self) -> None:
        """Switch the VM off. Kills QEMU if it does not end by itself. Idempotent."""
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                # When its input ends the guest writes back its files and switches itself off.
                self._process.wait(_STOP_S if self.release else 0)
        self._kill()

    def _boot(self) -> None:
        began_s = time.monotonic()
        image = boot.kernel_image()
        initrd = os.memfd_create("twinbed-initramfs")
        self._console = os.memfd_create("twinbed-console")
        self._monitor, monitor = socket.socketpair()
        try:
            os.write(initrd, boot.initramfs(image))
            self._process = subprocess.Popen(
                boot.command(image, initrd, self._console, monitor.fileno(), self._machine),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._console,
                pass_fds=(initrd, self._console, monitor.fileno(), *(nic.tap for nic in self._machine.nics)),
                env=self._environment,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
            self.release = str(self._next_answer(BOOT_S)["ready"])
        except BaseException:
            self.stop()
            raise
        finally:
            os.close(initrd)
            monitor.close()
        self.boot_s = time.monotonic() - began_s

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
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
            raise StoppedError(self._last_words("ended")) from error

    def _next_answer(self, patience_s: float, deadline_s: float = float("inf")) -> dict[str, object]:
        """Return the guest's next answer.

        patience_s: longest wait, s, counted like BOOT_S. deadline_s: latest time, time.monotonic(), s.
        """
        if self._process is None or self._process.stdout is None:
            raise BackendError("the VM is not running: start it first")
        descriptor = self._process.stdout.fileno()
        quiet_s, waited_s = 0.0, cpu_waits_s(self._process.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                began_s, before_s = time.monotonic(), waited_s
                if began_s >= deadline_s:
                    raise BackendError(self._last_words("does not end its command"))
                if b"\n" in self._received:
                    break
                if selector.select(min(_SLICE_S, patience_s)):
                    received = os.read(descriptor, 1 << 16)
                    if not received:
                        raise StoppedError(self._last_words("ended"))
                    self._received += received
                    continue
                waited_s = cpu_waits_s(self._process.pid)
                waits_s = (waited_s[thread] - before_s.get(thread, 0.0) for thread in waited_s)
                quiet_s += max(0.0, time.monotonic() - began_s - max(waits_s, default=0.0))
                if quiet_s >= patience_s:
                    raise StoppedError(self._last_words(f"stopped ({self._whereabouts()})"))
        line, _, self._received = self._received.partition(b"\n")
        answer: dict[str, object] = json.loads(line)
        return answer

    def _whereabouts(self) -> str:
        """Return the state of each CPU of a stopped guest, from QEMU's monitor.

        The kernel is loaded at fixed addresses, so /proc/kallsyms of another guest names the function at an
        address.
        """
        assert self._monitor is not None
        said = b""
        self._monitor.settimeout(_SLICE_S)
        with contextlib.suppress(OSError):
            self._monitor.sendall(b"info registers -a\n")
            while received := self._monitor.recv(1 << 16):
                said += received
        states: list[str] = []
        for address, level, halted in re.findall(rb"[RE]IP=(\w+) .* CPL=(\d) .* HLT=(\d)", said):
            place = "in user space" if level == b"3" else f"at 0x{address.decode()}"
            states.append(f"CPU {len(states)} {'halted' if halted == b'1' else place}")
        return ", ".join(states) or "QEMU does not answer, either"

    def _last_words(self, event: str) -> str:
        size = os.fstat(self._console).st_size
        tail = os.pread(self._console, _CONSOLE_BYTES, max(0, size - _CONSOLE_BYTES)).decode(errors="replace")
        last = " | ".join(line.strip() for line in tail.splitlines()[-4:]) or "nothing"
        return f"the VM {event}; its console said last: {last}; try again with fewer programs running"


def cpu_waits_s(pid: int) -> dict[str, float]:
    """Return how long each thread of a process has waited for a CPU since it began, s."""
    waited = {}
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        # A thread may end while it is examined. A kernel without CONFIG_SCHED_INFO has no such file.
        with contextlib.suppress(OSError):
            waited[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return waited


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
