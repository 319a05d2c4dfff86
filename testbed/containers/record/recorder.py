"""Run commands, each in its own cgroup, and record their use.

For: CPU, throttling, memory and network of one or several containers at regular intervals, without leftovers.
Not for: files (lab writes traces), nor limits that change while it runs (host/).
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from testbed.containers import leftovers, machine, network
from testbed.containers.cgroup.drivers import Driver, Group, detect
from testbed.containers.cgroup.meter import oom_kills
from testbed.containers.host.container import Container, ContainerSpec, stop
from testbed.containers.host.identity import Identity
from testbed.containers.host.runtimes import Entering
from testbed.containers.interrupts import Interrupts
from testbed.containers.ownership import new_run
from testbed.containers.record.escapes import Escapes, reaper_of_orphans
from testbed.containers.record.meetings import Meetings
from testbed.containers.record.samples import Samples
from testbed.containers.record.schedule import NS, Schedule
from twinbed import ScenarioError, __version__
from twinbed.text import counted

__all__ = ["DEFAULT_INTERVAL_S", "ContainerSpec", "NetworkMode", "Progress", "Recording", "record"]

LOOK_EVERY_S = 5.0
"""Time between checks for processes that left their cgroup, s. A check takes 1 ms with 100 processes."""

Floats = NDArray[np.float64]
NetworkMode = Literal["host", "own"]

DEFAULT_INTERVAL_S = 0.1
"""Time between samples, s: the CFS bandwidth period, which the twin and the allocators use too."""

MIN_INTERVAL_S = 0.01
"""Shortest interval, s. Below it the kernel's own accounting (a tick, 4 ms at HZ = 250) shows in every
interval."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a recording or run. elapsed_s: time since its start, s. samples: number of samples taken.
    missed: number of ticks missed. running: number of commands that run."""

    elapsed_s: float
    samples: int
    missed: int
    running: int


@dataclass(frozen=True, slots=True)
class Recording:
    """T intervals × N containers. The fields up to `notes` are those of traces.schema.UsageTrace.

    start_s: Unix time at the first interval's start, s.
    rx_bytes, tx_bytes: None if containers have no networks of their own.
    exit_codes: each command's exit code, negative for a signal; None: it still ran and was stopped.
    missed_ticks: number of ticks without a sample.
    sampling_cores: CPU that the recorder itself used, cores.
    """

    containers: tuple[str, ...]
    apps: tuple[str, ...]
    start_s: float
    interval_s: float
    cpu_cores: Floats
    memory_bytes: Floats
    present: NDArray[np.bool_]
    rx_bytes: Floats | None
    tx_bytes: Floats | None
    throttled_s: Floats
    metadata: dict[str, str]
    notes: tuple[str, ...]
    exit_codes: tuple[int | None, ...]
    missed_ticks: int
    sampling_cores: float


@dataclass(frozen=True, slots=True)
class _Sampled:
    """Result of the sampling loop: samples, schedule, start (Unix time, s), CPU use, cores, and the number of
    each container's processes that the OOM killer ended."""

    samples: Samples
    schedule: Schedule
    began: float
    sampling_cores: float
    oom_kills: tuple[int, ...]


def record(
    specs: Sequence[ContainerSpec],
    *,
    app: str,
    interval_s: float = DEFAULT_INTERVAL_S,
    duration_s: float | None = None,
    network_mode: NetworkMode = "host",
    logs: Path | None = None,
    stdout: int | None = None,
    on_tick: Callable[[Progress], None] | None = None,
    driver: Driver | None = None,
    identity: Identity | None = None,
    meetings: Collection[str] = (),
) -> Recording:
    """Run the commands until all have ended or `duration_s` is over; return their use.

    app: application of commands that name none.
    interval_s: time between samples, s.
    duration_s: longest duration, s; None: until all commands have ended.
    logs: folder for each command's output (NAME.log); None: output passes through.
    stdout: descriptor that gets standard output without `logs`.
    on_tick: function called after each sample.
    driver: None: this machine's driver.
    identity: owner of the commands and their logs; None: this process's user, with all rights.
    meetings: containers between which to look for connections, at each sample until all have one. The
        metadata then have connected_s.NAME, the time of a container's first one since the start, s.

    When a command ends, the processes that it left are ended, too. Commands that run when `duration_s` is
    over get SIGTERM, then SIGKILL. Processes that left their cgroup are ended at the end. Commands find each
    other by TWINBED_ADDRESS (their own) and TWINBED_ADDRESS_<NAME>.

    Raises ScenarioError for a command that cannot be executed, BackendError where the machine refuses. On
    these errors, and on KeyboardInterrupt (also after SIGTERM), all started commands are ended and all
    created objects are removed. Leftovers of recorders that died before that are removed first.
    """
    _check(specs, interval_s, duration_s)
    driver = driver or detect()
    leftovers.sweep(driver)
    with Interrupts() as interrupts, ExitStack() as undo:
        containers = _prepare(specs, driver, network_mode, identity, undo)
        escapes = _watched(containers, undo)
        undo.callback(lambda: stop(containers, lambda: interrupts.hurry))
        undo.callback(interrupts.shield)
        met = Meetings({each.spec.name: each.group for each in containers if each.spec.name in meetings})
        measured = _measure(containers, escapes, met, interval_s, duration_s, logs, stdout, on_tick)
    recording = _recording(containers, measured, app, interval_s, network_mode, driver.version, escapes.count)
    recording.metadata.update({f"connected_s.{name}": f"{at_s:g}" for name, at_s in met.met_s.items()})
    return recording


