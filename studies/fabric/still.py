"""Counts sessions of a large real fabric that go down without a fault, with our own data plane.

For: `python -m studies detection --only still`. Not for: faults (detection.py), nor data planes without FRR
(data_planes.py). Many sessions at once give many session-hours in a few minutes, but they share the machine,
so one stall may bring many of them down.
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

HEADING = "## 5×50 ms with our data plane: many sessions and no fault"
TIMERS = BfdTimers(0.05, 5)
PLAN = Plan(name="detect-still", hosts=12, tors=8, bfd=TIMERS, real_time=True, bfd_plane=True)
_ONCE_NS = 1_000_000_000
"""Least time for which a session stays down, ns: before Up, its packets are a second apart."""


def section(lasts_s: float, say: Callable[[str], None]) -> list[str]:
    """Return heading, table and a note after lasts_s seconds without a fault."""
    say(f"raising {PLAN.hosts} hosts at {PLAN.tors} ToRs")
    with tempfile.TemporaryDirectory(prefix="twinbed-") as folder:
        stalls = Path(folder) / "stalls.txt"
        fabric = up(PLAN)
        try:
            with sentinel.sentinel(stalls, STALL_FLOOR_S):
                began_ns = time.monotonic_ns()
                time.sleep(lasts_s)
                hours = (time.monotonic_ns() - began_ns) / 3.6e12 * PLAN.hosts * PLAN.tors
                causes, freezes = _counted(fabric, began_ns, stalls)
        finally:
            leftovers.remove(PLAN.name)
    count, longest_s = causes.total(), max((one.end_ns - one.begin_ns for one in freezes), default=0) / 1e9
    header = ("sessions", "session-hours", "down", "at most per hour (95 %)", "causes")
    why = ", ".join(f"{number} {text}" for text, number in causes.items()) or "–"
    row = (PLAN.hosts * PLAN.tors, dash(hours, ".1f"), count, dash(bound_per_h(count, hours), ".2f"), why)
    note = (
        f"{PLAN.hosts} hosts at {PLAN.tors} ToRs with bgpd and zebra, {lasts_s / 60:.0f} minutes. Their "
        f"data planes stood still {len(freezes)} times for 5 ms or more, for at most {longest_s * 1e3:.0f} "
        "ms. All sessions share this machine, so a stall meets all of them."
    )
    say(f"{count} down in {hours:.1f} session-hours")
    return [HEADING, table(header, [row]), note]


def _sessions(fabric: Fabric) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the session (host, uplink) that a router's namespace and its peer's address mean."""
    ends = {}
    for host in fabric.hosts:
        for number, uplink in enumerate(host.uplinks):
            ends[host.namespace, uplink.gateway] = host.index, number
            ends[fabric.tors[uplink.tor].namespace, uplink.address] = host.index, number
    return ends


def _counted(fabric: Fabric, since_ns: int, stalls: Path) -> tuple[Counter[str], list[Freeze]]:
    """Return how often sessions went down since then, by cause, and all freezes of data planes."""
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
    return Counter(cause(seen, at_ns, TIMERS.detection_s) for at_ns in once(downs)), freezes


def once(downs: Iterable[tuple[tuple[int, int], Down]]) -> list[int]:
    """Return the times at which sessions went down, ns. A down that both ends write counts once."""
    last: dict[tuple[int, int], int] = {}
    times = []
    for session, down in sorted(downs, key=lambda item: item[1].at_ns):
        if down.at_ns - last.get(session, -_ONCE_NS) >= _ONCE_NS:
            times.append(down.at_ns)
        last[session] = down.at_ns
    return times
