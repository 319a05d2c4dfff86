"""One host's containers as its agent keeps them: prepared, limited, held, shrunk, ended.

For: carrying orders out on cgroups and telling what came of it. Not for: when, or whom it is told (agent.py),
nor for one container's command (hosted.py). Nothing here ends a container because somebody is not there.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np

from control.allocator.ports import shrink
from testbed.containers.host.container import TERMINATION_GRACE_S
from testbed.containers.ports import GroupGoneError
from testbed.containers.remote.hosted import Hosted, HostGroup, Origin
from testbed.containers.remote.messages_pb2 import Joined, Limits, Order, Report, Wanted
from twinbed import BackendError, TwinbedError

_UNDEPLOYED_GRACE_S = 2.0
"""Shorter than what the controller takes for silence."""

_POLL_S = 0.02
_log = logging.getLogger("twinbed.agent")


class Place(Protocol):
    """Where an agent's cgroups are: made for it, found again after a crash, or attached to."""

    def create(self, name: str) -> HostGroup:
        """An empty group for a command. Raises BackendError."""

    def adopt(self, name: str) -> HostGroup | None:
        """The group that an agent of this name made for it and left behind; None where there is none."""

    def attach(self, paths: Mapping[str, str]) -> HostGroup:
        """Somebody else's, by Origin.attach. Raises BackendError, GroupGoneError where it is not there."""

    def incarnation(self, group: HostGroup) -> int:
        """Tells the group from another of the same name."""

    def remember(self, origins: Iterable[Origin]) -> None:
        """Notes what there is, for an agent that has to begin anew."""

    def recall(self) -> dict[str, Origin]:
        """What was noted last, by name."""

    def finish(self) -> None:
        """Everything is removed: forgets what was noted."""


