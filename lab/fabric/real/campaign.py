"""Breaks a real fabric again and again, and measures each fault until everything is as before.

For: filling the store with a setting's faults, or with a time without faults. Not for: the choice of settings
(plan.py), the fabric (bench.py), several fabrics at once (studies/fidelity_fabric), or the meaning of the
figures (lab.fabric.validate.judge).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lab.fabric.real.bench import NEVER_S, POLL_S, Bench, bench, until
from lab.fabric.real.chain import chain
from lab.fabric.real.plan import Planned
from lab.fabric.real.settings import AFTER_S, GROUPS_GONE_S, STEADY_S, Setting, What
from lab.fabric.real.store import MeasuredFault, Store, Watched
from lab.fabric.validate.judge import RATE_PER_S
from testbed.containers.machine import CpuTimes, cpu_times
from testbed.fabric import faults, ownership, probe, sentinel
from testbed.fabric.witness import Seen

_DENSE_S = 0.05
"""Time before a fault in which thinned flows send at full rate, s."""
THIN_SLACK_S = 2 * (probe.THINNED - 1) / RATE_PER_S
"""Largest difference by which a gap of a thinned flow may look longer than that of a full one, s."""

Progress = Callable[[str], None]


def measure(planned: Planned, store: Store, name: str, until_s: float, say: Progress) -> int:
    """Add faults until the store has the planned number, or until until_s (time.monotonic), and return the
    number in the store.

    Raises BackendError if the fabric does not recover from a fault.
    """
    setting, have = planned.setting, len(store.faults(planned.setting))
    if have >= planned.faults or time.monotonic() >= until_s:
        return have
    with bench(setting, name, hurried=planned.hurried) as running:
        while have < planned.faults and time.monotonic() < until_s:
            row = fault(running, setting, have)
            store.add(setting, row)
            have += 1
            say(told(setting, have, row))
    return have


def watch(setting: Setting, lasts_s: float, store: Store, name: str) -> Watched:
    """Wait for lasts_s seconds without a fault, and count the sessions that went down."""
    with bench(setting, name, probing=False) as running:
        row = watched(running, lasts_s)
    store.add(setting, row)
    return row


def told(setting: Setting, number: int, row: MeasuredFault) -> str:
    """Return a fault's progress line: the gaps of the flows that the host sent and received."""
    return f"{setting.key} {number}: out {row.out_s * 1e3:.0f} ms, in {row.in_s * 1e3:.0f} ms"


def watched(running: Bench, lasts_s: float) -> Watched:
    """Return the observations of a running fabric in lasts_s seconds without a fault."""
    running.new_downs()
    marks = [path.stat().st_size for path in running.journals]
    began_ns, cpu, fabrics = time.monotonic_ns(), cpu_times(), len(ownership.fabrics())
    time.sleep(lasts_s)
    stalls = [stall for stall in sentinel.read(running.stalls) if stall.begin_ns >= began_ns]
    return Watched(
        _now(),
        (time.monotonic_ns() - began_ns) / 1e9,
        sum(len(host.uplinks) for host in running.fabric.hosts),
        sum(running.new_downs().values()),
        _turned_away(_decisions(running, marks)),
        sentinel.lengths_s(stalls),
        fabrics,
        _used(cpu, cpu_times()),
    )


