"""Carries an allocator's decisions out on this machine's containers, and keeps their commands running.

For: the local control loop, which calls it by its timer, and agents, which call it as orders arrive. Only
this module defines the order of limit writes, how a container goes down, and when it restarts. Not for:
telemetry, times, or calling an allocator (run.py, remote/agent.py). Order and meaning are those of
twin/containers/simulation.py, without its delays; docs/decisions/0030 gives the reasons.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from control.allocator.model import (
    NOTHING,
    PAGE_BYTES,
    CpuLimits,
    CpuRequests,
    Decision,
    Ids,
    MemoryLimits,
)
from control.allocator.ports import shrink
from testbed.containers.cgroup.group import MIN_QUOTA_US, QUOTA_PERIOD_US
from testbed.containers.cgroup.meter import AnyOomKills
from testbed.containers.host.hosted import HostedContainer
from testbed.containers.host.life import AWAKE, NEVER_NS, RUNNING, Event, State
from testbed.containers.ports import GroupGoneError
from twinbed import BackendError, InvariantError, TwinbedError

_ROUNDING = 1e-6
"""Share of a µs by which a float quota may differ from the whole µs that was meant."""


class Listener(Protocol):
    """The driver of the executor, which receives its events."""

    def changed(self, container: HostedContainer) -> None:
        """Handle a change of the container's state or of a limit in force."""

    def happened(self, kind: str, container: HostedContainer) -> None:
        """Handle an event of twin.containers.model.EVENT_KINDS, after it took effect."""

    def quota_written(self, container: HostedContainer, reason: int, took_ns: int) -> None:
        """Handle the write of the container's quota, for this control.allocator.model.Reason."""

    def started(self, container: HostedContainer) -> None:
        """Handle the start of the container's command; HostedContainer.pidfd signals its end."""

    def oom_killed(self, container: HostedContainer) -> None:
        """Handle that the kernel's OOM killer ended a process of the container."""

    def gone(self, container: HostedContainer, why: str) -> None:
        """Dismiss the container: its command ended finally, or its cgroup was removed."""

    def refused(self, container: HostedContainer, error: TwinbedError) -> None:
        """Handle a limit that could not be written. The old limit stays in force. May raise the error."""


