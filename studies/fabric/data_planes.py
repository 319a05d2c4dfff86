"""Measures the data plane of BFD alone: stops of one end by length, and many sessions.

For: `python -m studies detection`. Not for: roads and faults of a fabric (detection.py). Two data planes in
namespaces of their own, with a listener in bfdd's place; 3×10 ms.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from control.fabric import BfdState, BfdTimers
from studies.harness import table
from testbed.fabric.bfd_plane import processes
from testbed.fabric.bfd_plane.pair import End, pair
from twinbed import BackendError

STOPS_S = (0.005, 0.01, 0.02, 0.04, 0.06)
COUNTS = (8, 32, 128, 512)
TIMERS = BfdTimers(0.01, 3)

_APART_S = 0.25
_UP_WITHIN_S = 20.0
_BURST = 50
"""Number of sessions that are added at once. FRR 8.4 sends at most 58 in one burst."""


@dataclass(slots=True)
class Stopped:
    """Stops of one length.

    stop_s: length of a stop, s.
    stops: number of stops.
    own, peer: how often the stopped end, or its peer, gave the session up.
    """

    stop_s: float
    stops: int = 0
    own: int = 0
    peer: int = 0


def stopped(lasts_s: float, say: Callable[[str], None]) -> list[Stopped]:
    """Stop one end's worker (SIGSTOP) for each length in turns, and count who gave the session up."""
    rows = [Stopped(stop_s) for stop_s in STOPS_S]
    end_s = time.monotonic() + lasts_s
    with pair() as (near, far):
        _raise(near, far, 1)
        while time.monotonic() < end_s:
            for row in rows:
                before = len(processes.downs(near.journal)), len(processes.downs(far.journal))
                near.signal(signal.SIGSTOP)
                time.sleep(row.stop_s)
                near.signal(signal.SIGCONT)
                time.sleep(_APART_S)
                # A down of the stopped end counts as its own only if the peer did not report one first.
                mine = [down for down in processes.downs(near.journal)[before[0] :] if down.diagnostic == 1]
                theirs = [down for down in processes.downs(far.journal)[before[1] :] if down.diagnostic == 1]
                row.stops += 1
                row.own += bool(mine)
                row.peer += bool(theirs)
                _await_up(near, far, 1)
            say(f"stops: {rows[0].stops} of each length")
    return rows


def stops_table(rows: list[Stopped]) -> str:
    """Return the table of stops by length."""
    header = ("stop of one end, ms", "stops", "given up by the stopped end", "by its peer")
    return table(header, [(f"{row.stop_s * 1e3:.0f}", row.stops, row.own, row.peer) for row in rows])


def sessions_table(lasts_s: float, say: Callable[[str], None]) -> str:
    """Return the table of many sessions between two ends: how many go down, and their CPU use."""
    rows = []
    for count in COUNTS:
        with pair(count) as (near, far):
            _raise(near, far, count)
            before_s, downs = _cpu_s(near), _downs(near, far)
            began_s = time.monotonic()
            time.sleep(lasts_s / len(COUNTS))
            took_s = time.monotonic() - began_s
            cores = (_cpu_s(near) - before_s) / took_s
            rows.append((count, f"{took_s:.0f}", _downs(near, far) - downs, f"{cores:.3f}"))
        say(f"{count} sessions: {rows[-1][2]} down, {cores:.3f} cores of one end")
    return table(("sessions", "seconds", "down by themselves", "CPU of one end, cores"), rows)


def _raise(near: End, far: End, count: int) -> None:
    for first in range(0, count, _BURST):
        for number in range(first, min(first + _BURST, count)):
            near.add(far, TIMERS, number)
            far.add(near, TIMERS, number)
    _await_up(near, far, count)


def _await_up(near: End, far: End, count: int) -> None:
    deadline = time.monotonic() + _UP_WITHIN_S
    while near.in_state(BfdState.UP) < count or far.in_state(BfdState.UP) < count:
        if time.monotonic() > deadline:
            raise BackendError(f"detection: {count} sessions are not up after {_UP_WITHIN_S:g} s; busy?")
        time.sleep(0.01)


def _downs(near: End, far: End) -> int:
    """Return how often an end gave a session up because it heard nothing."""
    return sum(down.diagnostic == 1 for one in (near, far) for down in processes.downs(one.journal))


def _cpu_s(one: End) -> float:
    """Return the CPU time of an end's worker, s (proc(5), utime and stime)."""
    worker = processes.worker(one.journal)
    fields = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