def fault(running: Bench, setting: Setting, number: int) -> MeasuredFault:
    """Break one link and repair it. The four links of the fabric take turns.

    A lost carrier costs flows little and at any time, so flows are thinned until the next fault only for
    silent faults.
    """
    fabric, cpu, began_s = running.fabric, cpu_times(), time.monotonic()
    host, uplink = number % 2, number // 2 % 2
    broken = setting.fault(host, uplink)
    detection_s = setting.timers.detection_s
    thinned = setting.what is not What.CARRIER
    running.probes.dense()
    # The fault falls at a random moment of BFD's interval.
    time.sleep(_DENSE_S + random.uniform(0.0, setting.timers.interval_s))
    before = running.witness.take()
    rules = running.rule_changes()
    marks = [path.stat().st_size for path in running.journals]
    injected = faults.inject(fabric, broken)
    until(lambda: running.reach.without(host, uplink), detection_s + 2.0, "routes still use the dead link")
    time.sleep(AFTER_S + setting.strands_groups * GROUPS_GONE_S)
    if thinned:
        running.probes.thin()
    cleared_ns = faults.clear(fabric, broken)
    until(running.reach.whole, NEVER_S, "routes do not come back")
    back_s = (time.monotonic_ns() - cleared_ns) / 1e9
    _await_steady(running, host, STEADY_S[not thinned])
    running.probes.thin()
    end_ns = time.monotonic_ns()
    downs, dead = running.new_downs(), (host, fabric.hosts[host].uplinks[uplink].gateway)
    noted = [stall for stall in sentinel.read(running.stalls) if stall.end_ns > began_s * 1e9]
    stalls = [
        (min(stall.end_ns, end_ns) - max(stall.begin_ns, injected.at_ns)) / 1e9
        for stall in noted
        if stall.end_ns > injected.at_ns and stall.begin_ns < injected.at_ns + round(detection_s * 2e9)
    ]
    files = running.probes.files if host == 0 else running.probes.files[::-1]
    sides = [worst(path, injected.at_ns, THIN_SLACK_S if thinned else 0.0) for path in files]
    seen: list[Seen] = [*before, *running.witness.take()]
    return MeasuredFault(
        date=_now(),
        host=host,
        uplink=uplink,
        inject_s=(injected.at_ns - injected.asked_ns) / 1e9,
        out_s=sides[0].own_s,
        in_s=sides[1].own_s,
        out_flows=sides[0].flows,
        in_flows=sides[1].flows,
        out_later_s=sides[0].later_s,
        in_later_s=sides[1].later_s,
        stall_s=max(stalls, default=0.0),
        back_s=back_s,
        chain=chain(fabric, broken, setting, injected, seen, _decisions(running, marks)),
        rules=running.rule_changes() - rules,
        fabrics=len(ownership.fabrics()),
        cpu=_used(cpu, cpu_times()),
        lasted_s=time.monotonic() - began_s,
        downs=sum(count for session, count in downs.items() if session != dead),
        stalls_s=[length_s for length_s in sentinel.of_all_s(noted) if length_s >= sentinel.FLOOR_S],
    )


@dataclass(frozen=True, slots=True)
class _Side:
    own_s: float
    flows: int
    later_s: float


def worst(path: Path, at_ns: int, slack_s: float) -> _Side:
    """Return, for the flows of one direction, the longest gap that the fault began and the longest later gap.
    A later gap may look longer by slack_s than it was."""
    gaps = [gap for gap in probe.gaps(path) if gap.end_ns > at_ns]
    own = [gap for gap in gaps if gap.begin_ns <= at_ns + 20_000_000]
    later = [gap.length_s - slack_s for gap in gaps if gap not in own]
    worst_s = max((gap.length_s for gap in own), default=0.0)
    return _Side(worst_s, len({gap.flow for gap in own}), max(later, default=0.0))


def _await_steady(running: Bench, host: int, wanted_s: float) -> None:
    """Wait until everything has been back for the wanted time. host: the host whose link was dead."""
    steady_s = 0.0
    while steady_s < wanted_s:
        until(lambda: running.down_now(host) == 0, NEVER_S, "BFD does not come back")
        until(running.reach.whole, NEVER_S, "routes do not come back")
        began_s = time.monotonic()
        while running.reach.whole() and steady_s < wanted_s:
            time.sleep(POLL_S * 2)
            steady_s = time.monotonic() - began_s


def _decisions(running: Bench, marks: list[int]) -> list[dict[str, object]]:
    """Return the rows that the fast paths wrote after these positions of their journals."""
    return [
        json.loads(line)
        for path, mark in zip(running.journals, marks, strict=True)
        for line in path.read_bytes()[mark:].splitlines()
        if line.endswith(b"}")
    ]


def _turned_away(rows: list[dict[str, object]]) -> int:
    """Return how often fast paths gave up an uplink: the reports that are not repetitions."""
    last: dict[object, object] = {}
    count = 0
    for row in rows:
        if row["what"] == "tell":
            count += last.get(row["host"]) != row["why"] and row["why"] in ("silent", "told_down")
            last[row["host"]] = row["why"]
    return count


def _used(before: CpuTimes, after: CpuTimes) -> float:
    """Return the share of the CPUs' time that was not idle. Time taken by the hypervisor counts as used."""
    idle_s = after.idle_s + after.iowait_s - before.idle_s - before.iowait_s
    wall_s = sum(after) - sum(before)
    return 1.0 - idle_s / wall_s if wall_s > 0 else 0.0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
