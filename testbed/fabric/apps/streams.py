"""Run unmodified iperf3 between two endpoints, to see how its throughput dips while the fabric has faults.

For: TCP streams that send as fast as they can, or at a rate. Not for: gaps to the millisecond (probe.py):
iperf3's shortest interval is 100 ms. Source: iperf3(1), `--json`.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.fabric import links
from testbed.fabric.apps.training import Floats
from testbed.fabric.model import Endpoint
from twinbed import BackendError

INTERVAL_S = 0.1
_LISTENS = b"Server listening"
_PATIENCE_S = 30.0
_STALLED = 0.05
"""Share of the median rate below which an interval counts as stalled. It is above 0, because buffers still
deliver a little."""


@dataclass(frozen=True, slots=True)
class Streams:
    """iperf3's report of n intervals of about INTERVAL_S.

    begin_s: beginning of each interval since iperf3's start, float64[n], s. rate_bps: rate in each interval,
    float64[n], bit/s. retransmits: number of segments sent again. error: iperf3's message; empty if there is
    none.
    """

    begin_s: Floats
    rate_bps: Floats
    retransmits: int
    error: str

    @property
    def median_bps(self) -> float:
        """Median rate of all intervals, bits per second."""
        return float(np.median(self.rate_bps))

    @property
    def longest_stall_s(self) -> float:
        """Longest time, in whole intervals, in which almost nothing was sent, s."""
        longest = run = 0
        for stalled in self.rate_bps < _STALLED * self.median_bps:
            run = run + 1 if stalled else 0
            longest = max(longest, run)
        return longest * INTERVAL_S


def measure(
    source: Endpoint, destination: Endpoint, *, seconds: int, streams: int = 1, rate_bps: float | None = None
) -> Streams:
    """Send for `seconds`. rate_bps: rate of every stream, bit/s (None: as fast as possible).

    Raises BackendError if iperf3 is not installed or its report cannot be read.
    """
    # Without interval reports: nobody reads them, and iperf3 would stop sending when the pipe is full.
    serve = ["iperf3", "--server", "--one-off", "--forceflush", "--interval", "0"]
    serve += ["--bind", destination.address]
    server = links.popen_in(destination.namespace, serve, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        _wait_listening(server)
        send = ["iperf3", "--client", destination.address, "--json", "--interval", str(INTERVAL_S)]
        send += ["--time", str(seconds), "--parallel", str(streams)]
        if rate_bps is not None:
            send += ["--bitrate", f"{rate_bps:.0f}"]
        done = links.run_in(source.namespace, send, timeout_s=seconds + _PATIENCE_S)
    finally:
        links.end(server)
    try:
        return _read(json.loads(done.stdout))
    except (ValueError, KeyError) as error:
        raise BackendError(f"iperf3: cannot read what it reports: {done.stdout[:200]!r}") from error


def _wait_listening(server: subprocess.Popen[bytes]) -> None:
    """Wait until the server listens. Raises BackendError if it ends before, or says nothing for long."""
    assert server.stdout is not None
    output, poll = b"", select.poll()
    poll.register(server.stdout, select.POLLIN)
    while _LISTENS not in output:
        said = os.read(server.stdout.fileno(), 4096) if poll.poll(_PATIENCE_S * 1e3) else b""
        if not said:
            words = output.decode(errors="replace").strip()
            raise BackendError(f"iperf3 --server: {words or 'does not listen'}")
        output += said


def _read(report: dict[str, Any]) -> Streams:
    sums = [interval["sum"] for interval in report["intervals"]]
    sent = report["end"].get("sum_sent", {})
    return Streams(
        begin_s=np.array([interval["start"] for interval in sums], np.float64),
        rate_bps=np.array([interval["bits_per_second"] for interval in sums], np.float64),
        retransmits=int(sent.get("retransmits", 0)),
        error=str(report.get("error", "")),
    )
