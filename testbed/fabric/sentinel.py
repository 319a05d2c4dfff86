"""Record stalls of the whole machine, so that they are not taken for effects of the fabric.

For: a process with real-time priority on every CPU that records when it was woken too late. Not for: deciding
what a stall means for a measurement (lab.fabric.real). Source: sched(7). `python -m testbed.fabric.sentinel
OUT SECONDS-OF-A-STALL` is the process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from twinbed import BackendError

FLOOR_S = 0.02
"""Shortest stall that is recorded, s."""

_PR_SET_PDEATHSIG = 1
_NAP_S = 0.002
_PRIORITY = 90


@dataclass(frozen=True, slots=True)
class Stall:
    """A CPU ran no process of ours from begin_ns to end_ns (CLOCK_MONOTONIC, ns)."""

    cpu: int
    begin_ns: int
    end_ns: int


@contextmanager
def sentinel(out: Path, floor_s: float = FLOOR_S) -> Iterator[None]:
    """Watch every CPU of this process while the block runs. `read(out)` returns the stalls.

    Raises BackendError without real-time priority, because a busy process would then look like a stall.
    """
    out.write_text("")
    command = [sys.executable, "-m", "testbed.fabric.sentinel", str(out), str(floor_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != b"ready\n":
            raise BackendError(f"sentinel: {process.stderr.read().decode().strip() or 'does not start'}")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def read(path: Path) -> list[Stall]:
    """Return the recorded stalls, in the order of their ends. An incomplete line is left out."""
    return [Stall(*map(int, line.split())) for line in path.read_text().splitlines() if line.count(" ") == 2]


def lengths_s(stalls: Sequence[Stall]) -> list[float]:
    """Return the lengths of the machine's stalls, s. Overlapping stalls of several CPUs are one."""
    spans: list[tuple[int, int]] = []
    for stall in sorted(stalls, key=lambda stall: stall.begin_ns):
        if spans and stall.begin_ns < spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], stall.end_ns)
        else:
            spans.append((stall.begin_ns, stall.end_ns))
    return [(end_ns - begin_ns) / 1e9 for begin_ns, end_ns in spans]


def of_all_s(stalls: Sequence[Stall]) -> list[float]:
    """Return the lengths of the times in which every CPU of this process stood still at once, s."""
    edges = sorted(
        (at_ns, step) for stall in stalls for at_ns, step in ((stall.begin_ns, 1), (stall.end_ns, -1))
    )
    lengths_s, still, since_ns = [], 0, 0
    for at_ns, step in edges:
        if still == len(os.sched_getaffinity(0)):
            lengths_s.append((at_ns - since_ns) / 1e9)
        still, since_ns = still + step, at_ns
    return lengths_s


def _end_with_the_parent(number: int) -> None:
    """End this process when its parent ends, however that happens (prctl(2), PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _watch(cpu: int, out: int, floor_ns: int) -> None:
    _end_with_the_parent(signal.SIGKILL)
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    before_ns = time.monotonic_ns()
    while True:
        time.sleep(_NAP_S)
        now_ns = time.monotonic_ns()
        if now_ns - before_ns >= floor_ns:
            os.write(out, f"{cpu} {before_ns} {now_ns}\n".encode())
        before_ns = now_ns


def main(out: str, floor_s: str) -> int:
    """Record stalls of the CPUs until SIGTERM."""
    _end_with_the_parent(signal.SIGKILL)
    file = os.open(out, os.O_WRONLY | os.O_APPEND)
    children = []
    for cpu in sorted(os.sched_getaffinity(0)):
        pid = os.fork()
        if pid == 0:
            try:
                _watch(cpu, file, round(float(floor_s) * 1e9))
            except PermissionError:
                sys.stderr.write("needs real-time priority (SCHED_FIFO); run as root\n")
            os._exit(2)
        children.append(pid)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    ended = signal.sigwait({signal.SIGTERM, signal.SIGCHLD})
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return 0 if ended == signal.SIGTERM else 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
