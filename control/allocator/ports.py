"""The port of allocators: their methods, and how a backend uses them.

For: the Protocols of allocators, and the rule by which agents reclaim memory. Not for: policies.

A backend (the twin's SimPy process, the testbed's event loop) calls `start` once. Then it calls the `on_*`
methods as events happen, one at a time, and carries out each `Decision` at once. The allocator never calls
the backend and never reads a clock. It keeps no reference to the arrays it receives, except to ids. An array
of ids that is marked not writeable will not be changed by its owner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import unwrap
from typing import Any, Protocol, runtime_checkable

import numpy as np

from control.allocator.autothrottle_settle import CaptainTable
from control.allocator.escra_memory_settle import MemoryBooks
from control.allocator.escra_settle import Table
from control.allocator.model import (
    NOTHING,
    PAGE_BYTES,
    Application,
    Bytes,
    Decision,
    Flags,
    Floats,
    History,
    Ids,
    Join,
    OomEvents,
    PeriodStats,
    ServiceStats,
    Shrunk,
)

Tables = Table | CaptainTable
"""What the rules of `Tabled` allocators work on."""

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Function → function with the same results, to the bit, that runs faster. Division by zero gives inf or
NaN."""


def inherits(policy: object, method: Callable[..., Any]) -> bool:
    """Return whether a policy's method is this one of a base class, or a wrapper of it (functools.wraps)."""
    return unwrap(getattr(type(policy), method.__name__)) is method


@dataclass(frozen=True, slots=True)
class ReclaimRule:
    """A periodic reclaim that the agents run on the allocator's behalf (`shrink`).

    interval_s: seconds between sweeps. margin_bytes: δ, memory that a container keeps above its usage, bytes.
    """

    interval_s: float
    margin_bytes: int


def shrink(ids: Ids, limit_bytes: Bytes, usage_bytes: Bytes, margin_bytes: int) -> tuple[Ids, Bytes]:
    """Return the containers to shrink and their new limits (bytes, rounded up to whole pages).

    Both backends shrink by this rule: every container with `limit > usage + δ` is shrunk to `usage + δ`
    (Escra, ICDCS 2022). ids, limit_bytes, usage_bytes: int64[n]; margin_bytes: δ ≥ 0. Returns (int64[m],
    int64[m]), m ≤ n. Each new limit is below the old one and at least usage + δ.
    """
    wanted = usage_bytes + margin_bytes
    wanted += -wanted % PAGE_BYTES
    lower = np.flatnonzero(wanted < limit_bytes)
    return ids[lower], wanted[lower]


@dataclass(frozen=True, slots=True)
class Given:
    """Facts that a policy receives before a run, in addition to the applications' limits, if there is a
    profile.

    peaks: whether it receives the containers' profiled peaks (`Join.peak_cores`, `Join.peak_bytes`). profile:
    whether it receives their use over the whole profile (`Join.profile`). history: whether it decides from a
    history of its own, which starts empty unless the policy is a `Learner`. more: other inputs, in words.
    """

    peaks: bool = True
    profile: bool = False
    history: bool = False
    more: str = ""


class Allocator(Protocol):
    """Decides CPU and memory limits for all containers of all applications.

    name: the policy's name in tables. given: facts that it receives before a run. traps_oom: if True,
    containers at their memory limit are held and reported through `on_oom` before any of them is killed; if
    False, the kernel kills at once and `on_oom` reports the kill. reclaim: the agents' periodic sweep, or
    None.
    """

    @property
    def name(self) -> str: ...

    @property
    def given(self) -> Given: ...

    @property
    def traps_oom(self) -> bool: ...

    @property
    def reclaim(self) -> ReclaimRule | None: ...

    def start(self, applications: Sequence[Application], containers: Join) -> Decision:
        """Return the initial limits.

        `cpu.ids` and `memory.ids` are the new ids, in the order of `containers`. Raises ScenarioError when
        the containers cannot fit the applications' limits.
        """
        ...

    def on_join(self, containers: Join) -> Decision:
        """Admit containers that joined.

        The last len(containers.app) entries of `cpu` and of `memory` are the new ids with their limits, in
        the order of `containers`. Entries before them are older containers whose limits were lowered to make
        room; they are carried out first.
        """
        ...

    def on_leave(self, ids: Ids) -> Decision:
        """Forget containers that left.

        Their limits return to their applications' pools. Unknown ids are ignored.
        """
        ...

    def on_period(self, stats: PeriodStats) -> Decision:
        """Take one period's telemetry of any subset of containers. Ids that left are ignored."""
        ...

    def on_oom(self, event: OomEvents) -> Decision:
        """Answer containers that are held (traps_oom), or record containers that the kernel just killed (not
        traps_oom).

        With traps_oom, each id gets exactly one answer: a grant in `memory`, an entry in `kill`, or its
        application in `reclaim`. In the last case `on_reclaimed` answers.
        """
        ...

    def on_reclaimed(self, shrunk: Shrunk) -> Decision:
        """Take the agents' report of limits they lowered. The freed bytes are back in the pools.

        Each waiting container of `shrunk.apps` is answered with a grant or, if the pool is still short, with
        a kill.
        """
        ...


