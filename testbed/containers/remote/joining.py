"""Containers that agents have reported and that are not members yet.

For: checking an agent's report against the deployment. Not for: letting them join, which depends on the
allocator (books.py). If many containers do not fit, they are tried in pieces, so that the controller's loop
can do other work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testbed.containers.remote.deployment import Deployment, Placed, Watch
from testbed.containers.remote.ledger import LARGE_BYTES, LARGE_CORES
from testbed.containers.remote.messages_pb2 import Present
from testbed.containers.remote.refusals import Refusals
from twinbed import ScenarioError

_LONGEST_NAME = 300
"""Longest name of a container, characters. A cgroup's name has at most 255 bytes, and the number of its watch
comes before it."""

TRIED_AT_ONCE, TRY_COSTS = 20_000, 8
"""Number of newcomers tried before the loop may do other work, and cost of one try in newcomers."""


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A container that may join. placed: its place in the deployment, or the watch that found it."""

    agent: str
    app: int
    present: Present
    placed: Placed | Watch

    @property
    def peak_cores(self) -> float | None:
        """Profiled maximum; None: unknown."""
        return self.placed.peak_cores

    @property
    def peak_bytes(self) -> int | None:
        """Profiled maximum; None: unknown."""
        return self.placed.peak_bytes


class Newcomers:
    """The containers that wait to join, in the order in which they came.

    admitting: whether some are still to be tried by `admit`.
    """

    def __init__(self, deployment: Deployment, refusals: Refusals) -> None:
        self._deployment = deployment
        self._refusals = refusals
        self._by_agent: dict[str, dict[str, Newcomer]] = {}
        self.admitting = False
        self._parts: list[list[Newcomer]] = []
        """The parts still to be tried. The next part comes last."""

    def __bool__(self) -> bool:
        return any(self._by_agent.values())

    def note(self, agent: str, present: Present) -> None:
        """Let a container wait, as it was reported last. It is refused and counted if the deployment does not
        have it."""
        watches = self._deployment.watches_of(agent)
        placed = self._deployment.containers_of(agent).get(present.name)
        named = 0 < len(present.name) <= _LONGEST_NAME and present.name.isprintable()
        if named and present.watch and present.watch <= len(watches):
            watch = watches[present.watch - 1]
            newcomer = Newcomer(agent, watch.app, present, watch)
        elif placed is not None and not present.watch:
            newcomer = Newcomer(agent, placed.app, present, placed)
        else:
            self._refusals.add("not deployed", f"container {quoted(present.name)} of agent {agent}")
            return
        self._by_agent.setdefault(agent, {})[present.name] = newcomer

    def forget(self, agent: str) -> None:
        """Drop the containers of an agent, which will report them again."""
        self._by_agent.pop(agent, None)

    def take(self) -> list[Newcomer]:
        """Return the newcomers to try together next, and remove them from the waiting ones. These are all
        newcomers, or the next part of those that did not fit together."""
        part: list[Newcomer] = []
        while self._parts and not part:
            # Some of them may have been forgotten or noted again meanwhile.
            part = [waiting for one in self._parts.pop() if (waiting := self._pop(one)) is not None]
        if not part:
            part = [newcomer for waiting in self._by_agent.values() for newcomer in waiting.values()]
            self._by_agent.clear()
        return part

    def admit(
        self, join: Callable[[list[Newcomer]], None], reject: Callable[[Newcomer, ScenarioError], None]
    ) -> None:
        """Let all `join` together. If that raises ScenarioError, let as many join as possible, and `reject`
        the others.

        A part that does not fit is tried in halves, the first half before the second. One call makes some
        tries. While `admitting` is True, the next call continues.
        """
        tried = 0
        while tried < TRIED_AT_ONCE and (part := self.take()):
            tried += len(part) + TRY_COSTS
            try:
                join(part)
            except ScenarioError as error:
                if half := len(part) // 2:
                    self._parts += [part[half:], part[:half]]
                    for newcomer in part:
                        self._by_agent.setdefault(newcomer.agent, {})[newcomer.present.name] = newcomer
                else:
                    reject(part[0], error)
        self.admitting = bool(self)

    def _pop(self, newcomer: Newcomer) -> Newcomer | None:
        return self._by_agent.get(newcomer.agent, {}).pop(newcomer.present.name, None)


def in_force(present: Present) -> tuple[float, float]:
    """Return a container's CPU limit, cores, and memory limit, bytes. A missing or impossible limit becomes
    LARGE_*."""
    cores, size = present.quota_cores, present.limit_bytes
    return (
        cores if 0 <= cores < LARGE_CORES else LARGE_CORES,
        size if 0 <= size < LARGE_BYTES else LARGE_BYTES,
    )


def quoted(text: str) -> str:
    """Return an agent's text for the log: short, on one line, and in quotation marks."""
    return repr(text[:_LONGEST_NAME])