class Hosting:
    """The host's containers by name. logs: folder for their output, None = it is thrown away.

    on_id: called with a container that the controller gave an id; on_trap: with one whose trap is armed;
    on_gone: with one that is no more, and why.
    """

    def __init__(self, place: Place, logs: Path | None) -> None:
        self.containers: dict[str, Hosted] = {}
        self.traps_oom = False
        self.on_id: Callable[[Hosted], None] = lambda _container: None
        self.on_gone: Callable[[Hosted, str], None] = lambda _container, _why: None
        self.on_trap: Callable[[Hosted], None] = lambda _container: None
        self._place = place
        self._logs = logs
        self._by_id: dict[int, Hosted] = {}
        self._noted = True

    # --- which containers there are --------------------------------------------------------------

    def converge(self, wanted: Sequence[Wanted], found: Iterable[Origin]) -> Joined:
        """Makes the host's containers those that are wanted and found by watches, and says which there are.

        What is there already stays as it is; what is no longer wanted and was started here is ended.
        """
        origins = {each.name: Origin.of(each) for each in wanted} | {each.name: each for each in found}
        undeployed = [each for each in self.containers.values() if origins.get(each.name) != each.origin]
        _let_end(undeployed, _UNDEPLOYED_GRACE_S)
        for each in undeployed:
            self.drop(each, "it is not deployed here any more")
        recalled = self._place.recall()
        joined = Joined(complete=True)
        for name, origin in origins.items():
            problem = None if name in self.containers else self._take(origin, recalled.get(name))
            if problem is not None:
                joined.failed.add(name=name, problem=problem)
        for name, former in recalled.items():
            if name not in origins and former.command and (left := self._place.adopt(name)) is not None:
                left.remove()
        self._note()
        self._describe(joined, self.containers.values())
        return joined

    def forget_ids(self) -> list[int]:
        """Another registration, other ids: those that were given so far mean nothing any more."""
        ids = list(self._by_id)
        for each in self._by_id.values():
            each.id = None
        self._by_id.clear()
        return ids

    def appeared(self, origin: Origin) -> Joined:
        """A watch found a cgroup."""
        joined = Joined()
        problem = self._take(origin, None)
        if problem is not None:
            joined.failed.add(name=origin.name, problem=problem)
            return joined
        self._note()
        self._describe(joined, [self.containers[origin.name]])
        return joined

    def drop(self, container: Hosted, why: str) -> None:
        """It leaves: one that was started here is ended, one that was attached gets its limits back."""
        del self.containers[container.name]
        if container.id is not None:
            self._by_id.pop(container.id, None)
        self.on_gone(container, why)
        container.end()
        self._note()

    def close(self) -> None:
        """All leave, in good order."""
        _let_end(list(self.containers.values()), TERMINATION_GRACE_S)
        for each in list(self.containers.values()):
            self.drop(each, "the agent ends")
        self._place.finish()

    def _take(self, origin: Origin, recalled: Origin | None) -> str | None:
        """Prepares or adopts one; what went wrong, in a line."""
        group = None
        try:
            if origin.command:
                group = self._place.adopt(origin.name)
                if group is not None and (recalled is None or recalled != origin):
                    group.remove()
                    group = None
            adopted = group is not None and bool(group.pids())
            if group is None:
                group = (
                    self._place.create(origin.name) if origin.command else self._place.attach(origin.attach)
                )
            self.containers[origin.name] = Hosted(
                origin, group, self._logs, running=adopted or not origin.command
            )
        except TwinbedError as error:
            _log.warning("container %s: %s", origin.name, error)
            if group is not None:
                group.remove()
            return str(error)
        return None

    def _note(self) -> None:
        """Where notes cannot be kept, for want of room, the containers go on, and it is tried again."""
        try:
            self._place.remember(each.origin for each in self.containers.values())
        except BackendError as error:
            if self._noted:
                _log.warning("%s; until then an agent that is killed loses its containers", error)
            self._noted = False
        else:
            self._noted = True

    def _describe(self, joined: Joined, containers: Iterable[Hosted]) -> None:
        for each in containers:
            joined.containers.add(
                name=each.name,
                watch=each.origin.watch,
                incarnation=self._place.incarnation(each.group),
                running=each.running,
                quota_cores=each.group.quota_cores,
                limit_bytes=each.group.limit_bytes,
            )

    # --- orders ----------------------------------------------------------------------------------

    def carry_out(self, order: Order, report: Report) -> None:
        """Does what the order says, decreases before increases; `report` gets what turned out otherwise."""
        for named in order.named:
            container = self.containers.get(named.name)
            if container is not None:
                container.id, container.app = named.id, named.app
                self._by_id[named.id] = container
                self.on_id(container)
        for name in order.rejected:
            if name in self.containers:
                self.drop(self.containers[name], "the controller says that it does not fit")
        # What is killed or restarted goes first: what it holds is no longer held against its new limit.
        for id_ in order.restart:
            self._each(id_, Hosted.restart)
        for id_ in order.kill:
            self._each(id_, Hosted.surrender)
        for id_, cores in sorted(zip(order.cpu.ids, order.cpu.cores, strict=True), key=self._raise_cores):
            self._each(id_, lambda each, cores=cores: each.set_cpu_quota(cores))  # type: ignore[misc]
        self._write_memory(order.memory, report)
        for id_ in {*order.cpu.ids, *order.memory.ids}:
            self._each(id_, self._begin)

    def _raise_cores(self, limit: tuple[int, float]) -> float:
        container = self._by_id.get(limit[0])
        before = 0.0 if container is None else container.group.quota_cores
        return -math.inf if math.isinf(before) else limit[1] - before

    def _write_memory(self, limits: Limits, report: Report) -> None:
        ordered = sorted(zip(limits.ids, limits.bytes, strict=True), key=self._raise_bytes)
        for id_, size in ordered:

            def write(each: Hosted, size: int = size) -> None:
                actual = each.set_memory_limit(size)
                if actual > size:
                    report.actual_ids.append(each.id or 0)
                    report.actual_bytes.append(actual)

            self._each(id_, write)

    def _raise_bytes(self, limit: tuple[int, int]) -> int:
        container = self._by_id.get(limit[0])
        return 0 if container is None else limit[1] - container.group.limit_bytes

    def _begin(self, container: Hosted) -> None:
        """Once it has both limits: its trap is armed, and its command starts."""
        if not container.limited:
            return
        if self.traps_oom and container.trap is None:
            container.arm()
            self.on_trap(container)
        try:
            container.start()
        except TwinbedError as error:
            _log.warning("%s", error)
            self.drop(container, str(error))

    def _each(self, id_: int, action: Callable[[Hosted], None]) -> None:
        """Does it to the container of that id, if it is there; one that is gone is dropped."""
        container = self._by_id.get(id_)
        if container is None:
            return
        try:
            action(container)
        except GroupGoneError:
            self.drop(container, "its cgroup was removed")
        except TwinbedError as error:
            # One refused write is no reason to fail the others; the limit that is in force stays.
            _log.error("container %s: %s", container.name, error)

    # --- by itself -------------------------------------------------------------------------------

    def shrink(self, margin_bytes: int, app: int | None = None) -> list[tuple[int, int]]:
        """Lowers limits to usage + margin_bytes, of one application or all: (id, new limit) of these."""
        known = [
            each
            for each in self.containers.values()
            if each.id is not None and each.limited and not each.held and app in (None, each.app)
        ]
        charged: dict[int, int] = {}
        for each in known:
            with suppress(GroupGoneError):
                charged[each.id or 0] = each.group.charged_bytes()
        ids = np.array(list(charged), np.int64)
        limits = np.array([self._by_id[id_].group.limit_bytes for id_ in charged], np.int64)
        lower, wanted = shrink(ids, limits, np.array(list(charged.values()), np.int64), margin_bytes)
        lowered = []
        for id_, size in zip(lower.tolist(), wanted.tolist(), strict=True):
            before = self._by_id[id_].group.limit_bytes
            with suppress(GroupGoneError):
                actual = self._by_id[id_].set_memory_limit(size)
                if actual < before:
                    lowered.append((id_, actual))
        return lowered

    def supervise(self, now_s: float) -> list[Hosted]:
        """Starts commands again that failed, drops what ended. Returns those that were killed."""
        if not self._noted:
            self._note()
        killed = []
        for container in list(self.containers.values()):
            try:
                ended = container.poll(now_s)
            except GroupGoneError:
                self.drop(container, "its cgroup was removed")
                continue
            except TwinbedError as error:
                self.drop(container, str(error))
                continue
            if ended is not None and ended.final:
                self.drop(container, ended.reason)
            elif ended is not None and ended.killed:
                killed.append(container)
        return killed

    def held(self, container: Hosted) -> bool:
        """Whether its tasks are held at the memory limit now."""
        if container.trap is None:
            return False
        try:
            container.held = container.trap.held()
        except GroupGoneError:
            self.drop(container, "its cgroup was removed")
            return False
        return container.held


def _let_end(containers: Sequence[Hosted], grace_s: float) -> None:
    """Asks their commands to end and waits until they have, or the grace is over."""
    for each in containers:
        each.terminate()
    deadline = time.monotonic() + grace_s
    while any(each.lingers() for each in containers) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
