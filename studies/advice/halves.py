"""Advice made on the first half of a history and replayed on the second, for each candidate.

For: `judge`, over one trace. Not for: which traces (histories.py), nor the page (page.py). A container counts
if it runs in both halves and every candidate has advice for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import ceil

import numpy as np

from control.advice.candidates import KRR, LIMITS, REQUESTS_ONLY, VPA
from control.advice.model import Sizes
from control.allocator.model import Flags
from lab.containers.advise import shares
from lab.containers.advise.advising import settings
from lab.containers.advise.histories import Told, of_cluster
from lab.containers.advise.rehearsal import Hosts, Rehearsal
from lab.containers.calibrate.values import load_calibration
from lab.containers.input.sections import Price
from traces.prometheus.history import ClusterHistory
from traces.prometheus.workloads import Owner
from traces.schema import UsageTrace, select

JUDGED = (REQUESTS_ONLY, LIMITS, KRR, VPA)
RISK = 0.05
SEEDS = (0, 1)

HOST_CORES = 64
"""Most cores of a shared host."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over containers of a candidate's outcome on the second half.

    containers: their number. with_memory, without_oom: number of containers whose memory is known, and number
    of these without an OOM event. cpu_money, memory_money: price of what is reserved, per day. limited,
    throttled: containers with a CPU limit, and their throttled shares added up. late_s, arrived_s: CPU work
    that was late on a full host, and all CPU work, core-seconds. shared_late_s: work late on hosts that
    containers share, core-seconds. oracle_late_s: work that would be late on a full host if the advice knew
    the second half and had the same budget, core-seconds.
    reserved_bytes, limit_bytes: memory requests, and limits where there are any.
    """

    containers: float
    with_memory: float
    without_oom: float
    cpu_money: float
    memory_money: float
    limited: float
    throttled: float
    late_s: float
    arrived_s: float
    shared_late_s: float
    oracle_late_s: float
    reserved_bytes: float
    limit_bytes: float


def added(parts: Sequence[Sums]) -> Sums:
    """Return the sums of several histories."""
    return Sums(*(sum(getattr(part, field.name) for part in parts) for field in fields(Sums)))


def judge(trace: UsageTrace, source: str) -> dict[str, Sums] | None:
    """Return the sums by candidate; None if no container runs in both halves."""
    middle_s = len(trace.present) // 2 * trace.interval_s
    first, second = select(trace, None, 0, middle_s), select(trace, None, middle_s, None)
    both = np.logical_and(first.present.any(axis=0), second.present.any(axis=0)).tolist()
    names = [name for name, there in zip(trace.containers, both, strict=True) if there]
    if not names:
        return None
    price, machine = Price(), load_calibration().machine()
    early, late = (
        of_cluster(source, ClusterHistory(part, tuple(Owner("", "", name, "", name) for name in names), {}))
        for part in (select(first, names), select(second, names))
    )
    rehearsal = Rehearsal(early, machine, price, SEEDS[:1])
    made = settings(JUDGED, early, rehearsal, RISK)
    replay = Rehearsal(late, machine, price, SEEDS)
    known = early.usage.memory_known & late.usage.memory_known
    counted = np.all([~np.isnan(own.cpu_request) for own in made.values()], axis=0)
    shared = _shared(made, counted, late, replay)
    informed = shares.requests(replay, early.usage, RISK, lambda rehearse: rehearse, (0.0,))
    oracle = replay.fates(replace(made[REQUESTS_ONLY], cpu_request=informed))
    sums = {}
    for name, sizes in made.items():
        fates = replay.fates(sizes)
        oom = fates.oom_events.max(axis=0)
        days = late.running * 24.0
        memory = np.where(early.usage.memory_known, sizes.reserved_bytes, 0.0)
        limited = np.isfinite(sizes.cpu_limit) & counted
        sums[name] = Sums(
            containers=float(counted.sum()),
            with_memory=float((known & counted).sum()),
            without_oom=float((~(oom > 0) & known & counted).sum()),
            cpu_money=float((sizes.reserved_cores * days * price.cpu_core_hour)[counted].sum()),
            memory_money=float((memory * days * price.memory_gib_hour / 2**30)[counted].sum()),
            limited=float(limited.sum()),
            throttled=float(fates.throttled_share.mean(axis=0)[limited].sum()),
            late_s=float(fates.late_s.mean(axis=0)[counted].sum()),
            arrived_s=float(fates.arrived_s.mean(axis=0)[counted].sum()),
            shared_late_s=shared[name],
            oracle_late_s=float(oracle.late_s.mean(axis=0)[counted].sum()),
            reserved_bytes=float(memory[counted].sum()),
            limit_bytes=float(
                np.where(np.isfinite(sizes.memory_limit), sizes.memory_limit, 0.0)[counted & known].sum()
            ),
        )
    return sums


def _shared(made: dict[str, Sizes], counted: Flags, late: Told, replay: Rehearsal) -> dict[str, float]:
    """Return CPU work late on the second half on shared hosts, core-seconds, by candidate.

    The hosts are the same for all candidates: their cores are as many as the dearest requests add up to.
    Only counted containers run on them.
    """
    asked = [np.where(counted, sizes.reserved_cores, 0.0) for sizes in made.values()]
    cores = max(float(replay.most_requested(own)[0]) for own in asked)
    if not cores > 0:
        return dict.fromkeys(made, 0.0)
    usage = late.usage
    own = replace(late, usage=replace(usage, cores=np.where(counted[usage.row][:, None], usage.cores, 0.0)))
    count = ceil(cores / HOST_CORES)
    hosts = Hosts(count, cores / count)
    rehearsal = Rehearsal(own, load_calibration().machine(), Price(), SEEDS[:1], hosts)
    return {name: float(rehearsal.fates(sizes).late_s[0][counted].sum()) for name, sizes in made.items()}
