"""Measures a queue pair of soft RoCE through silent faults of the real fabric, beside the twin's prediction.

For: `python -m studies soft-roce` and `soft-roce-survival` (root; two VMs, so a quiet machine and a few
minutes). Not for: the VMs and their tools (testbed.fabric.soft_roce) nor the rule that is compared with
(twin.fabric.rdma). Without KVM a round takes about a millisecond or two of emulation. What a fault costs
depends on the timers of the fabric and the queue pair, and these are not emulated. Soft RoCE has no adaptive
retransmission, so the twin's queue pairs have the plain timer here.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from control.fabric import BfdTimers, Fault, FaultKind
from studies.harness import Asked
from testbed.fabric import faults, leftovers
from testbed.fabric.guests import Guest, guests, silenced
from testbed.fabric.model import Fabric, Plan
from testbed.fabric.probe import Flows, Gap, gaps, probing
from testbed.fabric.soft_roce import CM_TIMEOUT, TIMEOUT, PingPong, ping_pong, prepare
from testbed.fabric.up import up, wait_converged
from twin.fabric import rdma
from twin.fabric.model import QueuePair
from twin.fabric.retransmission import PLAIN
from twinbed import ScenarioError

SETTINGS = (BfdTimers(0.1, 3), BfdTimers(0.05, 5))
"""BFD timers without false downs on a machine of two cores with occasional stalls."""

GAPS_S = (1.0, 2.0, 3.0, 4.0, 5.0, 8.0)
RETRY_COUNT = 2
TRIAL_ROUNDS = 500
"""Rounds of a trial: enough to last until the path is lost."""

TRIAL_TIMEOUT_S = 40
"""Limit of a trial, s: one side may wait for ever if the other has failed."""

NAME = "roce"
WARM_UP_ROUNDS = 300
FAULT_S = 1.5
"""Time for which a port is silent, s: long enough for both sides to change their paths."""

QUIET_S = 1.0
CONVERGED_WITHIN_S = 30.0
PROBES_PER_S = 200.0
_WINDOW_NS = 3_000_000_000
_MARGIN_NS = 300_000_000


@dataclass(frozen=True, slots=True)
class Hit:
    """One fault that hit the queue pair.

    gaps_s: longest silence of the probes' flows from client to server, and back, s; 0: none.
    stall_s: length of the round during the fault, s.
    twin_s: the twin's stall after either gap, s; packets met one gap or both.
    twin_survives: whether the twin's queue pair survives.
    """

    gaps_s: tuple[float, float]
    stall_s: float
    twin_s: tuple[float, float]
    twin_survives: bool


@dataclass(frozen=True, slots=True)
class MeasuredTimers:
    """The measurement with one setting of BFD's timers.

    bfd: the timers.
    pings: the rounds of the queue pair.
    injected: number of faults while the queue pair was at work.
    hits: the faults that delayed a round.
    """

    bfd: BfdTimers
    pings: PingPong
    injected: int
    hits: tuple[Hit, ...]


def measure(bfd: BfdTimers, duration_s: float, timeout: int = TIMEOUT) -> MeasuredTimers:
    """Measure two hosts, two ToRs and a VM at each host, with a silent fault of one port after the other.

    duration_s: approximate length of all rounds, s; timeout: exponent of the ACK timeout. Raises BackendError
    if this machine cannot do it.
    """
    with _standing(Plan(name=NAME, bfd=bfd)) as (fabric, client, server):
        warm = ping_pong(client, server, WARM_UP_ROUNDS, timeout_s=120, timeout=timeout)
        rounds = max(round(duration_s / float(np.median(warm.round_s))), WARM_UP_ROUNDS)
        return _through_faults(fabric, client, server, rounds, timeout)


@contextmanager
def _standing(plan: Plan) -> Iterator[tuple[Fabric, Guest, Guest]]:
    """Raise the fabric and its two guests, client and server; remove them at the end."""
    fabric = up(plan)
    try:
        with guests(fabric, fabric.hosts) as (client, server):
            prepare(client)
            prepare(server)
            yield fabric, client, server
    finally:
        leftovers.remove(plan.name)


def _through_faults(
    fabric: Fabric, client: Guest, server: Guest, rounds: int, timeout: int
) -> MeasuredTimers:
    ends = [host.endpoints[0] for host in fabric.hosts[:2]]
    flows = [Flows(source, sink, 4, PROBES_PER_S) for source, sink in (ends, ends[::-1])]
    injected: list[int] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        probing(flows, Path(folder)) as probes,
        ThreadPoolExecutor(1) as pool,
    ):
        pings = pool.submit(ping_pong, client, server, rounds, timeout_s=1_000, timeout=timeout)
        while not _ended(pings, QUIET_S):
            fault = Fault(FaultKind.PORT, host=0, uplink=len(injected) % len(fabric.tors))
            at_ns = faults.inject(fabric, fault).at_ns
            ended = _ended(pings, FAULT_S)
            faults.clear(fabric, fault)
            if not ended:
                injected.append(at_ns)
            wait_converged(fabric, CONVERGED_WITHIN_S)
        lost = [gaps(file) for file in probes.files]
        return beside_twin(fabric.plan.bfd, pings.result(), injected, lost, timeout)


def _ended(pings: Future[PingPong], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not pings.done() and time.monotonic() < deadline:
        time.sleep(0.02)
    return pings.done()


def beside_twin(
    bfd: BfdTimers, pings: PingPong, injected: Sequence[int], lost: Sequence[Sequence[Gap]], timeout: int
) -> MeasuredTimers:
    """Return the effects of the faults on the queue pair beside the twin's predictions.

    injected: start of each fault, ns. lost: gaps of the fabric, there and back.
    """
    pair = QueuePair(timeout=timeout, retry_profile=PLAIN)
    at_ns, hits = _spread_ns(pings), []
    for when_ns in injected:
        near = (at_ns > when_ns - _MARGIN_NS) & (at_ns < when_ns + _WINDOW_NS)
        there_s, back_s = (_longest_s(side, when_ns) for side in lost)
        # Otherwise the packets took the other path, and the longest round is only noise of the machine.
        if near.any() and 0 < max(there_s, back_s) < 2 * (stall_s := float(pings.round_s[near].max())):
            there, back = rdma.stall_s(pair, [there_s, back_s])
            survives = bool(rdma.survives(pair, max(there_s, back_s)))
            hits.append(Hit((there_s, back_s), stall_s, (float(there), float(back)), survives))
    return MeasuredTimers(bfd, pings, len(injected), tuple(hits))


def _spread_ns(pings: PingPong) -> NDArray[np.float64]:
    """Return the start of each round, ns, spread over the time that all rounds took here.

    The clock of an emulated guest runs at another rate. If it loses 1 %, a round moves by the margin in 30 s.
    """
    whole_ns = pings.round_s.sum() * 1e9
    rate = (pings.ended_ns - pings.began_ns) / whole_ns if whole_ns else 1.0
    return pings.began_ns + (pings.at_ns - pings.began_ns) * rate


@dataclass(frozen=True, slots=True)
class Trial:
    """A queue pair whose path was lost for gap_s.

    gap_s: time for which the path was lost, s.
    error: error of the queue pair, None if it survived.
    after_s: time from the loss until the error was reported, s.
    """

    gap_s: float
    error: str | None
    after_s: float


def survival(gaps_s: Sequence[float], retry_count: int) -> Iterator[Trial]:
    """Yield a trial for each gap: a new queue pair whose client is silenced that long. Raises as measure."""
    with _standing(Plan(name=NAME)) as (_, client, server):
        for gap_s in gaps_s:
            yield _trial(client, server, gap_s, retry_count)


def _trial(client: Guest, server: Guest, gap_s: float, retry_count: int) -> Trial:
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            ping_pong,
            client,
            server,
            TRIAL_ROUNDS,
            timeout_s=TRIAL_TIMEOUT_S,
            retry_count=retry_count,
            on_begin=begun.set,
        )
        while not begun.wait(0.02) and not running.done():
            continue
        with silenced(client):
            cut_ns = time.monotonic_ns()
            _ended(running, gap_s)
        pings = running.result()
    return Trial(gap_s, pings.error, (pings.ended_ns - cut_ns) / 1e9)


def told_survival(trials: Iterable[Trial], retry_count: int) -> Iterator[str]:
    """Yield a line for each gap, with the twin's prediction."""
    pair = QueuePair(timeout=CM_TIMEOUT, retry_count=retry_count, retry_profile=PLAIN)
    told = f"{retry_count} retries, ACK timeout {pair.ack_timeout_s:.2f} s"
    yield f"{told}; the twin's budget {pair.ladder.error_s:.1f} s"
    for trial in trials:
        twin = "survives" if rdma.survives(pair, trial.gap_s) else "breaks"
        real = "survived" if trial.error is None else f"broke after {trial.after_s:.1f} s ({trial.error})"
        yield f"  gap {trial.gap_s:4.1f} s  {real}; the twin: {twin}"


