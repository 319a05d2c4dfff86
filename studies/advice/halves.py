"""Advice made on the first half of a history and replayed on the second, for each candidate.

For: `judge`, over one trace. Not for: which traces (histories.py), nor the page (page.py). A container counts
if it runs in both halves, and if all candidates say something of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from control.advice import cpu
from control.advice.candidates import KRR, LIMITS, REQUESTS_ONLY, VPA
from control.advice.model import Sizes
from control.allocator.model import Flags, Floats
from lab.containers.advise.advising import settings
from lab.containers.advise.histories import Told, of_cluster
from lab.containers.advise.rehearsal import Rehearsal
from lab.containers.calibrate.values import load_calibration
from lab.containers.input.sections import Price
from traces.prometheus.history import ClusterHistory
from traces.prometheus.workloads import Owner
from traces.schema import UsageTrace, select

JUDGED = (REQUESTS_ONLY, LIMITS, KRR, VPA)
CURVES = (REQUESTS_ONLY, KRR, VPA)
CURVE = (0.9, 1.0, 1.1, 1.2, 1.3, 1.5)
"""CPU that is reserved at the points of the curve of money against late work, in krr's requests."""
RISK = 0.05
SEEDS = (0, 1)


@dataclass(frozen=True, slots=True)
class Sums:
    """What a candidate did on the second half, added up over containers.

    containers: how many. with_memory, without_oom: those whose memory is known, and those of them without an
    OOM event. cpu_money, memory_money: price of what is reserved, per day. limited, throttled: containers
    with a CPU limit, and their throttled shares added up. late_s, arrived_s: CPU work late on a full host,
    and all of it, core-seconds. reserved_bytes, limit_bytes: memory requests, and limits where there are any.
    curve_late_s: float64[len(CURVE)], work late at each point of the curve, core-seconds.
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
    reserved_bytes: float
    limit_bytes: float
    curve_late_s: Floats


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
    curves = _curves(made, counted, early, rehearsal, replay)
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
            reserved_bytes=float(memory[counted].sum()),
            limit_bytes=float(
                np.where(np.isfinite(sizes.memory_limit), sizes.memory_limit, 0.0)[counted & known].sum()
            ),
            curve_late_s=curves.get(name, np.zeros(len(CURVE))),
        )
    return sums


def _curves(
    made: dict[str, Sizes], counted: Flags, early: Told, rehearsal: Rehearsal, replay: Rehearsal
) -> dict[str, Floats]:
    """Return CPU work late on the second half at each point of the curve, s, float64[len(CURVE)], by name.

    krr's and the VPA's requests are multiplied until they reserve as much CPU as the point says. twinbed's
    are shared out anew.
    """
    running = np.where(counted, early.running, 0.0)
    cost = {name: float(np.nansum(made[name].cpu_request * running)) for name in CURVES}
    if not cost[KRR] > 0:
        return {}
    levels, late_s = cpu.late_work(early.usage, rehearsal.highest, rehearsal.late())
    replayed = replay.late()
    curves = {}
    for name in CURVES:
        points = []
        for share in CURVE:
            total = share * cost[KRR]
            quota = made[name].cpu_request * (total / cost[name])
            if name == REQUESTS_ONLY:
                quota = levels[0].copy()
                quota[counted] = cpu.least_late(
                    levels[:, counted], late_s[:, counted], running[counted], total
                )
            points.append(float(replayed(np.where(counted, quota, np.inf))[counted].sum()))
        curves[name] = np.array(points)
    return curves
