"""A queue pair of soft RoCE through silent faults of the real fabric, beside what the twin says of it.

For: `python -m studies.fidelity_fabric.soft_roce` (root; two VMs, so a quiet machine and a few minutes). Not
for: the
VMs and their tools (testbed.fabric.soft_roce) nor the rule that is compared with (twin.fabric.rdma). Without
KVM a round takes about a millisecond or two of emulation; what a fault costs is the fabric's and the queue
pair's timers', and these are not emulated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from control.fabric import BfdTimers, Fault, FaultKind
from testbed.fabric import faults, leftovers
from testbed.fabric.guests import Guest, guests, silenced
from testbed.fabric.model import Fabric, Plan
from testbed.fabric.probe import Flows, Gap, gaps, probing
from testbed.fabric.soft_roce import CM_TIMEOUT, TIMEOUT, PingPong, ping_pong, prepare
from testbed.fabric.up import up, wait_converged
from twin.fabric import rdma
from twin.fabric.model import QueuePair
from twinbed import TwinbedError

SETTINGS = (BfdTimers(0.1, 3), BfdTimers(0.05, 5))
"""Without false downs on a machine of two cores that stand still now and then."""

GAPS_S = (1.0, 2.0, 3.0, 4.0, 5.0, 8.0)
RETRY_COUNT = 2
TRIAL_ROUNDS = 500
"""So many that they are not over when the path is lost."""

TRIAL_TIMEOUT_S = 40
"""One side may wait for ever for another that has broken."""

NAME = "roce"
WARM_UP_ROUNDS = 300
FAULT_S = 1.5
"""How long a port is silent: until both sides have changed their ways."""

QUIET_S = 1.0
CONVERGED_WITHIN_S = 30.0
PROBES_PER_S = 200.0
_WINDOW_NS = 3_000_000_000
_MARGIN_NS = 300_000_000


@dataclass(frozen=True, slots=True)
class Hit:
    """One fault that the queue pair was in the way of.

    gaps_s: the longest silence of the probes' flows from client to server, and back (0: none); stall_s: the
    round that was under way; twin_s: the twin's stall after such gaps, of which packets met one or both.
    """

    gaps_s: tuple[float, float]
    stall_s: float
    twin_s: tuple[float, float]
    twin_survives: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """injected: faults while the queue pair was at work; hits: those that cost it a round."""

    bfd: BfdTimers
    pings: PingPong
    injected: int
    hits: tuple[Hit, ...]


def measure(bfd: BfdTimers, duration_s: float, timeout: int = TIMEOUT) -> Measured:
    """Two hosts, two ToRs, a VM at each host, and a silent fault of one port after the other for about
    duration_s. Raises BackendError where this machine cannot."""
    plan = Plan(name=NAME, bfd=bfd)
    fabric = up(plan)
    try:
        with guests(fabric, fabric.hosts) as (client, server):
            for each in (client, server):
                prepare(each)
            warm = ping_pong(client, server, WARM_UP_ROUNDS, timeout_s=120, timeout=timeout)
            rounds = max(round(duration_s / float(np.median(warm.round_s))), WARM_UP_ROUNDS)
            return _through_faults(fabric, client, server, rounds, timeout)
    finally:
        leftovers.remove(plan.name)


def _through_faults(fabric: Fabric, client: Guest, server: Guest, rounds: int, timeout: int) -> Measured:
    ends = [host.endpoints[0] for host in fabric.hosts[:2]]
    flows = [Flows(one, other, 4, PROBES_PER_S) for one, other in (ends, ends[::-1])]
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
        found = [gaps(file) for file in probes.files]
        return _compared(fabric.plan.bfd, pings.result(), injected, found, timeout)


def _ended(pings: Future[PingPong], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not pings.done() and time.monotonic() < deadline:
        time.sleep(0.02)
    return pings.done()


def _compared(
    bfd: BfdTimers, pings: PingPong, injected: Sequence[int], found: Sequence[Sequence[Gap]], timeout: int
) -> Measured:
    pair = QueuePair(timeout=timeout)
    at_ns, hits = pings.at_ns, []
    for when_ns in injected:
        near = (at_ns > when_ns - _MARGIN_NS) & (at_ns < when_ns + _WINDOW_NS)
        there_s, back_s = (_longest_s(each, when_ns) for each in found)
        # Otherwise its packets took the other way, and the longest round is a machine's noise.
        if near.any() and 0 < max(there_s, back_s) < 2 * (stall_s := float(pings.round_s[near].max())):
            there, back = rdma.stall_s(pair, [there_s, back_s])
            survives = bool(rdma.survives(pair, max(there_s, back_s)))
            hits.append(Hit((there_s, back_s), stall_s, (float(there), float(back)), survives))
    return Measured(bfd, pings, len(injected), tuple(hits))


@dataclass(frozen=True, slots=True)
class Trial:
    """A queue pair whose path was lost for gap_s. error: of it, None if it survived; after_s: from the loss
    until that was told."""

    gap_s: float
    error: str | None
    after_s: float


def survival(gaps_s: Sequence[float], retry_count: int) -> Iterator[Trial]:
    """A new queue pair for each gap, whose client is silenced for so long; as they end. Raises as measure."""
    plan = Plan(name=NAME)
    fabric = up(plan)
    try:
        with guests(fabric, fabric.hosts) as (client, server):
            for each in (client, server):
                prepare(each)
            for gap_s in gaps_s:
                yield _trial(client, server, gap_s, retry_count)
    finally:
        leftovers.remove(plan.name)


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
    """A line for each gap, with the twin's word."""
    pair = QueuePair(timeout=CM_TIMEOUT, retry_count=retry_count)
    budget_s = pair.ack_timeout_s * (retry_count + 1)
    yield f"{retry_count} retries, ACK timeout {pair.ack_timeout_s:.2f} s; the twin's budget {budget_s:.1f} s"
    for each in trials:
        twin = "survives" if rdma.survives(pair, each.gap_s) else "breaks"
        found = "survived" if each.error is None else f"broke after {each.after_s:.1f} s ({each.error})"
        yield f"  gap {each.gap_s:4.1f} s  {found}; the twin: {twin}"


