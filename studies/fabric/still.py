"""Counts sessions of a large real fabric that go down without a fault, with our own data plane.

For: `python -m studies detection --only still-TIMERS`. Not for: faults (detection.py), nor data planes
without FRR (data_planes.py). Many sessions at once give many session-hours in a few minutes, but they share
the machine, so one stall may bring many of them down.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from control.fabric import BfdTimers
from studies.fabric.causes import STALL_FLOOR_S, bound_per_h, cause
from studies.harness import dash, table
from testbed.fabric import leftovers, sentinel
from testbed.fabric.bfd_plane import processes
from testbed.fabric.bfd_plane.processes import Down, Freeze
from testbed.fabric.model import Fabric, Plan
from testbed.fabric.up import up

MOST_PER_H = {"3x10": 1.0, "3x20": 0.2, "5x50": 0.15}
"""Aims by timers: false downs per session-hour. The aim of 5x50 is the 95 % bound after no false down in 20
session-hours."""
_ONCE_NS = 1_000_000_000
"""Least time for which a session stays down, ns. Before Up, its packets are a second apart."""


def heading(timers: str) -> str:
    """Return the heading of the section of some timers, e.g. 3x10."""
    return f"## {timers.replace('x', '×')} ms with our data plane: many sessions and no fault"


def section(timers: str, lasts_s: float, say: Callable[[str], None]) -> list[str]:
    """Return heading, table and a note after lasts_s seconds without a fault."""
    multiplier, interval_ms = map(int, timers.split("x"))
    bfd = BfdTimers(interval_ms / 1e3, multiplier)
    plan = Plan(name="detect-still", hosts=12, tors=8, bfd=bfd, real_time=True, bfd_plane=True)
    sessions = plan.hosts * plan.tors
    say(f"{timers}: raising {plan.hosts} hosts at {plan.tors} ToRs")
    with tempfile.TemporaryDirectory(prefix="twinbed-") as folder:
        stalls = Path(folder) / "stalls.txt"
        fabric = up(plan)
        try:
            with sentinel.sentinel(stalls, STALL_FLOOR_S):
                began_ns = time.monotonic_ns()
                time.sleep(lasts_s)
                hours = (time.monotonic_ns() - began_ns) / 3.6e12 * sessions
                causes, freezes = _counted(fabric, began_ns, stalls, bfd.detection_s)
        finally:
            leftovers.remove(plan.name)
    count, longest_s = causes.total(), max((one.end_ns - one.begin_ns for one in freezes), default=0) / 1e9
    header = ("sessions", "session-hours", "down", "per hour", "at most (95 %)", "causes")
    why = ", ".join(f"{number} {text}" for text, number in causes.items()) or "–"
    rates = (dash(count / hours, ".2f"), dash(bound := bound_per_h(count, hours), ".2f"))
    reached = "reached" if bound <= MOST_PER_H[timers] else "missed"
    note = (
        f"Aim: at most {MOST_PER_H[timers]:g} an hour, {reached}. {plan.hosts} hosts at {plan.tors} ToRs "
        f"with bgpd and zebra, {lasts_s / 60:.0f} minutes. Their data planes stood still {len(freezes)} "
        f"times for 5 ms or more, for at most {longest_s * 1e3:.0f} ms. All sessions share this machine, so "
        "a stall meets all of them."
    )
    say(f"{timers}: {count} down in {hours:.1f} session-hours")
    return [heading(timers), table(header, [(sessions, dash(hours, ".1f"), count, *rates, why)]), note]


def _sessions(fabric: Fabric) -> dict[tuple[str, str], tuple[int, int]]:
    """Return a function that gives the session (host, uplink) of a router's namespace and its peer's
    address."""
    ends = {}
    for host in fabric.hosts:
        for number, uplink in enumerate(host.uplinks):
            ends[host.namespace, uplink.gateway] = host.index, number
            ends[fabric.tors[uplink.tor].namespace, uplink.address] = host.index, number
    return ends


def _counted(
    fabric: Fabric, since_ns: int, stalls: Path, detection_s: float
) -> tuple[Counter[str], list[Freeze]]:
    """Return the number of downs of sessions since since_ns, by cause, and all freezes of data planes."""
    sessions, downs, freezes = _sessions(fabric), [], []
    for router in fabric.routers:
        journal = processes.journal_of(fabric, router)
        downs += [
            (sessions[router.namespace, down.peer], down)
            for down in processes.downs(journal)
            if down.at_ns >= since_ns
        ]
        freezes += [freeze for freeze in processes.freezes(journal) if freeze.begin_ns >= since_ns]
    seen = sentinel.read(stalls)
    return Counter(cause(seen, at_ns, detection_s) for at_ns in once(downs)), freezes


def once(downs: Iterable[tuple[tuple[int, int], Down]]) -> list[int]:
    """Return the times at which sessions went down, ns. A down that both ends write counts once."""
    last: dict[tuple[int, int], int] = {}
    times = []
    for session, down in sorted(downs, key=lambda item: item[1].at_ns):
        if down.at_ns - last.get(session, -_ONCE_NS) >= _ONCE_NS:
            times.append(down.at_ns)
        last[session] = down.at_ns
    return times
