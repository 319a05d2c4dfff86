"""Run RDMA over the fabric: rdma_rxe (soft RoCE) in VMs, and perftest's tools between two of them.

For: the effect of a fault on a queue pair. Not for: breaking anything (faults.py) or interpreting it
(studies.fidelity_fabric.soft_roce). Source: perftest; drivers/infiniband/sw/rxe/rxe_comp.c of Linux 6.1.

A VM is an endpoint like any other (guests.py), so its host does overlay and failover. rdma_rxe differs from
hardware in two points: it retries for ever with a retry count of 7, and its timers tick with the kernel's
jiffies.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.fabric.guests import DEVICE, Guest
from testbed.vm import TIMED_OUT, Completed
from twinbed import BackendError

TIMEOUT = 14
"""perftest's default exponent of the ACK timeout: 4.096 µs · 2^14 = 67 ms."""

CM_TIMEOUT = 19
"""Exponent of the kernel's connection manager (drivers/infiniband/core/cma.c): 2.1 s."""

RETRIES_USED_UP = "Failed status 12"
"""IBV_WC_RETRY_EXC_ERR: no retry was answered, and the queue pair is in error."""

_LINK = "rxe0"
_PORT = 18515
_FAILED = re.compile(r"Failed status \d+|failed to|Couldn't|Unable", re.IGNORECASE)
_LATENCY = re.compile(r"^\d+, ([\d.e+]+)$", re.MULTILINE)

_PREPARE = f"""
modprobe -a rdma_rxe rdma_ucm
rdma link show {_LINK}/1 >/dev/null 2>&1 || rdma link add {_LINK} type rxe netdev {DEVICE}
"""

_LISTENS = f"{{ ss -ltn | grep -q :{_PORT} || rdma resource show cm_id 2>/dev/null | grep -q LISTEN; }}"

# Finds the device's IPv4 address (RoCE v2), because fe80:: may come before it.
_GID = f"""
gid=$(grep -l ffff: /sys/class/infiniband/{_LINK}/ports/1/gids/* 2>/dev/null | head -n 1)
gid=${{gid##*/}}
"""


@dataclass(frozen=True, slots=True)
class PingPong:
    """Result of a latency test.

    round_s: round-trip times, float64[n], s; empty if the test broke.
    began_ns, ended_ns: times at which the first round began and the end was reported (this machine's
    CLOCK_MONOTONIC, ns).
    error: perftest's error (such as RETRIES_USED_UP); None if it ran to its end.
    """

    round_s: NDArray[np.float64]
    began_ns: int
    ended_ns: int
    error: str | None

    @property
    def at_ns(self) -> NDArray[np.int64]:
        """When each round began, int64[n], CLOCK_MONOTONIC, ns."""
        before_s = np.cumsum(self.round_s) - self.round_s
        return self.began_ns + np.rint(before_s * 1e9).astype(np.int64)


def prepare(guest: Guest) -> None:
    """Give a VM its RDMA device. Raises BackendError if its kernel has none."""
    guest.do(_PREPARE)


def ping_pong(
    client: Guest,
    server: Guest,
    rounds: int,
    *,
    timeout_s: float,
    timeout: int = TIMEOUT,
    retry_count: int | None = None,
    on_begin: Callable[[], None] = lambda: None,
) -> PingPong:
    """Run `ib_send_lat` with 2 bytes from client to server.

    timeout_s: longest time of the whole test, s.
    timeout: exponent of the ACK timeout.
    retry_count: if given, the connection manager connects the two and sets the ACK timeout (CM_TIMEOUT);
    otherwise perftest does both, with 7 retries.
    on_begin: function called from this thread when the first round begins.

    Raises BackendError if the two do not find each other.
    """
    budget = f"-u {timeout}" if retry_count is None else f"-R --retry_count={retry_count}"
    options = f"-n {rounds} -s 2 -U {budget}"
    ran = _pair(client, server, "ib_send_lat", options, timeout_s, on_begin)
    usec = [float(number) for number in _LATENCY.findall(ran.client.stdout)]
    # perftest reports half of a round trip.
    return PingPong(np.array(usec) * 2e-6, ran.began_ns, ran.ended_ns, _error(ran.client))


@dataclass(frozen=True, slots=True)
class _PairRun:
    """A run of a test. client: result of the client's command. began_ns, ended_ns: as in PingPong."""

    client: Completed
    began_ns: int
    ended_ns: int


def _pair(
    client: Guest,
    server: Guest,
    tool: str,
    options: str,
    timeout_s: float,
    on_begin: Callable[[], None] = lambda: None,
) -> _PairRun:
    """Run a tool's two ends.

    began_ns is the time of the client's heading, ended_ns that of its next output.
    """
    command = f"{_GID}\nexec stdbuf -oL {tool} -d {_LINK} -x $gid -F {options}"
    waits = f"until {_LISTENS}; do kill -0 $! || exit 1; sleep 0.1; done"
    waiting = f"({command}) & {waits}; echo listening; wait $!"
    listening = threading.Event()
    outputs_ns: list[int] = []

    def on_server_output(_: str, data: bytes) -> None:
        if b"listening" in data:
            listening.set()

    def on_client_output(_: str, data: bytes) -> None:
        if outputs_ns or b"#bytes" in data:
            outputs_ns.append(time.monotonic_ns())
            if len(outputs_ns) == 1:
                on_begin()

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(
            server.vm.run, ["/bin/sh", "-c", waiting], timeout_s, on_output=on_server_output
        )
        while not listening.wait(0.1):
            if serving.done():
                raise BackendError(f"{tool} in the VM of {server.host.namespace}: {_last(serving.result())}")
        done = client.vm.run(
            ["/bin/sh", "-c", f"{command} {server.address}"], timeout_s, on_output=on_client_output
        )
        serving.result()
    if not outputs_ns:
        raise BackendError(f"{tool} in the VM of {client.host.namespace}: {_last(done)}")
    return _PairRun(done, outputs_ns[0], outputs_ns[1] if len(outputs_ns) > 1 else time.monotonic_ns())


def _error(done: Completed) -> str | None:
    if done.rc == 0:
        return None
    if done.rc == TIMED_OUT:
        return "no error until the test's time was over; the other side may have failed"
    match = _FAILED.search(done.stdout + done.stderr)
    return match[0] if match else f"exit code {done.rc}"


def _last(done: Completed) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1] if lines else f"exit code {done.rc}"