def _check(specs: Sequence[ContainerSpec], interval_s: float, duration_s: float | None) -> None:
    if not specs:
        raise ScenarioError("nothing to record: no command is given")
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise ScenarioError(f"container {name!r} is given twice")
    if not interval_s >= MIN_INTERVAL_S:
        raise ScenarioError(f"interval of {interval_s:g} s: expected at least {MIN_INTERVAL_S:g} s")
    if duration_s is not None and not duration_s > 0:
        raise ScenarioError(f"duration of {duration_s:g} s: expected more than 0")


def _prepare(
    specs: Sequence[ContainerSpec],
    driver: Driver,
    network_mode: NetworkMode,
    identity: Identity | None,
    undo: ExitStack,
) -> list[Container]:
    """Make cgroups, limits and networks before the first command starts. `undo` removes them."""
    run = new_run()
    undo.callback(driver.finish, run)
    groups: list[Group] = []
    for spec in specs:
        group = driver.create(run, spec.name)
        undo.callback(group.remove)
        groups.append(group)
        if spec.cpu_quota_cores is not None:
            group.set_cpu_quota(spec.cpu_quota_cores)
        if spec.memory_limit_bytes is not None:
            group.set_memory_limit(spec.memory_limit_bytes)
    endpoints: Sequence[network.Endpoint | None] = [None] * len(specs)
    if network_mode == "own":
        networks = network.Network(run, [spec.name for spec in specs])
        # Namespaces can be removed once their processes have ended, which the groups' removal ensures.
        undo.callback(networks.remove)
        endpoints = networks.endpoints
    return [
        (Entering if spec.runtime == "oci" else Container)(spec, group, endpoint, identity)
        for spec, group, endpoint in zip(specs, groups, endpoints, strict=True)
    ]


def _watched(containers: Sequence[Container], undo: ExitStack) -> Escapes:
    """Return the watch over processes that leave their cgroups. `undo` ends them, and waits for orphans."""
    undo.enter_context(reaper_of_orphans())
    escapes = Escapes(
        [container.group for container in containers],
        # runc stays outside, and its children cannot leave.
        lambda: _pids(container for container in containers if container.spec.runtime == "oci"),
    )
    undo.callback(lambda: escapes.reap(_pids(containers)))
    undo.callback(escapes.end)
    return escapes


def _pids(containers: Iterable[Container]) -> set[int]:
    return {container.process.pid for container in containers if container.process is not None}


def _measure(
    containers: Sequence[Container],
    escapes: Escapes,
    met: Meetings,
    interval_s: float,
    duration_s: float | None,
    logs: Path | None,
    stdout: int | None,
    on_tick: Callable[[Progress], None] | None,
) -> _Sampled:
    samples = Samples(len(containers))
    last_tick = None if duration_s is None else max(1, ceil(duration_s / interval_s - 1e-9))
    began, cpu_began = time.time(), time.process_time()
    schedule = Schedule(interval_s)
    look_at_s = LOOK_EVERY_S
    _sample(containers, samples, schedule.tick)
    for container in containers:
        container.start(containers, logs, stdout)
    while any(container.running for container in containers) and (
        last_tick is None or schedule.tick < last_tick
    ):
        _sample(containers, samples, schedule.wait())
        met.look(schedule.tick * interval_s)
        if schedule.tick * interval_s >= look_at_s:
            escapes.look()
            escapes.reap(_pids(containers))
            look_at_s = schedule.tick * interval_s + LOOK_EVERY_S
        if on_tick is not None:
            running = sum(container.running for container in containers)
            on_tick(Progress(schedule.tick * interval_s, len(samples) - 1, schedule.missed, running))
    escapes.look()
    elapsed_s = (time.monotonic_ns() - schedule.start_ns) / NS
    cpu_cores = (time.process_time() - cpu_began) / elapsed_s
    kills = tuple(oom_kills(container.group.directories) for container in containers)
    return _Sampled(samples, schedule, began, cpu_cores, kills)


