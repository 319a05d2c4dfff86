"""iperf3 between two endpoints, unmodified: how its throughput dips while the fabric has faults.

For: TCP streams that send all they may, or at a rate. Not for: gaps to the millisecond (the probe's work):
iperf3 reports no shorter intervals than 100 ms. Source: iperf3(1), `--json`.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.fabric import links
from testbed.fabric.apps.training import Floats, end
from testbed.fabric.model import Endpoint
from twinbed import BackendError

INTERVAL_S = 0.1
_LISTENS = b"Server listening"
_PATIENCE_S = 30.0
_STALLED = 0.05
"""Of the median rate: an interval with less stands still, but for what was in the buffers."""


@dataclass(frozen=True, slots=True)
class Streams:
    """What iperf3 reports. begin_s, rate_bps: float64[n], of each interval of about INTERVAL_S, the former
    from its own start; retransmits: segments sent again; error: its own words, empty where there is none."""

    begin_s: Floats
    rate_bps: Floats
    retransmits: int
    error: str

    @property
    def median_bps(self) -> float:
        """Of all intervals."""
        return float(np.median(self.rate_bps))

    @property
    def longest_stall_s(self) -> float:
        """The longest time, in whole intervals, in which next to nothing was sent."""
        longest = run = 0
        for stalled in self.rate_bps < _STALLED * self.median_bps:
            run = run + 1 if stalled else 0
            longest = max(longest, run)
        return longest * INTERVAL_S


def measure(
    source: Endpoint, destination: Endpoint, *, seconds: int, streams: int = 1, rate_bps: float | None = None
) -> Streams:
    """Sends for so long. rate_bps: of each stream (None: as fast as it goes).

    Raises BackendError where iperf3 is not installed or says nothing that can be read.
    """
    serve = ["iperf3", "--server", "--one-off", "--forceflush", "--bind", destination.address]
    server = links.popen_in(destination.namespace, serve, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        _wait_listening(server)
        send = ["iperf3", "--client", destination.address, "--json", "--interval", str(INTERVAL_S)]
        send += ["--time", str(seconds), "--parallel", str(streams)]
        if rate_bps is not None:
            send += ["--bitrate", f"{rate_bps:.0f}"]
        done = links.run_in(source.namespace, send, timeout_s=seconds + _PATIENCE_S)
    finally:
        end(server)
    try:
        return _read(json.loads(done.stdout))
    except (ValueError, KeyError) as error:
        raise BackendError(f"iperf3: cannot read what it reports: {done.stdout[:200]!r}") from error


def _wait_listening(server: subprocess.Popen[bytes]) -> None:
    if server.stdout is None:
        return
    said = b""
    for line in server.stdout:
        if _LISTENS in line:
            return
        said += line
    raise BackendError(f"iperf3 --server: {said.decode(errors='replace').strip() or 'ended at once'}")


def _read(report: dict[str, Any]) -> Streams:
    sums = [each["sum"] for each in report["intervals"]]
    sent = report["end"].get("sum_sent", {})
    return Streams(
        begin_s=np.array([each["start"] for each in sums], np.float64),
        rate_bps=np.array([each["bits_per_second"] for each in sums], np.float64),
        retransmits=int(sent.get("retransmits", 0)),
        error=str(report.get("error", "")),
    )
