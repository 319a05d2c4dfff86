"""Reclaims under way: who was asked to shrink an application, and what has been answered so far.

For: one answer to the allocator for a question that went to several hosts. Not for: shrinking (hosting.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from control.allocator.model import Shrunk


@dataclass(slots=True)
class Reclaim:
    """One application's: the agents that have not answered, and new limits (bytes) by container."""

    app: int
    awaited: set[str]
    limits: dict[int, int] = field(default_factory=dict)

    def shrunk(self, at_s: float) -> Shrunk:
        """All answers as one report."""
        ids, limits = list(self.limits), list(self.limits.values())
        return Shrunk(np.array([self.app]), np.array(ids, np.int64), np.array(limits, np.int64), at_s)


class Reclaims:
    """Those that wait for answers; requests are numbered from 1."""

    def __init__(self) -> None:
        self._open: dict[int, Reclaim] = {}
        self._numbers = 0

    def ask(self, app: int, agents: set[str]) -> int:
        """A new request's number. With nobody to ask there is nothing to wait for."""
        self._numbers += 1
        if agents:
            self._open[self._numbers] = Reclaim(app, set(agents))
        return self._numbers

    def answer(self, request: int, agent: str, limits: dict[int, int]) -> Reclaim | None:
        """Notes an agent's answer; the reclaim when it was the last. Unknown requests are ignored."""
        reclaim = self._open.get(request)
        if reclaim is None or agent not in reclaim.awaited:
            return None
        reclaim.limits |= limits
        return self._done(request, agent)

    def without(self, agent: str) -> list[Reclaim]:
        """The agent is lost and will not answer; the reclaims that waited for it alone."""
        done = [self._done(number, agent) for number in list(self._open)]
        return [reclaim for reclaim in done if reclaim is not None]

    def _done(self, request: int, agent: str) -> Reclaim | None:
        self._open[request].awaited.discard(agent)
        return None if self._open[request].awaited else self._open.pop(request)
