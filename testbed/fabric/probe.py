"""Numbered datagrams between applications, and the gaps in which they do not arrive.

For: what a fault does to flows, as their receiver sees it: a process that sends and one that receives at each
end. Not for: breaking anything (faults.py), nor what gaps mean (lab.fabric.real). Arrivals have the kernel's
time stamps, so that a receiver that is late sees no gap. Flows differ in their ports and so take different
paths. `python -m testbed.fabric.probe send|receive …` are the processes.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.fabric.links import popen_in
from testbed.fabric.model import Endpoint
from twinbed import BackendError

_FIRST_PORT, _FIRST_SOURCE_PORT = 20_000, 30_000
_PAYLOAD = struct.Struct("!IQ")
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("=qq")
_SECOND_NS = 1_000_000_000
_NICE = -10
_BUFFER_BYTES = 1 << 20
_READ_EVERY_S = 0.005
_LONGEST_WAIT_S = 0.2


@dataclass(frozen=True, slots=True)
class Flows:
    """From one endpoint to another: `count` flows of rate_per_s datagrams each; a silence of a flow that is
    longer than least_gap_s is a gap: one lost datagram makes two intervals."""

    source: Endpoint
    destination: Endpoint
    count: int = 8
    rate_per_s: float = 500.0
    least_gap_s: float = 0.0035


@dataclass(frozen=True, slots=True)
class Gap:
    """Flow `flow` was silent between two arrivals (CLOCK_MONOTONIC), and `lost` numbers are missing."""

    flow: int
    begin_ns: int
    end_ns: int
    lost: int

    @property
    def length_s(self) -> float:
        """Between the last arrival before and the first after."""
        return (self.end_ns - self.begin_ns) / _SECOND_NS


@dataclass(frozen=True, slots=True)
class Received:
    """received, lost: datagrams of all flows; late: such as arrived after a later one of their flow."""

    received: int
    lost: int
    late: int


@contextmanager
def probing(flows: Sequence[Flows], folder: Path) -> Iterator[tuple[Path, ...]]:
    """Sends and receives while the block runs; yields a file per Flows, which `gaps` reads at any time.

    Raises BackendError when a process does not start.
    """
    files = tuple(folder / f"flows-{index}.txt" for index in range(len(flows)))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for each, file in zip(flows, files, strict=True):
            file.write_text("")
            processes.append(_started(each.destination, "receive", each, file))
        for each, file in zip(flows, files, strict=True):
            processes.append(_started(each.source, "send", each, file))
        yield files
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.communicate()


def gaps(file: Path) -> list[Gap]:
    """The gaps that have ended, in the order of their ends."""
    rows = (line.split() for line in file.read_text().splitlines() if line.endswith("."))
    return [Gap(*(int(each) for each in row[:4])) for row in rows if len(row) == 5]


def received(file: Path) -> Received:
    """All that came, after the end of `probing`. Raises BackendError where nothing is written."""
    for line in reversed(file.read_text().splitlines()):
        if line.startswith("{"):
            return Received(**json.loads(line))
    raise BackendError(f"{file}: the receiver did not end; measure again")


def _started(end: Endpoint, what: str, flows: Flows, file: Path) -> subprocess.Popen[bytes]:
    arguments = [flows.source.address, flows.destination.address, flows.count, flows.rate_per_s]
    process = popen_in(
        end.namespace,
        [
            *(sys.executable, "-m", "testbed.fabric.probe", what),
            *map(str, arguments),
            *(str(flows.least_gap_s), str(file)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    if process.stdout.readline() != b"ready\n":
        said = process.stderr.read().decode(errors="replace").strip().splitlines()
        raise BackendError(f"probe in {end.namespace} does not start: {said[-1] if said else 'it has ended'}")
    return process


# --- the processes -----------------------------------------------------------------------------------


class _Ended:
    """SIGTERM ends a loop where it may end."""

    def __init__(self) -> None:
        self.yes = False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self.yes = True


def _send(source: str, destination: str, count: int, rate_per_s: float) -> None:
    ended = _Ended()
    flows = []
    for flow in range(count):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((source, _FIRST_SOURCE_PORT + flow))
        made.connect((destination, _FIRST_PORT + flow))
        made.setblocking(False)
        flows.append(made)
    _ready()
    interval_ns = round(_SECOND_NS / rate_per_s)
    sequence, due_ns = 0, time.monotonic_ns()
    while not ended.yes:
        for flow, made in enumerate(flows):
            try:
                made.send(_PAYLOAD.pack(flow, sequence))
            except OSError:
                # Its number is missing then, as if it had been lost on the way.
                continue
        sequence += 1
        due_ns += interval_ns
        ahead_ns = due_ns - time.monotonic_ns()
        if ahead_ns > 0:
            time.sleep(ahead_ns / 1e9)
        else:
            # After a stall nothing is made up for: a burst would fill queues.
            due_ns -= ahead_ns


def _receive(destination: str, count: int, least_gap_s: float, file: str) -> None:
    ended = _Ended()
    sockets = []
    for flow in range(count):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        made.bind((destination, _FIRST_PORT + flow))
        made.setblocking(False)
        sockets.append(made)
    heard = [_Heard(flow, round(least_gap_s * _SECOND_NS)) for flow in range(count)]
    _ready()
    with Path(file).open("a", buffering=1) as out:
        while not ended.yes:
            select.select(sockets, [], [], _LONGEST_WAIT_S)
            offset_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
            for made, each in zip(sockets, heard, strict=True):
                for line in each.take(made, offset_ns):
                    out.write(line)
            time.sleep(_READ_EVERY_S)
        total = [sum(getattr(each, key) for each in heard) for key in ("received", "lost", "late")]
        out.write(json.dumps(dict(zip(("received", "lost", "late"), total, strict=True))) + "\n")


class _Heard:
    """What came of a flow."""

    def __init__(self, flow: int, least_ns: int) -> None:
        self._flow, self._least_ns = flow, least_ns
        self._sequence, self._at_ns = -1, 0
        self.received = self.lost = self.late = 0

    def take(self, source: socket.socket, offset_ns: int) -> Iterator[str]:
        """Reads what waits; a line for each gap that it ends."""
        while True:
            try:
                datagram, ancillary, _, _ = source.recvmsg(64, socket.CMSG_SPACE(_TIMESPEC.size))
            except BlockingIOError:
                return
            _, sequence = _PAYLOAD.unpack(datagram)
            seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2][: _TIMESPEC.size])
            at_ns = seconds * _SECOND_NS + nanoseconds - offset_ns
            self.received += 1
            if sequence <= self._sequence:
                self.late += 1
                self.lost = max(self.lost - 1, 0)
                continue
            if self._sequence >= 0:
                lost = sequence - self._sequence - 1
                self.lost += lost
                if at_ns - self._at_ns > self._least_ns:
                    yield f"{self._flow} {self._at_ns} {at_ns} {lost} .\n"
            self._sequence, self._at_ns = sequence, at_ns


def _ready() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """One of the two processes, until SIGTERM."""
    what, source, destination, count, rate_per_s, least_gap_s, file = arguments
    if what == "send":
        _send(source, destination, int(count), float(rate_per_s))
    else:
        _receive(destination, int(count), float(least_gap_s), file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
