"""Runs real containers under an allocator: the testbed's counterpart of the twin's `simulate`.

For: control(), which starts the containers, serves the loop and returns the observations. Not for: the loop
itself (run.py), decisions (control), nor tables (lab).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from control.allocator.model import Application, History, ServiceStats
from control.allocator.ports import Allocator, ServiceAware
from testbed.containers import leftovers, machine
from testbed.containers.cgroup.drivers import NOTHING_USED, QUOTA_PERIOD_US, Driver, Group, Usage, detect
from testbed.containers.cgroup.hooks import HookTelemetry
from testbed.containers.cgroup.polling import Polling
from testbed.containers.host.container import ContainerSpec, stop
from testbed.containers.host.fleet import AttachedSpec, Fleet, Managed
from testbed.containers.host.hosted import HostedContainer
from testbed.containers.host.identity import Identity
from testbed.containers.host.life import NS, State
from testbed.containers.host.observed import LoopTimes, Observed
from testbed.containers.host.priority import urgent
from testbed.containers.host.records import RunRecord
from testbed.containers.host.run import ControlLoop
from testbed.containers.interrupts import Interrupts
from testbed.containers.ownership import new_run
from testbed.containers.ports import Client, GroupGoneError, TelemetrySource
from testbed.containers.record.recorder import Progress
from twinbed import BackendError, ScenarioError, __version__

__all__ = ["AttachedSpec", "Managed", "Progress", "Settings", "control"]

_GRACE_NS = 10_000_000
_PERIOD_S = QUOTA_PERIOD_US / 1e6


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run.

    period_s: CFS period and row of the record, s.
    duration_s: length of the run, s; None: until the client or the commands end.
    telemetry: `auto` is the best kind that this machine has.
    logs: folder for the commands' output; None: the output passes through.
    host_cores: the largest useful quota; None: this machine's cores.
    host_memory_bytes: memory that all containers may hold together; inf: no limit.
    report_interval_s: time between two reports of a container, s; 0: one report at each period's end.
    Otherwise telemetry is by polling.
    identity: user as which the commands run, without capabilities; None: as this process runs.
    """

    period_s: float = _PERIOD_S
    duration_s: float | None = None
    telemetry: Literal["auto", "polling", "hooks"] = "auto"
    logs: Path | None = None
    host_cores: float | None = None
    host_memory_bytes: float = math.inf
    report_interval_s: float = 0.0
    identity: Identity | None = None

    def __post_init__(self) -> None:
        if self.period_s != _PERIOD_S:
            raise ScenarioError(
                f"period of {self.period_s:g} s: containers have CFS periods of {_PERIOD_S:g} s here"
            )
        if self.report_interval_s and self.telemetry == "hooks":
            raise ScenarioError("hooks report when periods end; a report interval needs telemetry by polling")
        if self.duration_s is not None and not self.duration_s > 0:
            raise ScenarioError(f"duration of {self.duration_s:g} s: expected more than 0")