class HostExecutor:
    """The containers of one machine under one allocator's decisions.

    logs: folder for the commands' output, NAME.log, to which restarts append.
    lasting: whether commands outlive this process.
    containers: by name, including absent ones. due_ns: time of the next call of `serve`, CLOCK_MONOTONIC.
    limit_changes, skipped: number of changed limits, and of quotas not written because they were the same.
    holds: number of times that a container was held at its memory limit.
    untrapped: containers for which the kernel has no trap.
    restarts_s: time from a container's end until it was up again, s, for each restart.
    """

    def __init__(self, listener: Listener, logs: Path | None, *, lasting: bool) -> None:
        self.containers: dict[str, HostedContainer] = {}
        self.limit_changes = self.skipped = self.holds = self.untrapped = 0
        self.restarts_s: list[float] = []
        self.due_ns = NEVER_NS
        self._listener, self._logs, self._lasting = listener, logs, lasting
        self._by_id: dict[int, HostedContainer] = {}
        self._any_kills = AnyOomKills()

    # --- members ---------------------------------------------------------------------------------

    def admit(self, container: HostedContainer, id_: int) -> None:
        """Make a container a member: decisions name it by this id from now on."""
        container.id = id_
        self._by_id[id_] = container

    def forget_ids(self) -> list[int]:
        """Take back the ids of all containers and return them: another controller gives other ids."""
        ids = list(self._by_id)
        for container in self._by_id.values():
            container.id = None
        self._by_id.clear()
        return ids

    def member(self, id_: int) -> HostedContainer | None:
        """Return the container of an id; None if the container left."""
        return self._by_id.get(id_)

    def members(self, ids: Ids) -> list[HostedContainer]:
        """Return the containers of these ids. Ids of containers that left are skipped."""
        return [self._by_id[id_] for id_ in ids.tolist() if id_ in self._by_id]

    def dismiss(self, container: HostedContainer) -> int | None:
        """End a container's membership, not its command. Return its former id."""
        id_, container.id = container.id, None
        if id_ is not None:
            self._by_id.pop(id_, None)
        container.quota_cores, container.limit_bytes, container.wanted_bytes = 0.0, 0, None
        container.request_cores = math.nan
        container.starts_ns = NEVER_NS
        self._move(container, Event.LEAVE)
        return id_

    def arm(self, container: HostedContainer, *, traps_oom: bool) -> None:
        """Watch a container for the OOM killer, with a trap where that is wanted and this kernel has one."""
        try:
            container.watch(traps_oom=traps_oom)
        except GroupGoneError:
            self._vanished(container)
        except BackendError:
            self.untrapped += 1

    def close(self) -> None:
        """Close the executor's open files. The containers stay unchanged. Idempotent."""
        self._any_kills.close()

    # --- decisions -------------------------------------------------------------------------------

    def carry_out(self, decision: Decision, *, answer: bool = False) -> None:
        """Carry out everything in a decision except its reclaim. answer: whether the decision answers held
        containers.

        Containers go down first: their memory then no longer counts against a new limit. Memory comes before
        CPU, because a held task waits for it. Cuts come before raises, the deepest first, so that no sum of
        limits exceeds its pool in between.
        """
        if decision is NOTHING:
            return
        for container in self.members(decision.restart):
            self.take_down(container, "restart")
        for container in self.members(decision.kill):
            self.take_down(container, "kill")
        if decision.requests.ids.size:
            self.write_requests(decision.requests)
        if decision.memory.ids.size:
            self._write_memory(decision.memory, answer=answer)
        if decision.cpu.ids.size:
            self._write_quotas(decision.cpu)

    def write_requests(self, requests: CpuRequests) -> None:
        """Write CPU weights. A weight is no upper bound, so the order does not matter."""
        for id_, cores in zip(requests.ids.tolist(), requests.cores.tolist(), strict=True):
            container = self._by_id.get(id_)
            if container is None or cores == container.request_cores:
                continue
            if not cores >= 0:
                self._refuse(container, f"a request of {cores:g} cores is below zero")
            elif self._try(container.write_request, container, cores):
                self._listener.changed(container)

    def _write_memory(self, limits: MemoryLimits, *, answer: bool) -> None:
        ordered = []
        for id_, limit in zip(limits.ids.tolist(), limits.limit_bytes.tolist(), strict=True):
            container = self._by_id.get(id_)
            if container is not None:
                ordered.append((limit - container.limit_bytes, id_, limit, container))
        for change, _, limit, container in sorted(ordered, key=lambda entry: entry[:2]):
            if limit < 0:
                self._refuse(container, f"a memory limit of {limit} bytes is below zero")
            elif change:
                self.limit_changes += container.limit_bytes != 0
                if self.set_memory(container, limit) and container.held and change > 0:
                    self._move(container, Event.RELEASE)
                    if answer:
                        self._listener.happened("grant", container)

    def set_memory(self, container: HostedContainer, limit_bytes: int) -> bool:
        """Write a memory limit; return whether that was possible. If the kernel cannot shrink the group yet
        (v1), `try_again` repeats the write."""
        if not self._try(container.write_memory, container, limit_bytes):
            return False
        short = container.limit_bytes - limit_bytes >= PAGE_BYTES
        container.wanted_bytes = limit_bytes if short else None
        self._listener.changed(container)
        return True

    def _write_quotas(self, limits: CpuLimits) -> None:
        ordered = []
        for id_, cores, reason in zip(
            limits.ids.tolist(), limits.quota_cores.tolist(), limits.reason.tolist(), strict=True
        ):
            container = self._by_id.get(id_)
            if container is None:
                continue
            if not cores > 0:
                self._refuse(container, f"a quota of {cores:g} cores is not above zero")
                continue
            quota = whole_us(cores)
            if quota == container.quota_cores:
                # A repeated write would refill the group's runtime.
                self.skipped += 1
            else:
                ordered.append((quota - container.quota_cores, id_, quota, reason, container))
        for _, _, quota, reason, container in sorted(ordered, key=lambda entry: entry[:2]):
            changes = container.quota_cores > 0
            began_ns = time.monotonic_ns()
            if self._try(container.write_quota, container, quota):
                took_ns = time.monotonic_ns() - began_ns
                self.limit_changes += changes
                self._listener.changed(container)
                self._listener.quota_written(container, reason, took_ns)

    def _try(self, write: Callable[[Any], None], container: HostedContainer, value: float) -> bool:
        """Write a limit; return whether it is in force. A refused limit does not stop the others."""
        try:
            write(value)
        except GroupGoneError:
            self._vanished(container)
        except BackendError as error:
            self._listener.refused(container, error)
        else:
            return True
        return False

    def _refuse(self, container: HostedContainer, why: str) -> None:
        self._listener.refused(container, InvariantError(f"container {container.name}: {why}"))

    # --- memory ----------------------------------------------------------------------------------

    def look(self, container: HostedContainer) -> bool:
        """Read a container's trap, and return whether its tasks are held now."""
        if container.trap is None:
            return False
        try:
            held = container.trap.held()
        except GroupGoneError:
            self._vanished(container)
            return False
        if held and container.state in AWAKE:
            self.holds += 1
            self._move(container, Event.HOLD)
        elif not held and container.held:
            self._move(container, Event.RELEASE)
        return container.held

    def needed_bytes(self, container: HostedContainer) -> int:
        """Return the additional memory, bytes, that the container needs to continue: its excess over the
        limit, and one page. Without the page, a task that was let in above its limit (v2) would be held again
        at the next page. The kernel does not report how much a held task asks for."""
        excess = 0
        with suppress(GroupGoneError):
            if container.group is not None:
                excess = container.group.charged_bytes() - container.limit_bytes
        return max(excess, 0) + PAGE_BYTES

    def shrink(self, margin_bytes: int, apps: Collection[int] | None = None) -> list[HostedContainer]:
        """Lower limits to the containers' memory plus a margin. Return the lowered containers. apps: indices
        of applications; None: all. Only containers that are up are shrunk. A starting container has not grown
        yet, a container that is down holds no memory, and a held container needs more."""
        charged: dict[int, int] = {}
        for id_, container in list(self._by_id.items()):
            if container.state is not State.UP or (apps is not None and container.app not in apps):
                continue
            if container.group is not None:
                try:
                    charged[id_] = container.group.charged_bytes()
                except GroupGoneError:
                    self._vanished(container)
        limits = np.array([self._by_id[id_].limit_bytes for id_ in charged], np.int64)
        held = np.array(list(charged.values()), np.int64)
        ids, targets = shrink(np.array(list(charged), np.int64), limits, held, margin_bytes)
        lowered = self._lower(zip(self.members(ids), targets.tolist(), strict=True))
        for container in lowered:
            # The next sweep sees the container's memory.
            container.wanted_bytes = None
            self._listener.happened("reclaim", container)
        return lowered

    def try_again(self) -> list[HostedContainer]:
        """Lower memory limits that the kernel could not lower as far as decided; return the containers whose
        limits it lowered."""
        waiting = [(container, container.wanted_bytes) for container in list(self._by_id.values())]
        return self._lower((container, size) for container, size in waiting if size is not None)

    def _lower(self, targets: Iterable[tuple[HostedContainer, int]]) -> list[HostedContainer]:
        lowered = []
        for container, size in targets:
            before = container.limit_bytes
            if self.set_memory(container, size) and container.limit_bytes < before:
                lowered.append(container)
        return lowered

    def look_for_kills(self) -> None:
        """Find containers in which the OOM killer killed a process. All are checked together, and only if the
        killer has acted on this machine at all: reading a hundred files per period takes a twentieth of the
        control loop's CPU."""
        if not self._any_kills.lately():
            return
        for container in list(self.containers.values()):
            try:
                if container.was_oom_killed() and container.state in RUNNING:
                    self._oom_killed(container)
            except GroupGoneError:
                self._vanished(container)

    def _oom_killed(self, container: HostedContainer) -> None:
        """Take the whole container down, as with memory.oom.group. An attached container continues."""
        self._listener.happened("oom", container)
        if container.attached:
            self._listener.happened("kill", container)
        else:
            self.take_down(container, "kill")
        self._listener.oom_killed(container)

    # --- commands --------------------------------------------------------------------------------

    def start(self, container: HostedContainer) -> None:
        """Start a container's command, once. Raises ScenarioError or BackendError if it cannot start."""
        if container.state in (State.ABSENT, State.DOWN):
            now_ns = time.monotonic_ns()
            peers = () if self._lasting else tuple(self.containers.values())
            container.start(peers, self._logs, now_ns, lasting=self._lasting)
            self._changed(container)
            self._listener.started(container)
            self._see_ready(container, now_ns)

    def take_down(self, container: HostedContainer, why: str) -> None:
        """Kill a container ("kill"), or restart it for new limits ("restart"). The executor starts it again.
        For a restart, the container is first told to end. A held container cannot end by itself, so it is
        killed. An attached container is left to the OOM killer, and not restarted. A container that is down
        stays down."""
        if container.state not in RUNNING:
            return
        if why == "kill":
            self._listener.happened("kill", container)
        if container.attached:
            if why == "kill":
                self._surrender(container)
            return
        now_ns = time.monotonic_ns()
        container.life.deliberate = why == "restart"
        if container.life.deliberate and not container.held:
            container.terminate(now_ns)
        else:
            container.kill()
        container.down_ns = now_ns
        self._move(container, Event.END)

    def _surrender(self, container: HostedContainer) -> None:
        """Leave the held tasks of an attached container to the OOM killer."""
        try:
            container.kill()
            # The kernel's kill that this request causes is not counted as a second one.
            container.was_oom_killed()
        except GroupGoneError:
            self._vanished(container)
        except BackendError as error:
            self._listener.refused(container, error)
        else:
            if container.held:
                self._move(container, Event.RELEASE)

    def serve(self, now_ns: int) -> None:
        """Start containers that are due, end those that did not end when told, and check which are ready."""
        if now_ns < self.due_ns:
            return
        for container in list(self.containers.values()):
            if container.kill_ns <= now_ns:
                container.kill()
            if container.starts_ns <= now_ns:
                self._restart(container, now_ns)
            self._see_ready(container, now_ns)
        self.due_ns = min(
            (container.due_ns(now_ns) for container in self.containers.values()), default=NEVER_NS
        )

    def see_end(self, container: HostedContainer) -> None:
        """Check whether a container's command has ended. Plan its next start, or report that there is no next
        start."""
        try:
            if not container.reap():
                return
        except GroupGoneError:
            self._vanished(container)
            return
        now_ns, code = time.monotonic_ns(), container.exit_code
        if container.state is State.ABSENT:
            return
        if container.leaving or (code == 0 and not container.life.deliberate):
            self._listener.gone(container, "its command ended")
            return
        if container.state is not State.ENDING:
            killed = False
            with suppress(GroupGoneError):
                killed = container.was_oom_killed()
            if killed:
                self._oom_killed(container)
            elif code is not None and code < 0:
                self._listener.happened("kill", container)
        container.down_ns = container.down_ns or now_ns
        self._plan_restart(container, now_ns)

    def _plan_restart(self, container: HostedContainer, now_ns: int) -> None:
        container.starts_ns = container.life.next_start_ns(now_ns)
        self._move(container, Event.EXIT)

    def _restart(self, container: HostedContainer, now_ns: int) -> None:
        """Start a container again. If it cannot start now, because a log or a process is missing, try again
        later."""
        self._listener.happened("restart", container)
        try:
            self.start(container)
        except (TwinbedError, OSError) as error:
            self._plan_restart(container, now_ns)
            if isinstance(error, GroupGoneError):
                self._vanished(container)

    def _see_ready(self, container: HostedContainer, now_ns: int) -> None:
        if container.state is State.STARTING and container.is_ready():
            if container.down_ns is not None:
                self.restarts_s.append((now_ns - container.down_ns) / 1e9)
                container.down_ns = None
            self._move(container, Event.READY)

    def _move(self, container: HostedContainer, event: Event) -> None:
        container.life.on(event)
        self._changed(container)

    def _changed(self, container: HostedContainer) -> None:
        self.due_ns = 0
        self._listener.changed(container)

    def _vanished(self, container: HostedContainer) -> None:
        self._listener.gone(container, "its cgroup was removed")


def whole_us(cores: float) -> float:
    """Return `cores` as the kernel will hold it: whole µs per period, at least its minimum; inf is unchanged.
    It is rounded down, because sums of quotas may use a pool to its last nanosecond."""
    if math.isinf(cores):
        return cores
    return max(math.floor(cores * QUOTA_PERIOD_US + _ROUNDING), MIN_QUOTA_US) / QUOTA_PERIOD_US
