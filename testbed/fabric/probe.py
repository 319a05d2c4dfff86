"""Send numbered datagrams between applications, and record the gaps in their arrival.

For: the effect of a fault on flows, as the receiver sees it. One process sends all flows and one receives
them. Not for: breaking anything (faults.py) or interpreting gaps (lab.fabric.real). Source: socket(7)
(SO_TIMESTAMPNS).

Arrivals have the kernel's time stamps, so a receiver that is late sees no gap. Flows differ in their ports
and so take different paths. Most of the cost is each datagram's way through the kernel, so flows may be
thinned while no fault is expected. `python -m testbed.fabric.probe send|receive …` are the processes.
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
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.fabric.links import end, in_namespace, popen_in
from testbed.fabric.model import Endpoint
from twinbed import BackendError

THINNED = 10
"""A thinned flow sends one datagram in this many."""

_FIRST_PORT, _FIRST_SOURCE_PORT = 20_000, 30_000
_PAYLOAD = struct.Struct("!IQ")
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("=qq")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
_SECOND_NS = 1_000_000_000
_NICE = -10
_BUFFER_BYTES = 1 << 20
_READ_EVERY_S = 0.05
READY_WITHIN_S = HEARD_WITHIN_S = 30.0
"""Longest time until a process is ready, and until a datagram of every flow has arrived, s."""

_READY, _HEARD = b"ready\n", b"heard\n"
_DENSE, _THIN, _END = signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM
_SIGNALS = (_DENSE, _THIN, _END)


@dataclass(frozen=True, slots=True)
class Flows:
    """Flows from one endpoint to another. count: number of flows. rate_per_s: datagrams/s of each."""

    source: Endpoint
    destination: Endpoint
    count: int = 8
    rate_per_s: float = 500.0


@dataclass(frozen=True, slots=True)
class Gap:
    """Missing datagrams between two arrivals of a flow.

    flow: number of the flow. begin_ns, end_ns: arrivals before and after (CLOCK_MONOTONIC, ns). lost: number
    of missing datagrams, at least 1.
    """

    flow: int
    begin_ns: int
    end_ns: int
    lost: int

    @property
    def length_s(self) -> float:
        """Time between the arrivals before and after the gap, s."""
        return (self.end_ns - self.begin_ns) / _SECOND_NS


@dataclass(frozen=True, slots=True)
class Received:
    """Counts of datagrams of all flows.

    received: number that arrived. lost: number that never arrived. late: number that arrived after a later
    datagram of their flow. twice: number that arrived again.
    """

    received: int
    lost: int
    late: int
    twice: int


class Probing:
    """Flows that are being sent and received. files: one file per Flows, which `gaps` reads at any time."""

    def __init__(self, files: tuple[Path, ...], sender: subprocess.Popen[bytes] | None) -> None:
        self.files, self._sender = files, sender

    def thin(self) -> None:
        """Send one datagram in THINNED from now on. Gaps are then measured THINNED times less exactly."""
        self._tell(_THIN)

    def dense(self) -> None:
        """Send all datagrams again, as at the beginning."""
        self._tell(_DENSE)

    def _tell(self, number: signal.Signals) -> None:
        if self._sender is not None:
            self._sender.send_signal(number)


@contextmanager
def probing(flows: Sequence[Flows], folder: Path) -> Iterator[Probing]:
    """Send and receive while the block runs. All flows must have the same rate.

    The block begins when a datagram of every flow has arrived, because a gap before the first arrival is not
    noticed. Raises BackendError if a process does not start, or a flow does not arrive within 30 s.
    """
    files = tuple(folder / f"flows-{index}.txt" for index in range(len(flows)))
    for file in files:
        file.write_text("")
    if not flows:
        yield Probing(files, None)
        return
    receiver = _started("receive", flows, files)
    try:
        sender = _started("send", flows, files)
        try:
            _await_all(receiver, sum(pair.count for pair in flows))
            yield Probing(files, sender)
        finally:
            _end(sender)
    finally:
        _end(receiver)


def gaps(file: Path) -> list[Gap]:
    """Return the gaps that have ended, in the order of their ends."""
    rows = (line.split() for line in file.read_text().splitlines() if line.endswith("."))
    return [Gap(*map(int, row[:4])) for row in rows if len(row) == 5]


def received(file: Path) -> Received:
    """Return the counts, after the end of `probing`. Raises BackendError if none were written."""
    for line in reversed(file.read_text().splitlines()):
        if line.startswith("{"):
            return Received(**json.loads(line))
    raise BackendError(f"{file}: the receiver did not end; measure again")


class FlowHearing:
    """Derive a flow's gaps and counts from the numbers of the datagrams that arrive."""

    def __init__(self, flow: int) -> None:
        self._flow = flow
        self._last, self._at_ns = -1, 0
        self._missing: set[int] = set()
        self.received = self.late = self.twice = 0

    @property
    def lost(self) -> int:
        """Number of datagrams that are missing now."""
        return len(self._missing)

    def take(self, number: int, at_ns: int) -> Gap | None:
        """Take an arrived datagram, and return the gap that it ends; None if there is none. Gaps before the
        first arrival do not count."""
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


