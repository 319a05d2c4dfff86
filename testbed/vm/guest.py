"""Run as the first process of a VM: mount what programs expect, then run the jobs that the host sends.

For: the VM's kernel, which starts it as `init`. Not for: the host (host.py). It imports nothing of ours. A
job is one JSON line {argv, cwd, env, timeout_s}. The answers are JSON lines: {stream, data} with base64 data
as it comes, a heartbeat {alive} every second, and last {rc}. rc is the exit code (minus the signal that ended
the job), 124 after a time-out (standard error then ends with where in the kernel every thread was) or 127 if
the job could not be started. Processes that a job leaves running are killed.
"""

import base64
import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

PORT = "twinbed.jobs"
"""Name of the virtio port that carries jobs and answers."""

TIMED_OUT = 124
NOT_STARTED = 127

_MOUNTS = (
    ("proc", "/proc", "proc", ""),
    ("sysfs", "/sys", "sysfs", ""),
    ("devtmpfs", "/dev", "devtmpfs", ""),
    ("tmpfs", "/run", "tmpfs", "mode=755"),
    ("tmpfs", "/tmp", "tmpfs", "mode=1777"),
    ("bpf", "/sys/fs/bpf", "bpf", ""),
    ("tracefs", "/sys/kernel/tracing", "tracefs", ""),
    ("cgroup2", "/sys/fs/cgroup", "cgroup2", ""),
)
_POWER_OFF = 0x4321FEDC
_CHUNK_BYTES = 65_536
_HEARTBEAT_S = 1.0


def main() -> None:
    """Serve until the host hangs up, then switch the machine off. Never returns."""
    libc = ctypes.CDLL(None, use_errno=True)
    for source, target, kind, options in _MOUNTS:
        if libc.mount(source.encode(), target.encode(), kind.encode(), 0, options.encode()) != 0:
            _say(f"{target} not mounted: {os.strerror(ctypes.get_errno())}")
    Path("/dev/shm").mkdir(exist_ok=True)
    libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777")
    subprocess.run(["/sbin/ip", "link", "set", "lo", "up"], check=False)
    try:
        _serve(_port())
    finally:
        os.sync()
        libc.reboot(_POWER_OFF)


def _port() -> int:
    """Open the job port, which may appear late."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for name in Path("/sys/class/virtio-ports").glob("*/name"):
            if name.read_text().strip() == PORT:
                return os.open(f"/dev/{name.parent.name}", os.O_RDWR | os.O_CLOEXEC)
        time.sleep(0.05)
    raise TimeoutError(f"the VM has no port {PORT}")


def _serve(port: int) -> None:
    _send(port, {"ready": os.uname().release})
    pending = b""
    while True:
        line, newline, rest = pending.partition(b"\n")
        if newline:
            pending = rest
            _send(port, {"rc": _run(port, json.loads(line))})
            _clear()
            continue
        received = os.read(port, _CHUNK_BYTES)
        if not received:
            return
        pending += received


def _run(port: int, job: dict) -> int:  # type: ignore[type-arg]
    """Run one job, send what it prints, and return its exit code."""
    try:
        process = subprocess.Popen(
            job["argv"],
            cwd=job["cwd"],
            env=job["env"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        _send(port, _piece("stderr", f"{job['argv'][0]}: {error.strerror}\n".encode()))
        return NOT_STARTED
    deadline = time.monotonic() + job["timeout_s"]
    heartbeat = 0.0
    with process, selectors.DefaultSelector() as selector:
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
            assert pipe is not None
            selector.register(pipe.fileno(), selectors.EVENT_READ, name)
        # A daemon may hold the pipes open for ever, so the job is over when its own process has ended.
        while True:
            ended = process.poll() is not None
            if time.monotonic() >= heartbeat:
                heartbeat = time.monotonic() + _HEARTBEAT_S
                _send(port, {"alive": True})
            ready = selector.select(0 if ended else _HEARTBEAT_S / 2)
            for key, _ in ready:
                data = os.read(key.fd, _CHUNK_BYTES)
                if data:
                    _send(port, _piece(key.data, data))
                else:
                    selector.unregister(key.fd)
            if ended and not ready:
                return process.returncode
            if not ended and time.monotonic() >= deadline:
                _send(port, _piece("stderr", _stacks().encode()))
                os.killpg(process.pid, signal.SIGKILL)
                return TIMED_OUT


def _stacks() -> str:
    """Return, for every thread of every program, its state and the kernel functions that it is in."""
    lines = []
    for thread in sorted(Path("/proc").glob("[0-9]*/task/[0-9]*")):
        with contextlib.suppress(OSError):
            command = (thread / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if command:
                state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
                calls = [line.split()[-1] for line in (thread / "stack").read_text().splitlines()]
                lines.append(f"{thread.parts[2]}/{thread.name} {state} {command}\n  {' '.join(calls)}\n")
    return "".join(lines)


def _clear() -> None:
    """Kill all processes but this one (that is what −1 means for the first process) and reap them."""
    try:
        os.kill(-1, signal.SIGKILL)
        while os.waitpid(-1, 0):
            pass
    except (ProcessLookupError, ChildProcessError):
        return


def _piece(stream: str, data: bytes) -> dict[str, object]:
    return {"stream": stream, "data": base64.b64encode(data).decode()}


def _send(port: int, answer: dict[str, object]) -> None:
    rest = memoryview(json.dumps(answer).encode() + b"\n")
    while rest:
        rest = rest[os.write(port, rest) :]


def _say(text: str) -> None:
    print(f"guest: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