def _longest_s(lost: Sequence[Gap], when_ns: int) -> float:
    return max((gap.length_s for gap in lost if abs(gap.begin_ns - when_ns) < _MARGIN_NS), default=0.0)


def told(measured: MeasuredTimers) -> str:
    """Return a paragraph: percentiles of rounds, and the stalls of the hits beside the twin's prediction."""
    bfd, pings, hits = measured.bfd, measured.pings, measured.hits
    half_ms = pings.round_s * 500
    p50, p99, p999, most = np.quantile(half_ms, [0.5, 0.99, 0.999, 1.0]) if half_ms.size else [np.nan] * 4
    state = "survived" if pings.error is None else f"broke: {pings.error}"
    lines = [
        f"BFD {bfd.multiplier}×{bfd.interval_s * 1e3:g} ms: {half_ms.size} rounds, "
        f"{measured.injected} faults, {len(hits)} in the queue pair's way; it {state}",
        f"  latency (half a round) p50 {p50:.2f}  p99 {p99:.2f}  p99.9 {p999:.2f}  max {most:.1f} ms",
    ]
    if hits:
        survive = "survives" if all(hit.twin_survives for hit in hits) else "does not survive"
        lines.append(f"  the twin: {survive}; gaps there/back, stall, and the twin's after either gap, ms:")
    for hit in hits:
        there, back, stall, *twin = (round(1e3 * value) for value in (*hit.gaps_s, hit.stall_s, *hit.twin_s))
        lines.append(f"    gap {there:4}/{back:4}  stall {stall:4}  twin {twin[0]:4}/{twin[1]:4}")
    return "\n".join(lines)


def make(asked: Asked) -> int:
    """Print the cost of faults with each of BFD's timers. asked.only: such as `3x100`; default: SETTINGS."""
    for timers in [bfd_timers(text) for text in asked.only] or SETTINGS:
        print(told(measure(timers, asked.duration or 60.0, asked.timeout or TIMEOUT)), flush=True)
    return 0


def make_survival(asked: Asked) -> int:
    """Print the outages that a queue pair survives. asked.only: their lengths, s; default: GAPS_S."""
    for line in told_survival(
        survival([float(gap) for gap in asked.only] or GAPS_S, RETRY_COUNT), RETRY_COUNT
    ):
        print(line, flush=True)
    return 0


def bfd_timers(text: str) -> BfdTimers:
    """Return the timers that a text such as `3x100` means: multiplier and interval in ms."""
    try:
        multiplier, interval_ms = text.split("x")
        return BfdTimers(float(interval_ms) / 1e3, int(multiplier))
    except ValueError as error:
        raise ScenarioError(
            f"soft-roce: {text!r} are no timers; write MULTIPLIERxMS, such as 3x100"
        ) from error
