"""The histories on which allocators are checked: steps in which containers join, leave, work and run short.

For: `twinbed policies check` and the tests of every allocator that ships. Not for: the promises that are
checked (lab.check.driven_fleet).
"""

from __future__ import annotations

import numpy as np

from control.allocator.model import Application, ServiceStats
from control.allocator.ports import ServiceAware, SpanAware
from control.paths import Spans
from lab.check.driven_fleet import DrivenFleet

_MIB = 1 << 20
APPLICATIONS = [Application("a", 3.0, 2 << 30), Application("b", 40.0, 300 * _MIB)]
"""Two applications: one is short of CPUs, the other of memory."""
STEPS = ["run", "run", "groups", "serve", "oom", "join", "leave"]
"""Steps of a history to draw from; a repeated step is more likely."""


def take(fleet: DrivenFleet, step: str, random: np.random.Generator, ghosts: list[int]) -> None:
    """Take one step with a random part of the containers.

    ghosts: ids of containers that left but still report. Raises BrokenPromiseError.
    """
    some = [container for container in fleet.ids if random.random() < 0.6]
    seen = some + ghosts
    reads_spans = isinstance(fleet.allocator, SpanAware)
    if step == "run":
        for _ in range(5):
            fleet.period({id_: (random.gamma(0.5, 3.0), int(random.gamma(0.5, 2e8))) for id_ in seen})
    elif step == "groups":
        fleet.staggered({id_: (random.gamma(0.5, 3.0), _MIB) for id_ in seen}, 3)
    elif step == "serve" and isinstance(fleet.allocator, ServiceAware):
        spans = _spans(seen, random) if reads_spans else None
        stats = ServiceStats(random.gamma(1, 50, 2), random.gamma(1, 0.1, 2), 60.0, spans)
        fleet.carry_out(fleet.allocator.on_service(stats))
    elif step == "oom":
        fleet.oom(seen)
    elif step == "join":
        apps = random.integers(0, 2, 2).tolist()
        fleet.join(apps, drawn_peaks(2, random) if fleet.peaks else None)
    elif step == "leave":
        ghosts += some[:2]
        fleet.leave(some[:2])


def _spans(owners: list[int], random: np.random.Generator) -> Spans:
    """Return spans of requests that each called one container through another one."""
    ends = np.array([owners[-1], owners[0]] if owners else [], np.int64)
    request, owner = np.repeat(np.arange(40), len(ends)), np.tile(ends, 40)
    late = np.repeat(random.gamma(0.3, 1.0, 40), len(ends))
    inner = np.arange(len(request)) % 2 == 1
    parent = np.where(inner, np.arange(len(request)) - 1, -1)
    return Spans(request, parent, owner, np.where(inner, 1.0, 0.0), late + np.where(inner, 2.0, 3.0), late)


def drawn_peaks(count: int, random: np.random.Generator) -> tuple[list[float], list[int]]:
    """Return profiled peaks of containers: cores, bytes."""
    return random.uniform(0.05, 0.3, count).tolist(), random.integers(_MIB, 20 * _MIB, count).tolist()
