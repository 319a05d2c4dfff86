"""What an allocator offers, and what a backend promises to do with it.

A backend (the twin's SimPy process, the testbed's event loop) calls `start` once, then the `on_*`
methods as things happen, one at a time, and carries out each `Decision` at once. The allocator never
calls anyone, never looks at a clock and keeps no reference to arrays it was given, but for ids: an array of
ids that is marked not writeable is one that its owner will not change either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from control.allocator.model import (
    Application,
    Decision,
    Ids,
    Join,
    OomEvents,
    PeriodStats,
    ServiceStats,
    Shrunk,
)


@dataclass(frozen=True, slots=True)
class ReclaimRule:
    """Periodic reclaim that the agents run on the allocator's behalf (`reclaim.shrink`).

    interval_s: seconds between sweeps; margin_bytes: δ, what a container keeps above its usage.
    """

    interval_s: float
    margin_bytes: int


class Allocator(Protocol):
    """Decides CPU and memory limits for all containers of all applications.

    name: the policy's name in tables. traps_oom: containers at their memory limit are held and
    reported through `on_oom` before anything is killed; where it is False the kernel kills at once
    and `on_oom` reports it after the fact. reclaim: the agents' periodic sweep, or None.
    """

    @property
    def name(self) -> str: ...

    @property
    def traps_oom(self) -> bool: ...

    @property
    def reclaim(self) -> ReclaimRule | None: ...

    def start(self, applications: Sequence[Application], containers: Join) -> Decision:
        """Initial limits. `cpu.ids` and `memory.ids` are the new ids, in the order of `containers`.

        Raises ScenarioError when the containers cannot fit the applications' limits.
        """
        ...

    def on_join(self, containers: Join) -> Decision:
        """Containers that appeared. The last len(containers.app) entries of `cpu` and of `memory` are
        the new ids with their limits, in the order given; entries before them are older containers
        whose limits were lowered to make room (carried out first)."""
        ...

    def on_leave(self, ids: Ids) -> Decision:
        """Containers that are gone; their limits return to their applications. Unknown ids are ignored."""
        ...

    def on_period(self, stats: PeriodStats) -> Decision:
        """One period's telemetry, of any subset of containers; ids that left are ignored."""
        ...

    def on_oom(self, event: OomEvents) -> Decision:
        """Held containers (traps_oom), or containers that the kernel just killed (not traps_oom).

        With traps_oom each id gets exactly one answer: a grant in `memory`, an entry in `kill`, or
        its application in `reclaim`, in which case the answer follows from `on_reclaimed`.
        """
        ...

    def on_reclaimed(self, shrunk: Shrunk) -> Decision:
        """The agents lowered these limits; the freed bytes are back in the pools. Answers waiting
        containers of `shrunk.apps` with a grant or, if the pool is still short, with a kill."""
        ...


@runtime_checkable
class ServiceAware(Protocol):
    """What an allocator offers besides `Allocator` if it wants to know how its applications serve.

    A backend that sees requests calls `on_service` every `service_interval_s` (seconds, > 0), from the end
    of the first interval on, and carries the decision out at once; a backend that sees none never does,
    so the allocator must do without. Not every allocator has it: ask with `isinstance`.
    """

    @property
    def service_interval_s(self) -> float: ...

    def on_service(self, stats: ServiceStats) -> Decision:
        """One interval's service level, of all applications in the order given to `start`."""
        ...
