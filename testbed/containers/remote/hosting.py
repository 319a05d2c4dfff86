"""The containers of an agent on its host: made, adopted or attached, and driven by the controller's orders.

For: the set of containers, and turning orders into decisions for the host's executor. Not for: carrying
decisions out (host/executor.py), nor timing and reports (agent.py). Nothing here ends a container because a
controller is absent.
"""

from __future__ import annotations

import logging
import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from control.allocator.model import CpuLimits, CpuRequests, Decision, MemoryLimits
from testbed.containers.attach.audit import Audit
from testbed.containers.cgroup.group import NO_LIMIT_BYTES
from testbed.containers.host.container import TERMINATION_GRACE_S
from testbed.containers.host.executor import HostExecutor, whole_us
from testbed.containers.host.hosted import HostedContainer
from testbed.containers.host.life import NS, RUNNING, State
from testbed.containers.ports import GroupGoneError, HostGroup
from testbed.containers.remote.ledger import LARGE_BYTES, LARGE_CORES
from testbed.containers.remote.messages_pb2 import Joined, Order, Report, Wanted
from testbed.containers.remote.origin import Origin
from testbed.containers.remote.place import CgroupPlace
from testbed.waiting import until
from twinbed import BackendError, TwinbedError

_UNDEPLOYED_GRACE_S = 2.0
"""Time from SIGTERM to SIGKILL for a container that is no longer deployed, s. It is shorter than the time
after which the controller takes an agent for silent (service.SILENCE_S)."""

_log = logging.getLogger("twinbed.agent")