def _started(role: str, flows: Sequence[Flows], files: Sequence[Path]) -> subprocess.Popen[bytes]:
    namespace = flows[0].source.namespace
    pairs = json.dumps([asdict(pair) for pair in flows])
    process = popen_in(
        namespace,
        [sys.executable, "-m", "testbed.fabric.probe", role, pairs, *map(str, files)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], READY_WITHIN_S)
        if not ready or process.stdout.readline() != _READY:
            process.kill()
            lines = process.stderr.read().decode(errors="replace").strip().splitlines()
            raise BackendError(  # noqa: TRY301
                f"probe in {namespace} does not start: {lines[-1] if lines else 'no reason given'}"
            )
    except BaseException:
        end(process)
        raise
    return process


def _await_all(receiver: subprocess.Popen[bytes], flows: int) -> None:
    assert receiver.stdout is not None
    ready, _, _ = select.select([receiver.stdout], [], [], HEARD_WITHIN_S)
    if not ready or receiver.stdout.readline() != _HEARD:
        raise BackendError(
            f"probe: some of {flows} flows do not arrive within {HEARD_WITHIN_S:g} s; is the fabric whole?"
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(_END)
    process.communicate()


# --- the processes -----------------------------------------------------------------------------------


def _send(flows: Sequence[Flows]) -> None:
    sockets = []
    for pair in flows:
        with in_namespace(pair.source.namespace):
            for flow in range(pair.count):
                sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                sender.bind((pair.source.address, _FIRST_SOURCE_PORT + flow))
                sender.connect((pair.destination.address, _FIRST_PORT + flow))
                sender.setblocking(False)
                sockets.append((flow, sender))
    _ready()
    interval_ns = dense_ns = round(_SECOND_NS / flows[0].rate_per_s)
    number, due_ns = 0, time.monotonic_ns()
    while True:
        for flow, sender in sockets:
            # A datagram that cannot be sent is missing, as if it had been lost on the way.
            with suppress(OSError):
                sender.send(_PAYLOAD.pack(flow, number))
        number += 1
        due_ns += interval_ns
        ahead_ns = due_ns - time.monotonic_ns()
        # Datagrams that a stall delayed are not sent later, because a burst would fill queues.
        due_ns -= min(ahead_ns, 0)
        received = signal.sigtimedwait(_SIGNALS, max(ahead_ns, 0) / 1e9)
        if received is None:
            continue
        if received.si_signo == _END:
            return
        interval_ns = dense_ns * (THINNED if received.si_signo == _THIN else 1)
        due_ns = time.monotonic_ns()


def _receive(flows: Sequence[Flows], files: Sequence[Path]) -> None:
    sockets = []
    for pair in flows:
        with in_namespace(pair.destination.namespace):
            sockets.append([_listening(pair.destination.address, flow) for flow in range(pair.count)])
    heard = [[FlowHearing(flow) for flow in range(pair.count)] for pair in flows]
    _ready()
    ended = all_heard = False
    while not ended:
        received_signal = signal.sigtimedwait(_SIGNALS, _READ_EVERY_S)
        # Whatever was sent before the end has arrived by now.
        ended = received_signal is not None and received_signal.si_signo == _END
        offset_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
        for listening, hearing, file in zip(sockets, heard, files, strict=True):
            lines = [
                f"{gap.flow} {gap.begin_ns} {gap.end_ns} {gap.lost} .\n"
                for receiver, flow in zip(listening, hearing, strict=True)
                for gap in _waiting(receiver, flow, offset_ns)
            ]
            if lines:
                with file.open("a") as out:
                    out.write("".join(lines))
        if not all_heard and all(flow.received for hearing in heard for flow in hearing):
            all_heard = True
            _say(_HEARD)
    for hearing, file in zip(heard, files, strict=True):
        total = {key: sum(getattr(flow, key) for flow in hearing) for key in Received.__slots__}
        with file.open("a") as out:
            out.write(json.dumps(total) + "\n")


def _listening(address: str, flow: int) -> socket.socket:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    receiver.bind((address, _FIRST_PORT + flow))
    receiver.setblocking(False)
    return receiver


def _waiting(source: socket.socket, hearing: FlowHearing, offset_ns: int) -> Iterator[Gap]:
    """Read the waiting datagrams, and yield the gaps that they end."""
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
    # The signals stay pending until sigtimedwait takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    _say(_READY)


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def main(arguments: Sequence[str]) -> int:
    """Run one of the two processes until SIGTERM."""
    role, pairs, *files = arguments
    flows = [
        Flows(**{**pair, **{key: Endpoint(**pair[key]) for key in ("source", "destination")}})
        for pair in json.loads(pairs)
    ]
    if role == "send":
        _send(flows)
    else:
        _receive(flows, [Path(file) for file in files])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
