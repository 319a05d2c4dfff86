"""NCCL's own failover between the ports of a fused adapter, and their recovery, in closed form.

For: the cost of a port's outage to a job under Scheme.NCCL_FAILOVER and NCCL_RECOVERY, and why the job dies.
Not for: queue pairs packet by packet (packets.py). The tests walk the library's own states, event by event. A
message is striped over all ports, so one dead port stalls all traffic until its queue pair is in error or
sends again. A second port that fails while another is not OK ends the communicator.
Simplifications: parts are short compared with all timers, and acknowledgements of a recovery take no time.
Source: NCCL 2.30.7 (transport/net_ib) as read, 2.30.3 the same; none of it was run on hardware here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np

from twin.fabric.model import Floats
from twin.fabric.rdma import in_order
from twinbed import ScenarioError

_MOST_PORTS = 4
_SAME_S = 1e-9
"""Times closer than this are equal, s, because they are sums, which are rounded."""


@dataclass(frozen=True, slots=True)
class PortFailover:
    """The settings of the library, with the defaults of NCCL 2.30.7.

    ports: number of ports of a fused adapter, 1 to 4. recovery: whether ports are used again after a failure.
    probe_delay_s, probe_rtt_s: time from an error to the probe, and round trip of the probe, s.
    resend_s: time to send the missing parts again, s.
    receiver_lag_s: delay until the receiver notices the error, s (0 to the error's own time).
    start_s: time from the error until recovery begins, s. ack_s: time that a batch waits for an
    acknowledgement, s.
    interval_s: least time between batches, s. alive_s: silence after which the receiver counts an attempt, s.
    tries: number of attempts of each end. batches: number of consecutive batches that the receiver wants.
    """

    ports: int = 2
    recovery: bool = False
    probe_delay_s: float = 0.01
    probe_rtt_s: float = 0.0
    resend_s: float = 0.0
    receiver_lag_s: float = 0.0
    start_s: float = 0.2
    interval_s: float = 0.5
    ack_s: float = 5.0
    alive_s: float = 4.0
    tries: int = 5
    batches: int = 2

    def __post_init__(self) -> None:
        """Raise ScenarioError for impossible values."""
        if not 1 <= self.ports <= _MOST_PORTS:
            raise ScenarioError(
                f"nccl: it fuses 1 to {_MOST_PORTS} ports into an adapter, not {self.ports}: fewer uplinks"
            )
        if self.tries < 1 or self.batches < 1:
            raise ScenarioError("nccl: give attempts of 1 or more")
        times = (self.probe_delay_s, self.probe_rtt_s, self.resend_s, self.receiver_lag_s, self.start_s)
        if min(*times, self.interval_s) < 0 or min(self.ack_s, self.alive_s) <= 0:
            raise ScenarioError("nccl: give times of zero or more, and timeouts above zero")

    @property
    def redundant(self) -> bool:
        """Whether there is another port."""
        return self.ports > 1

    @property
    def failed_over_s(self) -> float:
        """Time from a queue pair's error until its data flows again, s; inf: it never does."""
        return self.probe_delay_s + self.probe_rtt_s + self.resend_s if self.redundant else inf

    @property
    def degraded(self) -> float:
        """Share of the rate that is left while one port is not OK."""
        return 1 - 1 / self.ports

    def recovered_s(self, up_s: float, lag_s: float | None = None) -> float:
        """Return the time at which the port is OK again, s after the sender's error; inf: never.

        up_s: time from which on the port works again, s after that error (below 0: it already did).
        lag_s: delay until the receiver's end begins, s (None: receiver_lag_s; inf: it never begins).
        """
        lag_s = self.receiver_lag_s if lag_s is None else lag_s
        if not self.recovery:
            return inf
        period_s = max(self.ack_s, self.interval_s)
        heard_s = max(up_s, lag_s) - self.start_s
        # The first batch that arrives, counted from 0, and the one that completes what the receiver wants.
        first = max(ceil(heard_s / period_s - _SAME_S), 0) if heard_s < inf else self.tries
        last = first + self.batches - 1
        if last >= self.tries:
            return inf
        # The receiver counts its first look, and each silence until the batch and between two batches.
        waited_s = self.start_s + first * period_s - (lag_s + self.start_s)
        silences = max(ceil(waited_s / self.alive_s - _SAME_S) - 1, 0)
        between = max(ceil(period_s / self.alive_s - _SAME_S) - 1, 0) * (self.batches - 1)
        if 1 + silences + between >= self.tries:
            return inf
        return self.start_s + last * period_s


@dataclass(frozen=True, slots=True)
class PortOutage:
    """An outage of a port on a flow's path. source, destination: hosts of the flow. port: port of both hosts.
    begin_s, end_s: s."""

    source: int
    destination: int
    port: int
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Story:
    """The effect of a job's ports on the job.

    stalls: float64[n, 2], times in which no data flowed, disjoint and in order, s.
    degraded: float64[k, 2], times in which a port was not OK, disjoint and in order, s (inf: for the rest).
    died_s: time at which the communicator failed, s (inf: it did not). reason: why it failed.
    """

    stalls: Floats
    degraded: Floats
    died_s: float = inf
    reason: str = ""


@dataclass(slots=True)
class _Ports:
    """The ports that are not OK. down: (host, port) → (from, until), s."""

    down: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    def failed(self, host: int, port: int, at_s: float) -> bool:
        """Return whether the port failed before at_s and is not OK then."""
        from_s, until_s = self.down.get((host, port), (inf, inf))
        return from_s < at_s - _SAME_S and at_s < until_s

    def another(self, host: int, port: int, at_s: float) -> bool:
        """Return whether another port of the host is not OK at at_s."""
        others = ((one, span) for (one, other), span in self.down.items() if other != port)
        return any(one == host and span[0] <= at_s + _SAME_S and at_s < span[1] for one, span in others)


def story(library: PortFailover, outages: Sequence[PortOutage], stall_s: Floats, error_s: float) -> Story:
    """Return the effect of outages on a job whose flows always send.

    stall_s: float64[n], time for which the queue pair of each outage is silent, s, from rdma.stall_s (inf: it
    ends in error, error_s after the outage's begin).
    """
    ports = _Ports()
    stalls, degraded = [np.empty((0, 2))], [np.empty((0, 2))]
    ended_s = [
        begin.begin_s + (error_s if np.isinf(s) else 0.0) for begin, s in zip(outages, stall_s, strict=True)
    ]
    for index in sorted(range(len(outages)), key=lambda row: (ended_s[row], outages[row].port)):
        outage, at_s = outages[index], ended_s[index]
        ends = (outage.source, outage.destination)
        if any(ports.failed(host, outage.port, at_s) for host in ends):
            continue  # its queue pairs use other ports
        if np.isfinite(stall_s[index]):
            stalls.append(np.array([[outage.begin_s, outage.begin_s + stall_s[index]]]))
            continue
        if not library.redundant or any(ports.another(host, outage.port, at_s) for host in ends):
            reason = "a second port failed" if library.redundant else "the only port failed"
            stalls.append(np.array([[outage.begin_s, at_s]]))
            return Story(_until(stalls, at_s), _until(degraded, at_s), at_s, reason)
        back_s = at_s + library.recovered_s(outage.end_s - at_s)
        for host in ends:
            ports.down[host, outage.port] = (at_s, back_s)
        stalls.append(np.array([[outage.begin_s, at_s + library.failed_over_s]]))
        degraded.append(np.array([[at_s, back_s]]))
    return Story(_until(stalls, inf), _until(degraded, inf))


def _until(spans: list[Floats], end_s: float) -> Floats:
    """Return the spans merged, in order, and cut off at end_s."""
    rows = in_order(np.concatenate(spans))
    rows = rows[rows[:, 0] < end_s]
    return np.column_stack([rows[:, 0], np.minimum(rows[:, 1], end_s)])