class Hosting:
    """The host's containers, and the listener of their executor.

    logs: folder for the commands' output; None: the output is discarded.
    audit: record of other systems' containers that are attached and detached; None: no record.
    containers: name → container. traps_oom: whether the allocator wants tasks held at their limit.
    on_ids: function called with containers that got ids. on_trap: function called with a container whose trap
    was armed.
    on_killed: function called with a container in which the OOM killer killed a process. on_gone: function
    called with a container that left, and the reason.
    on_quota: function called with the time of each quota write, s.
    events: kind → number of events, including "refused" limits.
    """

    def __init__(self, place: CgroupPlace, logs: Path | None, audit: Audit | None = None) -> None:
        self.executor = HostExecutor(self, logs, lasting=True)
        self.containers = self.executor.containers
        self.traps_oom = False
        self.on_ids: Callable[[Sequence[HostedContainer]], None] = lambda _containers: None
        self.on_gone: Callable[[HostedContainer, str], None] = lambda _container, _why: None
        self.on_killed: Callable[[HostedContainer], None] = lambda _container: None
        self.on_trap: Callable[[HostedContainer], None] = lambda _container: None
        self.on_quota: Callable[[float], None] = lambda _seconds: None
        self.events: Counter[str] = Counter()
        self._origins: dict[str, Origin] = {}
        # Containers to try again, by name, each with the last problem.
        self._missing: dict[str, tuple[Origin, str]] = {}
        # Commands that ended with 0, by name. Another call of the controller does not start them again.
        self._done: dict[str, Origin] = {}
        self._place, self._audit = place, audit
        self._noted = True

    # --- which containers there are --------------------------------------------------------------

    def noted(self) -> list[Origin]:
        """Return the containers that this agent, or the one before it, recorded last."""
        return list(self._place.recall().values())

    def converge(self, wanted: Sequence[Wanted], watched: Iterable[Origin]) -> Joined:
        """Make the host's containers equal to the wanted and watched ones, and return them. Existing ones
        stay unchanged. Containers started here that are no longer wanted are ended, and attached ones get
        their original limits back, even if a former agent started or attached them."""
        origins = {origin.name: origin for origin in (*map(Origin.of, wanted), *watched)}
        undeployed = [
            container
            for name, container in self.containers.items()
            if origins.get(name) != self._origins[name]
        ]
        _let_end(undeployed, _UNDEPLOYED_GRACE_S)
        for container in undeployed:
            self.gone(container, "it is no longer deployed here")
        self._missing.clear()
        self._done = {name: done for name, done in self._done.items() if origins.get(name) == done}
        recalled = self._place.recall()
        for name, former in recalled.items():
            if name not in self.containers and origins.get(name) != former:
                self._leave(former)
        joined = Joined(complete=True)
        for name, origin in origins.items():
            if name not in self.containers and name not in self._done:
                self._take(origin, recalled.get(name), joined)
        self._note()
        self._describe(joined, self.containers.values())
        return joined

    def appeared(self, origin: Origin) -> Joined:
        """Attach a cgroup that a watch found. Returns the container, or the reason for the failure."""
        joined = Joined()
        if self._take(origin, None, joined):
            self._note()
            self._describe(joined, [self.containers[origin.name]])
        return joined

    def vanished(self, name: str) -> None:
        """Remove a container whose cgroup the watch no longer finds."""
        self._missing.pop(name, None)
        if name in self.containers:
            self.gone(self.containers[name], "its cgroup was removed")

    def again(self) -> Joined:
        """Try again to make or attach containers for which this failed, and attached containers whose cgroup
        was removed. Returns the containers that exist now."""
        joined = Joined()
        for origin, _ in list(self._missing.values()):
            self._take(origin, None, Joined())
            if origin.name in self.containers:
                self._describe(joined, [self.containers[origin.name]])
        if joined.containers:
            self._note()
        return joined

    def close(self) -> None:
        """End all containers in good order. Idempotent."""
        _let_end(list(self.containers.values()), TERMINATION_GRACE_S)
        for container in list(self.containers.values()):
            self.gone(container, "the agent ends")
        self._place.finish()
        self.executor.close()

    def _leave(self, former: Origin) -> None:
        """End a former agent's container that is no longer wanted."""
        try:
            self._place.leave(former)
            if not former.command:
                self._tell("detach", former, None, "it is not deployed here any more")
        except TwinbedError as error:
            _log.warning("container %s: %s", former.name, error)

    def _take(self, origin: Origin, recalled: Origin | None, joined: Joined) -> bool:
        """Make, adopt or attach a container. Returns False, with the problem in `joined`, on failure."""
        group = None
        try:
            spec, adopted = origin.spec, False
            if spec is not None:
                group = self._place.adopt(origin.name)
                if group is not None and recalled != origin:
                    # The notes are damaged, so it is not known which command runs in the group.
                    group.remove()
                    group = None
                adopted = group is not None and bool(group.pids())
            if group is None:
                attach, create = self._place.attach, self._place.create
                group = attach(origin.attach) if spec is None else create(origin.name)
            if spec is None:
                self._tell("attach", origin, group, "the controller decides for it from now on")
            self.containers[origin.name] = HostedContainer(origin.name, spec, group, adopted=adopted)
        except TwinbedError as error:
            if self._missing.get(origin.name, (origin, ""))[1] != str(error):
                _log.warning("container %s: %s", origin.name, error)
            self._missing[origin.name] = origin, str(error)
            if group is not None:
                with suppress(TwinbedError):
                    group.remove()
            joined.failed.add(name=origin.name, problem=str(error))
            return False
        self._missing.pop(origin.name, None)
        self._origins[origin.name] = origin
        return True

    def _tell(self, what: str, origin: Origin, group: HostGroup | None, why: str) -> None:
        """Record the attachment in the audit file, with the limits that its end restores."""
        if self._audit is None:
            return
        paths = " ".join(dict.fromkeys(origin.attach.values()))
        said: dict[str, str | float] = {"container": origin.name, "cgroup": paths, "why": why}
        if group is not None:
            said["cpu_limit_cores"] = group.quota_cores if math.isfinite(group.quota_cores) else "none"
            said["memory_limit_bytes"] = group.limit_bytes if group.limit_bytes < NO_LIMIT_BYTES else "none"
        self._audit.note(what, by="agent", **said)

    def _note(self) -> None:
        """Store notes for the next agent. If there is no room for them, the containers run on, and
        `supervise` tries again."""
        try:
            self._place.remember(self._origins.values())
        except BackendError as error:
            if self._noted:
                _log.warning("%s; until then an agent that is killed loses its containers", error)
            self._noted = False
        else:
            self._noted = True

    def _describe(self, joined: Joined, containers: Iterable[HostedContainer]) -> None:
        for container in list(containers):
            assert container.group is not None
            try:
                incarnation = self._place.incarnation(container.group)
            except GroupGoneError as error:
                self.gone(container, str(error))
                continue
            joined.containers.add(
                name=container.name,
                watch=self._origins[container.name].watch,
                incarnation=incarnation,
                running=container.attached or container.state in (*RUNNING, State.ENDING),
                quota_cores=container.group.quota_cores,
                limit_bytes=container.group.limit_bytes,
            )

    # --- orders ----------------------------------------------------------------------------------

    def carry_out(self, order: Order, report: Report) -> None:
        """Carry out the order. Note in `report` the limits in force that are larger than ordered, and the
        containers that left before the controller's ids for them arrived."""
        admitted, requests = [], {}
        for named in order.named:
            container = self.containers.get(named.name)
            if container is None:
                report.left.ids.append(named.id)
                report.left.reason = "it went before it had an id"
                continue
            if named.HasField("request_cores"):
                requests[named.id] = named.request_cores
            if container.id != named.id:
                container.app = named.app
                self.executor.admit(container, named.id)
                admitted.append(container)
        if admitted:
            self.on_ids(admitted)
        for name in order.rejected:
            if name in self.containers:
                self.gone(self.containers[name], "the controller says that it does not fit")
        self.executor.write_requests(
            CpuRequests(np.array(list(requests), np.int64), np.array(list(requests.values()), np.float64))
        )
        # Orders do not say which request they answer, so every raise releases a held container.
        self.executor.carry_out(_decision(order), answer=True)
        for id_, size in zip(order.memory.ids, order.memory.bytes, strict=True):
            container = self.executor.member(id_)
            if container is not None and size < (actual := _limits_in_force(container)[1]) < LARGE_BYTES:
                report.actual_ids.append(id_)
                report.actual_bytes.append(actual)
        for id_, cores in zip(order.cpu.ids, order.cpu.cores, strict=True):
            container = self.executor.member(id_)
            if (
                container is not None
                and whole_us(cores) < (quota := _limits_in_force(container)[0]) < math.inf
            ):
                report.actual_cpu_ids.append(id_)
                report.actual_cores.append(quota)
        for id_ in {*order.cpu.ids, *order.memory.ids}:
            container = self.executor.member(id_)
            if container is not None and container.limited:
                self._begin(container)

    def _begin(self, container: HostedContainer) -> None:
        """Arm the container's trap and start its command, once it has both limits."""
        armed = container.trap is not None
        self.executor.arm(container, traps_oom=self.traps_oom)
        if container.trap is not None and not armed:
            self.on_trap(container)
        if container.state is State.ABSENT and container.id is not None:
            try:
                self.executor.start(container)
            except TwinbedError as error:
                _log.warning("%s", error)
                self.gone(container, str(error))

    def supervise(self, now_s: float) -> None:
        """Restart commands that failed, detect those that ended, look for the OOM killer's victims, and set
        limits again that another system changed."""
        if not self._noted:
            self._note()
        self.executor.look_for_kills()
        for container in list(self.containers.values()):
            try:
                if container.attached and container.group is not None:
                    container.group.charged_bytes()  # raises GroupGoneError once the group is gone
                    self._keep_limits(container)
                else:
                    self._see_end(container)
            except GroupGoneError:
                self.gone(container, "its cgroup was removed")
            except BackendError as error:
                self.refused(container, error)
        self.executor.serve(round(now_s * NS))

    def _keep_limits(self, container: HostedContainer) -> None:
        if container.keep_limits() and (group := container.group) is not None:
            _log.warning(
                "container %s: another system changed its limits; %g cores and %d bytes are set again",
                container.name, group.quota_cores, group.limit_bytes,
            )  # fmt: skip

    def _see_end(self, container: HostedContainer) -> None:
        """Check whether a command has ended. Log one that failed, because nobody asked for its end."""
        ran = container.state in RUNNING
        self.executor.see_end(container)
        if not ran or container.state in RUNNING or container.name not in self.containers:
            return
        code = container.exit_code
        how = "" if code is None else f" with exit code {code}" if code >= 0 else f" by signal {-code}"
        again_s = max(container.starts_ns - time.monotonic_ns(), 0) / NS
        _log.warning(
            "container %s: its command ended%s; it starts again in %.0f s", container.name, how, again_s
        )

    # --- events of the executor (host.executor.Listener) --------------------------------------------

    def changed(self, container: HostedContainer) -> None:
        """See Listener: agents keep no record."""

    def happened(self, kind: str, container: HostedContainer) -> None:
        """See Listener."""
        self.events[kind] += 1
        _log.debug("container %s: %s", container.name, kind)

    def quota_written(self, container: HostedContainer, reason: int, took_ns: int) -> None:
        """See Listener."""
        del container, reason
        self.on_quota(took_ns / NS)

    def started(self, container: HostedContainer) -> None:
        """See Listener: `supervise` looks for ends."""

    def oom_killed(self, container: HostedContainer) -> None:
        """See Listener."""
        self.on_killed(container)

    def gone(self, container: HostedContainer, why: str) -> None:
        """See Listener. Ends a container that was started here, or restores an attached one's limits."""
        if self.containers.pop(container.name, None) is None:
            return
        origin = self._origins.pop(container.name)
        if container.exit_code == 0:
            self._done[origin.name] = origin
        if container.attached and not origin.watch and self._is_removed(container):
            # A service that starts again may have a cgroup at the same place.
            self._missing[origin.name] = origin, ""
        self.on_gone(container, why)
        self.executor.dismiss(container)
        try:
            container.remove()
            if container.attached:
                self._tell("detach", origin, None, why)
        except TwinbedError as error:
            # The other containers must still be decided about or removed.
            _log.warning("container %s: %s", container.name, error)
        self._note()

    def _is_removed(self, container: HostedContainer) -> bool:
        try:
            return container.group is None or not self._place.incarnation(container.group)
        except GroupGoneError:
            return True

    def refused(self, container: HostedContainer, error: TwinbedError) -> None:
        """See Listener. One refused write does not end the other containers."""
        self.events["refused"] += 1
        _log.error("container %s: %s", container.name, error)