def control(
    containers: Sequence[Managed],
    applications: Sequence[Application],
    allocator: Allocator,
    settings: Settings,
    *,
    client: Client | None = None,
    on_tick: Callable[[Progress], None] | None = None,
    driver: Driver | None = None,
    profile: History | None = None,
    service_level: Callable[[], ServiceStats | None] | None = None,
) -> Observed:
    """Run the containers under the allocator and return the kernel's observations.

    The run ends when settings.duration_s is over, the client has no work left, or all commands have ended.
    Commands that are killed or fail are restarted; a command that exits with 0 leaves. on_tick: function
    called once a period; driver: None = this machine's; profile: use of the containers, in the order given,
    in their profile; service_level: returns what clients saw in an interval that has just ended, with
    containers' places as the owners of spans, or None; it is passed to a ServiceAware allocator. The loop
    runs at real-time priority where that is allowed, and without garbage collection.

    Raises ScenarioError for containers that do not fit and for a command that cannot be executed,
    BackendError where the machine refuses. On these, and on KeyboardInterrupt (SIGTERM is turned into it),
    all started commands are ended and all created objects are removed.
    """
    _check(containers, applications)
    driver = driver or detect()
    leftovers.sweep(driver)
    with Interrupts() as interrupts, ExitStack() as undo:
        groups = _prepare(containers, driver, settings.host_memory_bytes, undo)
        host_cores = settings.host_cores or float(os.cpu_count() or 1)
        fleet = Fleet(containers, groups, host_cores, profile, settings.identity)
        undo.callback(_detach, fleet)
        record = RunRecord(fleet, settings.period_s, settings.report_interval_s)
        source, telemetry = _telemetry(settings)
        undo.callback(source.close)
        undo.callback(lambda: _end(fleet, lambda: interrupts.hurry))
        loop = ControlLoop(fleet, applications, allocator, source, record, settings.logs)
        undo.callback(loop.close)
        undo.callback(interrupts.shield)
        told = service_level if isinstance(allocator, ServiceAware) else None
        with urgent() as scheduling:
            served = _serve(loop, fleet, record, source, settings, client, on_tick, told)
        facts = _facts(driver, allocator, loop, scheduling, told is not None)
        after = [_usage(container) for container in fleet.containers]
    series = record.series()
    recorded_s = series.usage_cores.sum(0, dtype=np.float64) * settings.period_s
    counted = [_since(*each) for each in zip(served.before, after, recorded_s.tolist(), strict=True)]
    done_s, nr_periods, nr_throttled = zip(*counted, strict=True)
    return Observed(
        names=tuple(container.name for container in fleet.containers),
        app=fleet.app,
        period_s=settings.period_s,
        began_s=served.began_s,
        series=series,
        events=record.events,
        limit_changes=loop.executor.limit_changes,
        done_s=np.array(done_s),
        nr_periods=np.array(nr_periods),
        nr_throttled=np.array(nr_throttled),
        reports=record.reports,
        decide_s=loop.decide_s,
        times=LoopTimes(
            np.array(record.lateness_ns) / NS,
            np.array(record.write_ns) / NS,
            np.array(record.grant_ns) / NS,
            served.own_cores,
            loop.executor.skipped,
            served.lost,
        ),
        telemetry=telemetry,
        facts=facts,
        exit_codes=tuple(container.exit_code for container in fleet.containers),
    )


class _Served(NamedTuple):
    """The measured time line of a run.

    before: each container's counters at its start
    began_s: start of the time line, Unix time, s
    own_cores: CPU that the loop used
    lost: records lost since its start
    """

    before: list[Usage]
    began_s: float
    own_cores: float
    lost: int


def _serve(
    loop: ControlLoop,
    fleet: Fleet,
    record: RunRecord,
    source: TelemetrySource,
    settings: Settings,
    client: Client | None,
    on_tick: Callable[[Progress], None] | None,
    service_level: Callable[[], ServiceStats | None] | None,
) -> _Served:
    """Deploy, start the client, and serve until the end."""
    loop.deploy()
    try:
        start_ns = time.monotonic_ns() if client is None else client.start()
        began_s = time.time() + (start_ns - time.monotonic_ns()) / NS
        before = [_usage(container) or NOTHING_USED for container in fleet.containers]
        lost_before = source.lost
        loop.begin(start_ns)
        cpu_ns, at_ns = time.thread_time_ns(), time.monotonic_ns()

        def on_row() -> bool:
            if service_level is not None and (stats := service_level()) is not None:
                loop.served(stats)
            if on_tick is not None:
                elapsed_s = record.at_s(time.monotonic_ns())
                running = sum(container.state is not State.ABSENT for container in fleet.containers)
                on_tick(Progress(elapsed_s, record.rows, source.lost - lost_before, running))
            return client is None or client.running()

        loop.run(None if settings.duration_s is None else start_ns + round(settings.duration_s * NS), on_row)
        # Periods that end within the last row are read a little later.
        loop.run(time.monotonic_ns() + _GRACE_NS, lambda: True)
        own_cores = (time.thread_time_ns() - cpu_ns) / (time.monotonic_ns() - at_ns)
    finally:
        if client is not None:
            client.stop()
    return _Served(before, began_s, own_cores, source.lost - lost_before)


