"""Faults on a real fabric, one after another, each measured from the break until everything is as before.

For: filling the store with a setting's faults, or with a time without any. Not for: which settings (plan.py),
what stands there (bench.py), several fabrics at once (side_by_side.py), what the figures mean (figures.py).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lab.fabric.real.bench import GROUPS_GONE_S, NEVER_S, POLL_S, Bench, bench, until
from lab.fabric.real.chain import chain
from lab.fabric.real.plan import Planned
from lab.fabric.real.settings import Setting, What
from lab.fabric.real.store import Measured, Store, Watched
from lab.fabric.validate.figures import RATE_PER_S
from testbed.containers.machine import CpuTimes, cpu_times
from testbed.fabric import faults, ownership, probe, sentinel
from testbed.fabric.witness import Seen

_STEADY_S = {True: 0.8, False: 0.55}
"""Everything is back and stays so for as long before the next fault, or that would be a second one: after a
lost carrier (True) BGP comes back before BFD does, and goes once more when BFD says so; a fast path believes
in an uplink again after half a second; and an agent's report may be 0.2 s old."""
_AFTER_S = 0.1
"""After the last route has changed, before the repair: what is lost then belongs to the fault."""
_DENSE_S = 0.05
"""Flows that were thinned are whole for so long before a fault."""
_THIN_SLACK_S = 2 * (probe.THINNED - 1) / RATE_PER_S
"""A gap of a thinned flow may be longer by so much than it were of a whole one."""

Progress = Callable[[str], None]


def measure(planned: Planned, store: Store, name: str, until_s: float, say: Progress) -> int:
    """Adds faults until the store has those planned or it is until_s (time.monotonic). How many it has then.
    Raises BackendError when the fabric does not come back after a fault."""
    setting, have = planned.setting, len(store.faults(planned.setting))
    if have >= planned.faults or time.monotonic() >= until_s:
        return have
    with bench(setting, name, hurried=planned.hurried) as found:
        while have < planned.faults and time.monotonic() < until_s:
            row = fault(found, setting, have)
            store.add(setting, row)
            have += 1
            say(told(setting, have, row))
    return have


def watch(setting: Setting, lasts_s: float, store: Store, name: str) -> Watched:
    """Does nothing for so long, and counts what went down all the same."""
    with bench(setting, name, probing=False) as found:
        row = watched(found, lasts_s)
    store.add(setting, row)
    return row


def told(setting: Setting, number: int, row: Measured) -> str:
    """A line for those who wait."""
    return f"{setting.key} {number}: out {row.out_s * 1e3:.0f} ms, in {row.in_s * 1e3:.0f} ms"


def watched(found: Bench, lasts_s: float) -> Watched:
    """Of a fabric that is up."""
    found.new_downs()
    marks = [path.stat().st_size for path in found.journals]
    began_ns, cpu, fabrics = time.monotonic_ns(), cpu_times(), len(ownership.fabrics())
    time.sleep(lasts_s)
    stalls = [each for each in sentinel.read(found.stalls) if each.begin_ns >= began_ns]
    return Watched(
        _now(),
        (time.monotonic_ns() - began_ns) / 1e9,
        sum(len(host.uplinks) for host in found.fabric.hosts),
        sum(found.new_downs().values()),
        _turned_away(_decisions(found, marks)),
        sentinel.lengths_s(stalls),
        fabrics,
        _used(cpu, cpu_times()),
    )