def _sample(containers: Sequence[Container], samples: Samples, tick: int) -> None:
    """Read all containers; a container whose command has ended is read for the last time."""
    for index, container in enumerate(containers):
        if container.exit_code is not None:
            continue
        code = container.poll()
        at_ns = time.monotonic_ns()
        usage, traffic = container.read()
        counters = (
            usage.cpu_ns,
            usage.throttled_ns,
            usage.memory_bytes,
            traffic.rx_bytes,
            traffic.tx_bytes,
        )
        if code is None:
            samples.put(index, at_ns, *counters)
        else:
            samples.put_last(index, tick, *counters)
            container.note_end(code)
    samples.keep(tick)


def _recording(
    containers: Sequence[Container],
    measured: _Sampled,
    app: str,
    interval_s: float,
    network_mode: NetworkMode,
    cgroup_version: int,
    escaped: int,
) -> Recording:
    schedule = measured.schedule
    intervals = measured.samples.intervals(schedule.start_ns, interval_s)
    counted = network_mode == "own"
    facts = {
        "twinbed_version": __version__,
        "recorded_at": datetime.fromtimestamp(measured.began, UTC).isoformat(timespec="seconds"),
        **machine.facts(),
        "cgroup_version": str(cgroup_version),
        "interval_s": f"{interval_s:g}",
        "missed_ticks": str(schedule.missed),
        "sampling_cores": f"{measured.sampling_cores:.4f}",
        "network": network_mode,
    }
    if escaped:
        facts["escaped_processes"] = str(escaped)
    for container in containers:
        facts |= _facts(container)
    return Recording(
        containers=tuple(container.spec.name for container in containers),
        apps=tuple(container.spec.app or app for container in containers),
        start_s=round(measured.began, 3),
        interval_s=interval_s,
        cpu_cores=intervals.cpu_cores,
        memory_bytes=intervals.memory_bytes,
        present=intervals.present,
        rx_bytes=intervals.rx_bytes if counted else None,
        tx_bytes=intervals.tx_bytes if counted else None,
        throttled_s=intervals.throttled_s,
        metadata=facts,
        notes=_notes(containers, schedule, escaped, measured.oom_kills),
        exit_codes=tuple(container.exit_code for container in containers),
        missed_ticks=schedule.missed,
        sampling_cores=measured.sampling_cores,
    )


def _facts(container: Container) -> dict[str, str]:
    """Return facts about one container for the trace, under keys that end in its name."""
    spec, usage = container.spec, container.usage
    stated = {
        "command": shlex.join(spec.command),
        "exit_code": "stopped" if container.exit_code is None else container.exit_code,
        "cpu_quota_cores": spec.cpu_quota_cores,
        "memory_limit_bytes": spec.memory_limit_bytes,
        "nr_periods": usage.nr_periods or None,
        "nr_throttled": usage.nr_throttled if usage.nr_periods else None,
    }
    return {f"{key}.{spec.name}": str(value) for key, value in stated.items() if value is not None}


def _notes(
    containers: Sequence[Container], schedule: Schedule, escaped: int, kills: Sequence[int]
) -> tuple[str, ...]:
    notes = []
    if escaped:
        notes.append(
            f"{counted(escaped, 'process', 'processes')} left the container's cgroup: use outside it is "
            "not recorded. All were ended with the recording."
        )
    if schedule.missed:
        notes.append(
            f"{schedule.missed} of {schedule.tick} ticks were missed while the machine was busy; what was "
            "used around them is spread evenly over the intervals that they separate."
        )
    notes += [
        f"{counted(container.outlived, 'process', 'processes')} of {container.spec.name} outlived its "
        "command and had to be ended."
        for container in containers
        if container.outlived
    ]
    notes += [
        f"The kernel killed {counted(number, 'process', 'processes')} of {container.spec.name} for want of "
        "memory: the trace is not of a whole run. Give it a larger memory_limit_bytes."
        for container, number in zip(containers, kills, strict=True)
        if number
    ]
    return tuple(notes)
