"""What an allocator offers, and what a backend promises to do with it.

For: the Protocols of allocators, and the rule by which agents reclaim memory. Not for: policies.

A backend (the twin's SimPy process, the testbed's event loop) calls `start` once. Then it calls the `on_*`
methods as things happen, one at a time, and carries out each `Decision` at once. The allocator never calls
anyone and never looks at a clock. It keeps no reference to arrays it was given, except ids: an array of ids
that is marked not writeable is one that its owner will not change either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from control.allocator.escra_settle import Table
from control.allocator.model import (
    NOTHING,
    PAGE_BYTES,
    Application,
    Bytes,
    Decision,
    Floats,
    History,
    Ids,
    Join,
    OomEvents,
    PeriodStats,
    ServiceStats,
    Shrunk,
)

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Returns a function that does the same, to the bit, in less time. Division by zero gives inf or NaN."""


@dataclass(frozen=True, slots=True)
class ReclaimRule:
    """A periodic reclaim that the agents run on the allocator's behalf (`shrink`).

    interval_s: seconds between sweeps. margin_bytes: δ, what a container keeps above its usage.
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
    """What a policy is given before a run, besides the applications' limits, where there is a profile.

    peaks: the containers' profiled peaks (`Join.peak_cores`, `Join.peak_bytes`). profile: all that they used
    then (`Join.profile`). history: whether it decides from a history of its own, which is empty at first
    unless it is a `Learner`. more: what else, in words.
    """

    peaks: bool = True
    profile: bool = False
    history: bool = False
    more: str = ""


class Allocator(Protocol):
    """Decide CPU and memory limits for all containers of all applications.

    name: the policy's name in tables. given: what it is given before a run. traps_oom: containers at their
    memory limit are held and reported through `on_oom` before anything is killed; if False, the kernel kills
    at once and `on_oom` reports it afterwards. reclaim: the agents' periodic sweep, or None.
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
        """Admit containers that appeared.

        The last len(containers.app) entries of `cpu` and of `memory` are the new ids with their limits, in
        the order given. Entries before them are older containers whose limits were lowered to make room; they
        are carried out first.
        """
        ...

    def on_leave(self, ids: Ids) -> Decision:
        """Forget containers that are gone.

        Their limits return to their applications; unknown ids are ignored.
        """
        ...

    def on_period(self, stats: PeriodStats) -> Decision:
        """Take one period's telemetry of any subset of containers. Ids that left are ignored."""
        ...

    def on_oom(self, event: OomEvents) -> Decision:
        """Answer held containers (traps_oom), or learn of containers that the kernel just killed (not
        traps_oom).

        With traps_oom each id gets exactly one answer: a grant in `memory`, an entry in `kill`, or its
        application in `reclaim`. In the last case the answer follows from `on_reclaimed`.
        """
        ...

    def on_reclaimed(self, shrunk: Shrunk) -> Decision:
        """Take the agents' report of limits they lowered. The freed bytes are back in the pools.

        Each waiting container of `shrunk.apps` is answered with a grant or, if the pool is still short, with
        a kill.
        """
        ...


class WithoutReclaim:
    """The part of `Allocator` that is the same in all policies that neither trap OOMs nor reclaim memory."""

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
    """What an allocator offers besides `Allocator` if its users run it with a history of their containers.

    A backend that has a profile calls `learn` once, before `start`. Ask with `isinstance`.
    """

    def learn(self, history: History) -> None:
        """Take what the containers of the next `start` used before, in their order."""
        ...


@runtime_checkable
class ServiceAware(Protocol):
    """What an allocator offers besides `Allocator` if it wants to know how its applications serve.

    A backend that sees requests calls `on_service` every `service_interval_s` (seconds, > 0), from the end of
    the first interval on, and carries the decision out at once. A backend that sees no requests never does,
    so the allocator must do without. Not every allocator has it: ask with `isinstance`.
    """

    @property
    def service_interval_s(self) -> float: ...

    def on_service(self, stats: ServiceStats) -> Decision:
        """Take one interval's service level of all applications, in the order given to `start`."""
        ...


@runtime_checkable
class SpanAware(ServiceAware, Protocol):
    """What a `ServiceAware` allocator offers if it wants to know where its applications' requests spent time.

    A backend that traces requests tells the spans of those that were answered in an interval
    (`ServiceStats.spans`). One that does not tells none, so the allocator must do without.
    """

    @property
    def spans_wanted(self) -> int:
        """Number of requests of an interval whose spans suffice; a backend may tell more, or fewer."""
        ...


@runtime_checkable
class Compilable(Protocol):
    """What an allocator offers besides `Allocator` if its rules over arrays can be compiled.

    A backend that has a compiler, and time to wait for it, calls `compile` before `start`. What is decided is
    the same to the bit. Not every allocator has it: ask with `isinstance`.
    """

    def compile(self, compiler: Compiler) -> None:
        """Let `compiler` compile the rules."""
        ...


@runtime_checkable
class Tabled(Compilable, Protocol):
    """What a `Compilable` allocator offers if `escra_settle.settle` is all that it does with a report.

    A backend may then apply the rule to many reports in a row without asking in between.
    """

    def table(self, ids: Ids, period_s: float) -> Table | None:
        """Return what the rule works on, for reports of the containers `ids`; None: ask `on_period`."""
        ...

    def close(self, table: Table, reports: int) -> None:
        """Take note that the rule was applied to so many reports by the table."""
        ...


@runtime_checkable
class Patient(Protocol):
    """What an allocator offers besides `Allocator` if it knows how long it will decide nothing.

    A backend that runs ahead may then report many periods at once.
    """

    def quiet_reports(self, at_s: Floats, period_s: float) -> int:
        """Return how many of the coming reports of its members surely change nothing, if nothing else
        happens. at_s: float64[k], ascending, the ends of their periods, s."""
        ...

    def on_periods(self, ids: Ids, used: History, at_s: Floats) -> None:
        """Take reports that change nothing, as `on_period` would one by one. used: one row per report."""
        ...