def _longest_s(found: Sequence[Gap], when_ns: int) -> float:
    return max((each.length_s for each in found if abs(each.begin_ns - when_ns) < _MARGIN_NS), default=0.0)


def told(measured: Measured) -> str:
    """A paragraph: percentiles of rounds, and what the hits cost beside the twin's word."""
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
        survive = "survives" if all(each.twin_survives for each in hits) else "does not survive"
        lines.append(f"  the twin: {survive}; gaps there/back, stall, and the twin's after either gap, ms:")
    for each in hits:
        there, back, stall, *twin = (
            round(1e3 * value) for value in (*each.gaps_s, each.stall_s, *each.twin_s)
        )
        lines.append(f"    gap {there:4}/{back:4}  stall {stall:4}  twin {twin[0]:4}/{twin[1]:4}")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """One setting after the other."""
    parser = argparse.ArgumentParser(prog="python -m studies.fidelity_fabric.soft_roce", description=__doc__)
    parser.add_argument(
        "--bfd", action="append", type=_timers, metavar="MULTIPLIERxMS", help="default: 3x100 and 5x50"
    )
    parser.add_argument("--duration", type=float, default=60.0, metavar="S", help="of the rounds, about")
    parser.add_argument("--timeout", type=int, default=TIMEOUT, help="exponent of the ACK timeout")
    parser.add_argument(
        "--survival",
        nargs="*",
        type=float,
        metavar="GAP_S",
        help="instead: which gaps a queue pair survives; default: 1 to 8 s",
    )
    arguments = parser.parse_args(argv)
    try:
        if arguments.survival is not None:
            for line in told_survival(survival(arguments.survival or GAPS_S, RETRY_COUNT), RETRY_COUNT):
                print(line, flush=True)
            return 0
        for bfd in arguments.bfd or SETTINGS:
            print(told(measure(bfd, arguments.duration, arguments.timeout)), flush=True)
    except TwinbedError as error:
        print(f"soft_roce: {error}", file=sys.stderr)
        return 2
    return 0


def _timers(text: str) -> BfdTimers:
    multiplier, _, interval_ms = text.partition("x")
    return BfdTimers(float(interval_ms) / 1e3, int(multiplier))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