def _check(containers: Sequence[Managed], applications: Sequence[Application]) -> None:
    if not containers:
        raise ScenarioError("nothing to control: no container is given")
    names = [managed.spec.name for managed in containers]
    for managed in containers:
        if names.count(managed.spec.name) > 1:
            raise ScenarioError(f"container {managed.spec.name!r} is given twice")
        if not 0 <= managed.app < len(applications):
            raise ScenarioError(f"container {managed.spec.name}: there is no application {managed.app}")


def _prepare(
    containers: Sequence[Managed], driver: Driver, memory_bytes: float, undo: ExitStack
) -> list[Group | None]:
    """Make a cgroup for each container that is ours, with a limit of memory_bytes on all together; `undo`
    removes them."""
    run = new_run()
    undo.callback(driver.finish, run)
    groups: list[Group | None] = []
    for managed in containers:
        group = None
        if isinstance(managed.spec, ContainerSpec):
            group = driver.create(run, managed.spec.name)
            undo.callback(group.remove)
        groups.append(group)
    if math.isfinite(memory_bytes):
        driver.limit_memory(run, int(memory_bytes))
    return groups


def _telemetry(settings: Settings) -> tuple[TelemetrySource, str]:
    """Return the hooks where this kernel allows them, else polling. Raises BackendError if the user asked for
    hooks and the kernel refuses them."""
    if settings.telemetry != "polling" and not settings.report_interval_s:
        try:
            return HookTelemetry(settings.period_s), "hooks"
        except BackendError:
            if settings.telemetry == "hooks":
                raise
    return Polling(settings.period_s, interval_s=settings.report_interval_s), "polling"


def _detach(fleet: Fleet) -> None:
    """Restore the original limits of attached cgroups."""
    with ExitStack() as ends:
        for container in fleet.containers:
            if container.attached and container.group is not None:
                ends.callback(container.group.remove)


def _end(fleet: Fleet, hurry: Callable[[], bool]) -> None:
    """End the commands after removing their quotas, because a throttled command could not end in order."""
    running = [
        container
        for container in fleet.containers
        if container.command is not None and container.command.running
    ]
    for container in running:
        try:
            if container.group is not None:
                container.group.set_cpu_quota(math.inf)
        except GroupGoneError:
            # The command was moved out before the cgroup was removed, so `stop` would not find it in the
            # cgroup.
            container.kill()
    stop([container.command for container in running if container.command is not None], hurry)


def _usage(container: HostedContainer) -> Usage | None:
    """Return the counters now; None if the cgroup does not exist."""
    if not isinstance(container.group, Group):
        return None
    try:
        return container.group.read()
    except GroupGoneError:
        return None


def _since(before: Usage, after: Usage | None, recorded_s: float) -> tuple[float, int, int]:
    """Return CPU time, s, periods and throttled periods since `before`.

    after: None if the cgroup is gone. Then the CPU time is `recorded_s`, and the periods are not known: 0.
    """
    if after is None:
        return recorded_s, 0, 0
    periods, throttled = after.nr_periods - before.nr_periods, after.nr_throttled - before.nr_throttled
    return (after.cpu_ns - before.cpu_ns) / NS, periods, throttled


def _facts(
    driver: Driver, allocator: Allocator, loop: ControlLoop, scheduling: str, told: bool
) -> dict[str, str]:
    level = "told" if told else "not told"
    return {
        "twinbed_version": __version__,
        **machine.facts(),
        "cgroup_version": str(driver.version),
        "loop_scheduling": scheduling,
        "containers_without_oom_trap": str(loop.executor.untrapped),
        "restarts_s": " ".join(f"{restart_s:.3f}" for restart_s in loop.executor.restarts_s),
        "service_level": level if isinstance(allocator, ServiceAware) else "not wanted",
    }