def fault(found: Bench, setting: Setting, number: int) -> Measured:
    """Breaks one link and mends it; the four of the fabric take turns. A lost carrier costs flows little, at
    any time: only for silent faults are they thinned until the next one."""
    fabric, cpu, began_s = found.fabric, cpu_times(), time.monotonic()
    host, uplink = number % 2, number // 2 % 2
    broken = setting.fault(host, uplink)
    detection_s = setting.timers.detection_s
    thinned = setting.what is not What.CARRIER
    found.probes.dense()
    # Where in BFD's interval it falls is left to chance.
    time.sleep(_DENSE_S + random.uniform(0.0, setting.timers.interval_s))
    before = found.witness.take()
    rules = found.rule_changes()
    marks = [path.stat().st_size for path in found.journals]
    injected = faults.inject(fabric, broken)
    until(lambda: found.reach.without(host, uplink), detection_s + 2.0, "routes still use the dead link")
    time.sleep(_AFTER_S + setting.strands_groups * GROUPS_GONE_S)
    if thinned:
        found.probes.thin()
    cleared_ns = faults.clear(fabric, broken)
    until(found.reach.whole, NEVER_S, "routes do not come back")
    back_s = (time.monotonic_ns() - cleared_ns) / 1e9
    _await_steady(found, host, _STEADY_S[not thinned])
    found.probes.thin()
    end_ns = time.monotonic_ns()
    downs, dead = found.new_downs(), (host, fabric.hosts[host].uplinks[uplink].gateway)
    stalls = [
        (min(each.end_ns, end_ns) - max(each.begin_ns, injected.at_ns)) / 1e9
        for each in sentinel.read(found.stalls)
        if each.end_ns > injected.at_ns and each.begin_ns < injected.at_ns + round(detection_s * 2e9)
    ]
    files = found.probes.files if host == 0 else found.probes.files[::-1]
    sides = [_worst(path, injected.at_ns, _THIN_SLACK_S if thinned else 0.0) for path in files]
    seen: list[Seen] = [*before, *found.witness.take()]
    return Measured(
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
        chain=chain(fabric, broken, setting, injected, seen, _decisions(found, marks)),
        rules=found.rule_changes() - rules,
        fabrics=len(ownership.fabrics()),
        cpu=_used(cpu, cpu_times()),
        lasted_s=time.monotonic() - began_s,
        downs=sum(count for session, count in downs.items() if session != dead),
    )


@dataclass(frozen=True, slots=True)
class _Side:
    own_s: float
    flows: int
    later_s: float


def _worst(path: Path, at_ns: int, slack_s: float) -> _Side:
    """Of the flows of one direction: the longest gap that the fault began, and that began later, which may
    have been seen longer by slack_s than it was."""
    gaps = [each for each in probe.gaps(path) if each.end_ns > at_ns]
    own = [each for each in gaps if each.begin_ns <= at_ns + 20_000_000]
    later = [each.length_s - slack_s for each in gaps if each not in own]
    worst_s = max((each.length_s for each in own), default=0.0)
    return _Side(worst_s, len({each.flow for each in own}), max(later, default=0.0))


def _await_steady(found: Bench, host: int, wanted_s: float) -> None:
    """Returns when all has been back for so long; `host` is the one whose link was dead."""
    steady_s = 0.0
    while steady_s < wanted_s:
        until(lambda: found.down_now(host) == 0, NEVER_S, "BFD does not come back")
        until(found.reach.whole, NEVER_S, "routes do not come back")
        began_s = time.monotonic()
        while found.reach.whole() and steady_s < wanted_s:
            time.sleep(POLL_S * 2)
            steady_s = time.monotonic() - began_s


def _decisions(found: Bench, marks: list[int]) -> list[dict[str, object]]:
    """What fast paths have written behind these places of their journals."""
    return [
        json.loads(line)
        for path, mark in zip(found.journals, marks, strict=True)
        for line in path.read_bytes()[mark:].splitlines()
        if line.endswith(b"}")
    ]


def _turned_away(rows: list[dict[str, object]]) -> int:
    """How often fast paths gave an uplink up: of their reports, those that are not repetitions."""
    last: dict[object, object] = {}
    count = 0
    for row in rows:
        if row["what"] == "tell":
            count += last.get(row["host"]) != row["why"] and row["why"] in ("silent", "told_down")
            last[row["host"]] = row["why"]
    return count


def _used(before: CpuTimes, after: CpuTimes) -> float:
    """Share of the CPUs' time that was not idle; what the hypervisor took is used, too."""
    idle_s = after.idle_s + after.iowait_s - before.idle_s - before.iowait_s
    wall_s = sum(after) - sum(before)
    return 1.0 - idle_s / wall_s if wall_s > 0 else 0.0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