def _decision(order: Order) -> Decision:
    """Return the order as a decision. "No limit" is sent as a large number."""
    cpu, memory = order.cpu, order.memory
    cores, sizes = np.array(cpu.cores, np.float64), np.array(memory.bytes, np.int64)
    cores[cores >= LARGE_CORES] = np.inf
    sizes[sizes >= LARGE_BYTES] = NO_LIMIT_BYTES
    return Decision(
        CpuLimits(np.array(cpu.ids, np.int64), cores, np.array(cpu.reasons, np.uint8)),
        MemoryLimits(np.array(memory.ids, np.int64), sizes, np.array(memory.reasons, np.uint8)),
        restart=np.array(order.restart, np.int64),
        kill=np.array(order.kill, np.int64),
    )


def _limits_in_force(container: HostedContainer) -> tuple[float, int]:
    """Return the CPU quota, cores, and the memory limit, bytes. Before the allocator's first limits, these
    are the limits that the other system set."""
    group, quota, size = container.group, container.quota_cores, container.limit_bytes
    assert group is not None
    return quota or group.quota_cores, size or group.limit_bytes


def _let_end(containers: Sequence[HostedContainer], grace_s: float) -> None:
    """Ask their commands to end, and wait until they have or the grace is over."""
    asked = [container for container in containers if not container.attached and not container.held]
    for container in asked:
        container.send(signal.SIGTERM)
    groups = [container.group for container in asked if container.group is not None]
    until(lambda: not any(group.pids() for group in groups), grace_s)
