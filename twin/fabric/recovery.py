"""The cost of a lost path to its senders: one queue pair in closed form, and the steps of a collective.

For: the compiled kernels behind rdma.stall_s and interruption.series, which document input and output. Not
for: packets (packets.py). Here, a sender that is cut off is silent until its retransmission gets through. The
rule is that of the reliable connection (InfiniBand Architecture Specification 1.4, 9.7.6.1.3 and 9.9.2.4):
after the last acknowledgement the sender sends everything unacknowledged again at each instant of its ladder
(retransmission.py). If the path comes back during such a burst, later packets of the burst get through; the
receiver sees the hole, and its negative acknowledgement ends the wait at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twin.containers.compiled import kernel
from twin.fabric.model import Floats, Whole


class Patience(NamedTuple):
    """The facts about a queue pair that decide the effect of an outage.

    rungs_s: float64[k], times at which it sends again, s after its last progress. error_s: time at which it
    gives up, s.
    retries: number of times that it goes back.
    burst_s: time for which it may send without an acknowledgement, s. rtt_s: time to the receiver and back,
    s.
    """

    rungs_s: Floats
    error_s: float
    retries: int
    burst_s: float
    rtt_s: float


@kernel
def stall(gap_s: float, patience: Patience) -> float:
    """Return the time from a path's loss until the sender's data arrives in order again, s; inf: it
    breaks."""
    if gap_s <= 0.0:
        return 0.0
    for retry in range(len(patience.rungs_s) + 1):
        sent_s = patience.rtt_s + patience.rungs_s[retry - 1] if retry > 0 else 0.0
        if sent_s >= gap_s:
            return sent_s
        # The hole costs a retry, too.
        if sent_s + patience.burst_s > gap_s and retry < patience.retries:
            return gap_s + patience.rtt_s
    return np.inf


@kernel
def stalls(gap_s: Floats, patience: Patience) -> Floats:
    """Return `stall` of each value of float64[n]."""
    result = np.empty(len(gap_s))
    for index in range(len(gap_s)):
        result[index] = stall(gap_s[index], patience)
    return result


class Steps(NamedTuple):
    """An operation of `ranks` in `rounds` steps with one message per rank.

    shape: RING, CHAIN or PAIRWISE. In a ring, each rank sends to the next rank what it got from the one
    before. A chain is a ring that is not closed: chunk c leaves rank r in step c + r. Pairwise, each rank
    sends to the rank k + 1 further on in step k.
    chunks: number of chunks of a chain. message_s, last_s: time on the wire of a message and of a chain's
    last chunk, s.
    alpha_s: latency of a message, s. typical_s: time of the whole operation while no path is lost, s.
    """

    shape: int
    ranks: int
    rounds: int
    chunks: int
    message_s: float
    last_s: float
    alpha_s: float
    typical_s: float


RING, CHAIN, PAIRWISE = range(3)


@kernel
def operations(
    steps: Steps,
    patience: Patience,
    first_flow: Whole,
    destination: Whole,
    first: Whole,
    outages: Floats,
    any_outage: Floats,
    duration_s: Floats,
) -> float:
    """Run one operation after another, and fill duration_s (float64[n], NaN before). Returns the time at
    which a queue pair broke, s (NaN: never).

    Rank r's flows with outages are first_flow[r] … first_flow[r + 1]. Flow f leads to rank destination[f],
    and its outages are rows first[f] … first[f + 1] of outages (float64[m, 2], in the order of time,
    disjoint). any_outage: all outages merged.
    """
    now_s, row = 0.0, 0
    for index in range(len(duration_s)):
        while row < len(any_outage) and any_outage[row, 1] <= now_s:
            row += 1
        took_s, failed_s = steps.typical_s, np.nan
        if row < len(any_outage) and any_outage[row, 0] < now_s + took_s:
            took_s, failed_s = _operation(steps, patience, now_s, first_flow, destination, first, outages)
        if not np.isnan(failed_s):
            return failed_s
        duration_s[index] = took_s
        now_s += took_s
    return np.nan


@kernel
def _operation(
    steps: Steps,
    patience: Patience,
    start_s: float,
    first_flow: Whole,
    destination: Whole,
    first: Whole,
    outages: Floats,
) -> tuple[float, float]:
    """Return (duration of one operation, s; time at which a queue pair broke, s, or NaN)."""
    ranks = steps.ranks
    free_s = np.full(ranks, start_s)  # time from which on each rank's link is free
    came_s = np.full(ranks, start_s)  # arrival of what each rank sent in the step before
    comes_s = np.full(ranks, start_s)
    for step in range(steps.rounds):
        for rank in range(ranks):
            comes_s[rank] = came_s[rank]
        for rank in range(ranks):
            wire_s = steps.message_s
            if steps.shape == CHAIN:
                chunk = step - rank
                if rank == ranks - 1 or chunk < 0 or chunk >= steps.chunks:
                    continue
                if chunk == steps.chunks - 1:
                    wire_s = steps.last_s
            hop = step if steps.shape == PAIRWISE else 0
            from_s = free_s[rank]
            if step > 0 and not (steps.shape == CHAIN and rank == 0):
                before = rank - (hop if steps.shape == PAIRWISE else 1)
                from_s = max(from_s, came_s[before])
            free_s[rank] = from_s + wire_s
            for flow in range(first_flow[rank], first_flow[rank + 1]):
                if destination[flow] == (rank + hop + 1) % ranks:
                    rows = outages[first[flow] : first[flow + 1]]
                    free_s[rank], failed_s = _transfer(from_s, wire_s, rows, patience)
                    if not np.isnan(failed_s):
                        return np.inf, failed_s
            comes_s[rank] = free_s[rank] + steps.alpha_s
        came_s, comes_s = comes_s, came_s
    return came_s.max() - start_s, np.nan


@kernel
def _transfer(from_s: float, wire_s: float, outages: Floats, patience: Patience) -> tuple[float, float]:
    """Return (time at which the last of wire_s seconds of sending is sent, s; time at which the queue pair
    broke, s, or NaN)."""
    now_s, left_s = from_s, wire_s
    for row in range(len(outages)):
        begin_s, end_s = outages[row, 0], outages[row, 1]
        if end_s <= now_s:
            continue
        if now_s + left_s <= begin_s:
            break
        if begin_s > now_s:
            left_s -= begin_s - now_s
            now_s = begin_s
        burst_s = min(patience.burst_s, left_s)
        rungs_s, error_s = patience.rungs_s, patience.error_s
        silent_s = stall(end_s - now_s, Patience(rungs_s, error_s, patience.retries, burst_s, patience.rtt_s))
        if silent_s == np.inf:
            return np.inf, now_s + error_s
        now_s += silent_s
    return now_s + left_s, np.nan
