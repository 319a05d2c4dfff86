"""Numbered datagrams between applications, and the gaps in which they do not arrive.

For: what a fault does to flows, as their receiver sees it: one process that sends them all and one that
receives them all. Not for: breaking anything (faults.py), nor what gaps mean (lab.fabric.real). Arrivals have
the kernel's time stamps, so that a receiver that is late sees no gap. Flows differ in their ports and so take
different paths. What costs is the way of a datagram through the kernel, so that flows may be thinned while
nothing is expected. `python -m testbed.fabric.probe send|receive …` are the processes.
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
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.fabric.links import in_namespace, popen_in
from testbed.fabric.model import Endpoint
from twinbed import BackendError

THINNED = 10
"""A thinned flow sends one datagram where it otherwise sends so many."""

_FIRST_PORT, _FIRST_SOURCE_PORT = 20_000, 30_000
_PAYLOAD = struct.Struct("!IQ")
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("=qq")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
_SECOND_NS = 1_000_000_000
_NICE = -10
_BUFFER_BYTES = 1 << 20
_READ_EVERY_S = 0.05
_HEARD_WITHIN_S = 30.0
_READY, _HEARD = b"ready\n", b"heard\n"
_DENSE, _THIN, _END = signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM
_SIGNALS = (_DENSE, _THIN, _END)


@dataclass(frozen=True, slots=True)
class Flows:
    """From one endpoint to another: `count` flows of rate_per_s datagrams each."""

    source: Endpoint
    destination: Endpoint
    count: int = 8
    rate_per_s: float = 500.0


@dataclass(frozen=True, slots=True)
class Gap:
    """Between two arrivals of a flow (CLOCK_MONOTONIC) `lost` numbers are missing, one at least."""

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
    """Datagrams of all flows. lost: never came; late: came after a later one of their flow; twice: came once
    more. received: all that came, with those."""

    received: int
    lost: int
    late: int
    twice: int


class Probing:
    """Flows that are sent and received. files: one per Flows, which `gaps` reads at any time."""

    def __init__(self, files: tuple[Path, ...], sender: subprocess.Popen[bytes] | None) -> None:
        self.files, self._sender = files, sender

    def thin(self) -> None:
        """One datagram in THINNED is sent from now on: gaps are known as much less well."""
        self._tell(_THIN)

    def dense(self) -> None:
        """All are sent again from the next moment on; so it begins."""
        self._tell(_DENSE)

    def _tell(self, number: signal.Signals) -> None:
        if self._sender is not None:
            self._sender.send_signal(number)


@contextmanager
def probing(flows: Sequence[Flows], folder: Path) -> Iterator[Probing]:
    """Sends and receives while the block runs; all rates are one. It begins when something of every flow has
    arrived: a gap that no arrival precedes is not known of.

    Raises BackendError when a process does not start, or a flow does not arrive within 30 s.
    """
    files = tuple(folder / f"flows-{index}.txt" for index in range(len(flows)))
    for each in files:
        each.write_text("")
    if not flows:
        yield Probing(files, None)
        return
    receiver = _started("receive", flows, files)
    try:
        sender = _started("send", flows, files)
        try:
            _await_all(receiver, sum(each.count for each in flows))
            yield Probing(files, sender)
        finally:
            _end(sender)
    finally:
        _end(receiver)


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


class Hearing:
    """What came of a flow, from the numbers alone."""

    def __init__(self, flow: int) -> None:
        self._flow = flow
        self._last, self._at_ns = -1, 0
        self._missing: set[int] = set()
        self.received = self.late = self.twice = 0

    @property
    def lost(self) -> int:
        """So many numbers are missing now."""
        return len(self._missing)

    def take(self, number: int, at_ns: int) -> Gap | None:
        """One that came; the gap that it ends, if there was one. What came before the first is not missed."""
        self.received += 1
        if number <= self._last:
            if number in self._missing:
                self._missing.remove(number)
                self.late += 1
            else:
                self.twice += 1
            return None
        begin_ns, lost = self._at_ns, number - self._last - 1
        first = self._last < 0
        if lost and not first:
            self._missing.update(range(self._last + 1, number))
        self._last, self._at_ns = number, at_ns
        return Gap(self._flow, begin_ns, at_ns, lost) if lost and not first else None


def _started(what: str, flows: Sequence[Flows], files: Sequence[Path]) -> subprocess.Popen[bytes]:
    namespace = flows[0].source.namespace
    asked = json.dumps([asdict(each) for each in flows])
    process = popen_in(
        namespace,
        [sys.executable, "-m", "testbed.fabric.probe", what, asked, *map(str, files)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    if process.stdout.readline() != _READY:
        said = process.stderr.read().decode(errors="replace").strip().splitlines()
        process.wait()
        raise BackendError(f"probe in {namespace} does not start: {said[-1] if said else 'it has ended'}")
    return process


def _await_all(receiver: subprocess.Popen[bytes], flows: int) -> None:
    assert receiver.stdout is not None
    there, _, _ = select.select([receiver.stdout], [], [], _HEARD_WITHIN_S)
    if not there or receiver.stdout.readline() != _HEARD:
        raise BackendError(
            f"probe: of {flows} flows some do not arrive within {_HEARD_WITHIN_S:g} s; is the fabric whole?"
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(_END)
    process.communicate()


# --- the processes -----------------------------------------------------------------------------------


def _send(flows: Sequence[Flows]) -> None:
    sockets = []
    for each in flows:
        with in_namespace(each.source.namespace):
            for flow in range(each.count):
                made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                made.bind((each.source.address, _FIRST_SOURCE_PORT + flow))
                made.connect((each.destination.address, _FIRST_PORT + flow))
                made.setblocking(False)
                sockets.append((flow, made))
    _ready()
    interval_ns = dense_ns = round(_SECOND_NS / flows[0].rate_per_s)
    number, due_ns = 0, time.monotonic_ns()
    while True:
        for flow, made in sockets:
            try:
                made.send(_PAYLOAD.pack(flow, number))
            except OSError:
                # Its number is missing then, as if it had been lost on the way.
                continue
        number += 1
        due_ns += interval_ns
        ahead_ns = due_ns - time.monotonic_ns()
        # After a stall nothing is made up for: a burst would fill queues.
        due_ns -= min(ahead_ns, 0)
        told = signal.sigtimedwait(_SIGNALS, max(ahead_ns, 0) / 1e9)
        if told is None:
            continue
        if told.si_signo == _END:
            return
        interval_ns = dense_ns * (THINNED if told.si_signo == _THIN else 1)
        due_ns = time.monotonic_ns()


def _receive(flows: Sequence[Flows], files: Sequence[Path]) -> None:
    sockets = []
    for each in flows:
        with in_namespace(each.destination.namespace):
            sockets.append([_listening(each.destination.address, flow) for flow in range(each.count)])
    heard = [[Hearing(flow) for flow in range(each.count)] for each in flows]
    _ready()
    ended = all_heard = False
    while not ended:
        told = signal.sigtimedwait(_SIGNALS, _READ_EVERY_S)
        # What was sent before the end is there by now.
        ended = told is not None and told.si_signo == _END
        offset_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
        for listening, hearing, file in zip(sockets, heard, files, strict=True):
            lines = [
                f"{gap.flow} {gap.begin_ns} {gap.end_ns} {gap.lost} .\n"
                for made, each in zip(listening, hearing, strict=True)
                for gap in _waiting(made, each, offset_ns)
            ]
            if lines:
                with file.open("a") as out:
                    out.write("".join(lines))
        if not all_heard and all(each.received for hearing in heard for each in hearing):
            all_heard = True
            _say(_HEARD)
    for hearing, file in zip(heard, files, strict=True):
        total = {key: sum(getattr(each, key) for each in hearing) for key in Received.__slots__}
        with file.open("a") as out:
            out.write(json.dumps(total) + "\n")


def _listening(address: str, flow: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    made.bind((address, _FIRST_PORT + flow))
    made.setblocking(False)
    return made


def _waiting(source: socket.socket, hearing: Hearing, offset_ns: int) -> Iterator[Gap]:
    """Reads what waits; the gaps that it ends."""
    while True:
        try:
            datagram, ancillary, _, _ = source.recvmsg(64, _ANCILLARY_BYTES)
        except BlockingIOError:
            return
        _, number = _PAYLOAD.unpack(datagram)
        seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2][: _TIMESPEC.size])
        gap = hearing.take(number, seconds * _SECOND_NS + nanoseconds - offset_ns)
        if gap is not None:
            yield gap


def _ready() -> None:
    # They wait until they are asked for (sigtimedwait).
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    _say(_READY)


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def main(arguments: Sequence[str]) -> int:
    """One of the two processes, until SIGTERM."""
    what, asked, *files = arguments
    flows = [
        Flows(**{**each, **{key: Endpoint(**each[key]) for key in ("source", "destination")}})
        for each in json.loads(asked)
    ]
    if what == "send":
        _send(flows)
    else:
        _receive(flows, [Path(each) for each in files])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
