"""The event loop of a local run: periods, traps, ends of commands, joins and leaves, in real time.

For: the times of all actions, on one epoll and one timer, and calling the allocator. Not for: deciding
(control) or carrying out (executor.py). All times are CLOCK_MONOTONIC, so a step of the date changes nothing.
A container or a cgroup that disappears leaves the run, and does not end the loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import (
    NOTHING,
    Application,
    Decision,
    Ids,
    OomEvents,
    PeriodStats,
    ServiceStats,
    Shrunk,
)
from control.allocator.ports import Allocator, ServiceAware
from testbed.containers.host.executor import HostExecutor
from testbed.containers.host.fleet import Fleet
from testbed.containers.host.hosted import HostedContainer
from testbed.containers.host.life import AWAKE, NEVER_NS, NS, State
from testbed.containers.host.records import RunRecord
from testbed.containers.host.wakeups import Wakeups
from testbed.containers.ports import GroupGoneError, TelemetrySource
from twinbed import BackendError, InvariantError, TwinbedError

STARTUP_TIMEOUT_S = 120.0
"""Time in which containers must become ready, s. Otherwise the run is given up."""

_CHORES_NS = NS


class ControlLoop:
    """Makes one run, and listens to its executor. Call deploy, begin, run and close once, in this order.
    executor: carries decisions out; decide_s: time spent in the allocator's on_period, s."""

    def __init__(
        self,
        fleet: Fleet,
        applications: Sequence[Application],
        allocator: Allocator,
        source: TelemetrySource,
        record: RunRecord,
        logs: Path | None,
    ) -> None:
        self._fleet, self._applications, self._allocator = fleet, applications, allocator
        self._source, self._record = source, record
        self._wakeups = Wakeups()
        self.executor = HostExecutor(self, logs, lasting=False)
        self.executor.containers = {container.name: container for container in fleet.containers}
        self._told = False
        if source.descriptor >= 0:
            self._wakeups.watch(source.descriptor, self._on_source)
        self._held: list[HostedContainer] = []
        managed = list(zip(fleet.containers, fleet.managed, strict=True))
        self._late = [container for container, asked in managed if asked.begins_s > 0]
        self._ending = [(container, asked.ends_s) for container, asked in managed if asked.ends_s is not None]
        self._sweep_ns = self._chores_ns = NEVER_NS
        self.decide_s = 0.0

    # --- a run -----------------------------------------------------------------------------------

    def deploy(self) -> None:
        """Set the first limits, start the commands, and wait until all are ready. Raise BackendError naming
        containers that are not. For containers that must become ready, CPU is limited only after that."""
        # The first call imports numpy.ma, which takes 10 ms. The first held container would have to wait for
        # the import.
        np.unique(np.empty(0))
        first = [
            container
            for container, managed in zip(self._fleet.containers, self._fleet.managed, strict=True)
            if managed.begins_s == 0 and self._fleet.attach(container)
        ]
        decision = self._allocator.start(self._applications, self._fleet.joining(first))
        slow = any(self._fleet.managed[container.index].ready is not None for container in first)
        self._chores_ns = time.monotonic_ns() + _CHORES_NS
        if slow:
            early = Decision(memory=decision.memory, requests=decision.requests)
            self._admit(first, early, decision.cpu.ids)
            self._start_all(first)
            self._await_ready(first)
            self._carry_out(Decision(cpu=decision.cpu, reclaim=decision.reclaim))
            self._settle()
        else:
            self._admit(first, decision, decision.cpu.ids)
            self._settle()
            self._start_all(first)

    def begin(self, start_ns: int) -> None:
        """Begin the time line at `start_ns`."""
        self._record.begin(start_ns)
        self.executor.limit_changes = self.executor.skipped = 0
        self.decide_s = 0.0
        if self._allocator.reclaim is not None:
            self._sweep_ns = start_ns + round(self._allocator.reclaim.interval_s * NS)

    def run(self, until_ns: int | None, on_row: Callable[[], bool]) -> None:
        """Serve until `until_ns`, or until `on_row`, called after each row, returns False, or all commands
        have ended.
        """
        going = self._anyone()
        while going and (until_ns is None or time.monotonic_ns() < until_ns):
            if self._turn(until_ns or NEVER_NS):
                going = on_row() and self._anyone()

    def close(self) -> None:
        """Close the loop's own resources. The containers continue. Idempotent."""
        self._wakeups.close()
        self.executor.close()
        # A container whose limits cannot be restored does not keep the others.
        with ExitStack() as ends:
            for container in self._fleet.containers:
                ends.callback(container.close_pidfd)
                ends.callback(container.unwatch)

    # --- one turn --------------------------------------------------------------------------------

    def _turn(self, until_ns: int) -> bool:
        """Sleep until the next action, and carry it out. Return whether a row of the record has ended."""
        due_ns = self._source.due_ns()
        ready = self._wakeups.sleep(min(due_ns, self._next_ns(), until_ns))
        now_ns = time.monotonic_ns()
        row_ended = self._record.advance(now_ns)
        if row_ended:
            self.executor.look_for_kills()
            self._keep_limits()
        for handler in ready:
            handler()
        if self._held:
            self._serve_held(now_ns)
        if due_ns <= now_ns or self._told:
            self._told = False
            self._telemetry(due_ns, now_ns)
        self._chores(now_ns)
        return row_ended

    def _next_ns(self) -> int:
        """Return the time of the next action besides telemetry, ns."""
        due = [self._sweep_ns, self._chores_ns, self.executor.due_ns]
        if self._record.start_ns is not None:
            due.append(self._record.row_ends_ns())
        return min(due)

    def _chores(self, now_ns: int) -> None:
        """Start, join and remove containers that are due, run the agents' sweep, and do the work of each
        second.
        """
        self.executor.serve(now_ns)
        if (self._late or self._ending) and self._record.start_ns is not None:
            self._keep_time(self._record.at_s(now_ns))
        if now_ns >= self._sweep_ns and self._allocator.reclaim is not None:
            self._sweep_ns = now_ns + round(self._allocator.reclaim.interval_s * NS)
            self._reclaim(np.arange(len(self._applications)))
        if now_ns >= self._chores_ns:
            self._chores_ns = now_ns + _CHORES_NS
            self.executor.try_again()
            self._look_again()

    def _keep_limits(self) -> None:
        """Set limits of attached containers again that another system changed."""
        for container in self._fleet.containers:
            try:
                if container.keep_limits():
                    self.changed(container)
            except GroupGoneError:
                self.gone(container, "its cgroup was removed")
            except BackendError as error:
                self.refused(container, error)

    # --- telemetry -------------------------------------------------------------------------------

    def _on_source(self) -> None:
        self._told = True

    def _telemetry(self, due_ns: int, now_ns: int) -> None:
        records = self._source.collect(now_ns)
        gone = self._source.gone
        if gone.size:
            for container in self.executor.members(gone):
                self.gone(container, "its cgroup was removed")
        began_ns = self._record.start_ns
        if began_ns is None or records.ids.size == 0:
            return
        records, columns = self._fleet.members_only(records, began_ns)
        if records.ids.size == 0:
            return
        last_ns = max(records.end_ns.tolist())
        # Records that come through a descriptor were due when the period ended.
        late_ns = now_ns - (due_ns if due_ns <= now_ns else last_ns)
        self._record.lateness_ns.append(max(late_ns, 0))
        self._record.take(records, columns)
        stats = PeriodStats(
            records.ids,
            records.quota_cores,
            records.unused_cores,
            records.throttled,
            records.usage_cores,
            records.memory_bytes,
            self._record.interval_s,
            (last_ns - began_ns) / NS,
        )
        began = time.perf_counter()
        decision = self._allocator.on_period(stats)
        self.decide_s += time.perf_counter() - began
        self._carry_out(decision)

    def served(self, stats: ServiceStats) -> None:
        """Tell a ServiceAware allocator what clients saw. Spans of containers that left have no owner."""
        assert isinstance(self._allocator, ServiceAware)
        if stats.spans is not None:
            ids = [-1 if container.id is None else container.id for container in self._fleet.containers]
            owner = np.array(ids, np.int64)[stats.spans.owner]
            stats = replace(stats, spans=replace(stats.spans, owner=owner))
        self._carry_out(self._allocator.on_service(stats))

    # --- decisions -------------------------------------------------------------------------------

    def _carry_out(self, decision: Decision, *, answer: bool = False) -> None:
        """Carry out a decision. answer: whether the decision answers held containers, and must raise their
        limits."""
        if decision is NOTHING:
            return
        if answer:
            memory = decision.memory
            for id_, limit in zip(memory.ids.tolist(), memory.limit_bytes.tolist(), strict=True):
                container = self.executor.member(id_)
                if container is not None and container.held and limit <= container.limit_bytes:
                    name = self._allocator.name
                    raise InvariantError(
                        f"{name} answered {container.name}, which is held, and raised nothing"
                    )
        self.executor.carry_out(decision, answer=answer)
        if decision.reclaim.size:
            self._reclaim(decision.reclaim)

    def _out_of_memory(self, containers: Sequence[HostedContainer]) -> None:
        """Call the allocator about containers that are held, or that the kernel has killed."""
        needed = [self.executor.needed_bytes(container) for container in containers]
        event = OomEvents(_ids(containers), np.array(needed, np.int64), self._now_s())
        self._carry_out(self._allocator.on_oom(event), answer=self._allocator.traps_oom)

    def _reclaim(self, apps: NDArray[np.int64]) -> None:
        """Shrink the applications' containers to their memory plus the margin, and report it."""
        rule = self._allocator.reclaim
        if rule is None:
            raise InvariantError(f"{self._allocator.name} asked for a reclaim and has no rule for it")
        lowered = self.executor.shrink(rule.margin_bytes, set(apps.tolist()))
        limits = np.array([container.limit_bytes for container in lowered], np.int64)
        shrunk = Shrunk(apps, _ids(lowered), limits, self._now_s())
        self._carry_out(self._allocator.on_reclaimed(shrunk), answer=True)

    # --- events of the executor (executor.Listener) ----------------------------------------------

    def changed(self, container: HostedContainer) -> None:
        """See Listener."""
        self._fleet.show(container)

    def happened(self, kind: str, container: HostedContainer) -> None:
        """See Listener."""
        self._record.note(kind, container.index, time.monotonic_ns())

    def quota_written(self, container: HostedContainer, reason: int, took_ns: int) -> None:
        """See Listener."""
        self._record.write_ns.append(took_ns)
        self._record.give_reason(container.index, reason)

    def started(self, container: HostedContainer) -> None:
        """See Listener."""
        if container.pidfd >= 0:
            self._wakeups.watch(container.pidfd, partial(self._on_end, container))

    def oom_killed(self, container: HostedContainer) -> None:
        """See Listener. An allocator without traps is called now."""
        if not self._allocator.traps_oom:
            self._out_of_memory([container])

    def gone(self, container: HostedContainer, why: str) -> None:  # noqa: ARG002
        """See Listener. An attached container may join again."""
        if container.id is not None:
            self._leave(container)

    def refused(self, container: HostedContainer, error: TwinbedError) -> None:  # noqa: ARG002
        """See Listener. The error ends the run, because a run under other limits than those decided has no
        result."""
        if isinstance(error, InvariantError):
            raise InvariantError(f"{self._allocator.name} decided what cannot be: {error}") from error
        raise error

    def _on_end(self, container: HostedContainer) -> None:
        self._wakeups.forget(container.pidfd)
        self.executor.see_end(container)

    # --- memory ----------------------------------------------------------------------------------

    def _on_trap(self, container: HostedContainer) -> None:
        if container.state in AWAKE and self.executor.look(container):
            self._held.append(container)

    def _serve_held(self, began_ns: int) -> None:
        """Call the allocator about all containers that were held since the last call, in one event."""
        held = [container for container in self._held if container.held]
        self._held = []
        if not held:
            return
        for container in held:
            self._record.note("oom", container.index, began_ns)
        self._out_of_memory(held)
        took_ns = time.monotonic_ns() - began_ns
        self._record.grant_ns.extend(took_ns for container in held if container.state in AWAKE)

    # --- members ---------------------------------------------------------------------------------

    def _keep_time(self, at_s: float) -> None:
        due = [container for container in self._late if self._fleet.managed[container.index].begins_s <= at_s]
        if due:
            self._late = [container for container in self._late if container not in due]
            self._join([container for container in due if self._fleet.attach(container)])
        for container, ends_s in self._ending:
            if ends_s <= at_s and not container.leaving and container.state is not State.ABSENT:
                container.leaving = True
                if container.attached or container.state is State.DOWN:
                    self._leave(container)
                else:
                    container.kill()

    def _join(self, containers: Sequence[HostedContainer]) -> None:
        if not containers:
            return
        decision = self._allocator.on_join(self._fleet.joining(containers))
        self._admit(containers, decision, decision.cpu.ids)
        self._start(containers)

    def _admit(self, containers: Sequence[HostedContainer], decision: Decision, ids: Ids) -> None:
        """Give newcomers the last ids and limits of the decision, whose other parts also take effect now."""
        count = len(containers)
        new, limited = ids[len(ids) - count :], decision.memory.ids
        if len(ids) < count or not np.array_equal(new, limited[len(limited) - count :]):
            raise InvariantError(f"{self._allocator.name}: newcomers without a CPU and a memory limit")
        self._fleet.add(containers, new)
        for container, id_ in zip(containers, new.tolist(), strict=True):
            self.executor.admit(container, id_)
            if decision.cpu.ids.size == 0:
                container.quota_cores = np.inf
                self._fleet.show(container)
        self._carry_out(decision)
        groups = [container.group for container in containers if container.group is not None]
        for container in containers:
            self.happened("join", container)
            self._record.joined(container.index)
            # If its cgroup was removed meanwhile, the container leaves again here.
            self.executor.arm(container, traps_oom=self._allocator.traps_oom)
            if container.trap is not None:
                self._wakeups.watch(container.trap.descriptor, partial(self._on_trap, container))
        self._source.add(new, groups)

    def _leave(self, container: HostedContainer) -> None:
        """Remove a container: finally, or until its cgroup exists again if it is attached."""
        if container.trap is not None:
            self._wakeups.forget(container.trap.descriptor)
        container.unwatch()
        self.happened("leave", container)
        id_ = self.executor.dismiss(container)
        left = np.array([id_], np.int64)
        self._fleet.remove(int(left[0]))
        self._source.remove(left)
        self._carry_out(self._allocator.on_leave(left))

    def _look_again(self) -> None:
        """Find attached cgroups that exist again, and held containers whose event was missed."""
        back = [
            container
            for container in self._fleet.containers
            if container.attached
            and container.state is State.ABSENT
            and not container.leaving
            and container not in self._late
        ]
        self._join([container for container in back if self._fleet.attach(container)])
        for container in self._fleet.containers:
            self._on_trap(container)
        if self._held:
            self._serve_held(time.monotonic_ns())

    # --- small parts -----------------------------------------------------------------------------

    def _now_s(self) -> float:
        return self._record.at_s(time.monotonic_ns())

    def _anyone(self) -> bool:
        """Return whether a container is there or may still come."""
        return bool(self._late) or any(
            container.state is not State.ABSENT or (container.attached and not container.leaving)
            for container in self._fleet.containers
        )

    def _start(self, containers: Sequence[HostedContainer]) -> None:
        """Start the commands of the containers that are still members. Raises as HostExecutor.start does."""
        for container in containers:
            if container.id is not None:
                self.executor.start(container)

    def _start_all(self, containers: Sequence[HostedContainer]) -> None:
        """Start the containers one after the other. In between, serve the containers that run already."""
        for container in containers:
            self._start([container])
            self._turn(time.monotonic_ns())

    def _await_ready(self, containers: Sequence[HostedContainer]) -> None:
        deadline_ns = time.monotonic_ns() + round(STARTUP_TIMEOUT_S * NS)
        while waiting := [
            container.name for container in containers if container.state not in (State.UP, State.ABSENT)
        ]:
            if time.monotonic_ns() > deadline_ns:
                raise BackendError(
                    f"containers {', '.join(waiting)} are not ready after {STARTUP_TIMEOUT_S:g} s; "
                    "look at their logs"
                )
            self._turn(deadline_ns)

    def _settle(self) -> None:
        """Serve until a whole period has passed in which telemetry can learn its reading times."""
        until_ns = time.monotonic_ns() + round(1.3 * self._record.period_ns)
        while time.monotonic_ns() < until_ns:
            self._turn(until_ns)


def _ids(containers: Sequence[HostedContainer]) -> Ids:
    return np.array([container.id for container in containers], np.int64)