class WithoutReclaim:
    """The methods of `Allocator` that are alike in policies without OOM traps and reclaims."""

    given = Given()
    traps_oom = False
    reclaim: ReclaimRule | None = None

    def on_oom(self, event: OomEvents) -> Decision:  # noqa: ARG002 - the port's signature
        """Decide nothing. The kernel has killed the container, and its limit stays."""
        return NOTHING

    def on_reclaimed(self, shrunk: Shrunk) -> Decision:  # noqa: ARG002 - no reclaim is ever asked for
        """Decide nothing."""
        return NOTHING


@runtime_checkable
class Learner(Protocol):
    """An allocator that can learn from a history of its containers before a run.

    A backend that has a profile calls `learn` once, before `start`. Test for this interface with
    `isinstance`.
    """

    def learn(self, history: History) -> None:
        """Take the earlier use of the containers of the next `start`, in their order."""
        ...


@runtime_checkable
class ServiceAware(Protocol):
    """An allocator that decides by how well its applications serve requests.

    A backend that sees requests calls `on_service` every `service_interval_s` (s, > 0), from the end of the
    first interval on, and carries the decision out at once. A backend that sees no requests never calls it,
    so the allocator must work without it. Test for this interface with `isinstance`.
    """

    @property
    def service_interval_s(self) -> float: ...

    def on_service(self, stats: ServiceStats) -> Decision:
        """Take one interval's service level of all applications, in the order given to `start`."""
        ...


@runtime_checkable
class SpanAware(ServiceAware, Protocol):
    """A `ServiceAware` allocator that decides by where its applications' requests spend time.

    A backend that traces requests passes the spans of those answered in an interval (`ServiceStats.spans`). A
    backend that does not trace passes None, so the allocator must work without spans.
    """

    @property
    def spans_wanted(self) -> int:
        """Number of requests per interval whose spans are enough. A backend may pass more or fewer."""
        ...


@runtime_checkable
class Compilable(Protocol):
    """An allocator whose rules over arrays can be compiled.

    A backend that has a compiler, and time to wait for it, calls `compile` before `start`. The decisions stay
    the same to the bit. Test for this interface with `isinstance`.
    """

    def compile(self, compiler: Compiler) -> None:
        """Let `compiler` compile the rules."""
        ...


@runtime_checkable
class Tabled(Protocol):
    """An allocator whose `on_period` does nothing with most reports except one rule over arrays:
    `escra_settle.settle` for a `Table`, `autothrottle_settle.settle_captains` for a `CaptainTable`.

    A backend may then apply the rule to many reports in a row without calling the allocator in between, and
    likewise the rules of memory. Test for this interface with `isinstance`.
    """

    def table(self, ids: Ids, at_s: Floats, period_s: float) -> tuple[Tables, int] | None:
        """Return what the rule works on, and how many of the coming reports need nothing else; None: call
        `on_period` instead.

        ids: the containers that report. at_s: float64[k], ascending, ends of the periods, s.
        """
        ...

    def memory_books(self) -> MemoryBooks | None:
        """Return the books that `escra_memory_settle.grant` and `credit` update. None: call `on_oom` and
        `on_reclaimed` instead.
        """
        ...

    def close(self, table: Any, reports: int) -> None:
        """Record that the rule was applied to `reports` reports through the table."""
        ...


@runtime_checkable
class Patient(Protocol):
    """An allocator that knows how long it will decide nothing.

    A backend that runs ahead may then report many periods at once.
    """

    def quiet_reports(self, at_s: Floats, period_s: float) -> int:
        """Return the number of coming reports of its members that certainly change nothing, if nothing else
        happens. at_s: float64[k], ascending, ends of the periods, s."""
        ...

    def on_periods(self, ids: Ids, used: History, throttled: Flags, at_s: Floats) -> None:
        """Take reports that change no limit, as calls of `on_period` would. used: one row per report.
        throttled: bool[reports, n].
        """
        ...
