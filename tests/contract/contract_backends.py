"""The backends of the contract. Each has the same interface: run this workload under this allocator.

The result has the fields that the twin's Outcome and the testbed's Observed share.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from control.allocator.ports import Allocator
from lab.check.behaviour import MACHINE, PERIOD_S, scripts_of
from testbed.containers.cgroup.drivers import Driver
from testbed.containers.host.loop import Settings, control
from testbed.containers.host.observed import Observed
from twin.containers.model import Outcome, Workload

if TYPE_CHECKING:
    from lab.ask.scenario import RunSpec, Scenario
    from lab.containers.input.replay import Replay
    from lab.containers.input.services.prepare import ServicesSource

# The twin, and modules that read scenarios, are imported where they are used: an emulated processor takes
# long to load their libraries, or cannot run all of them.

SLICE = Path("/proc/sys/kernel/sched_cfs_bandwidth_slice_us")


@dataclass
class Ran:
    """A run. outcome: what the backend returned; quota_sums: Σ quotas in force at one instant of each
    period."""

    outcome: Outcome | Observed
    quota_sums: list[float] = field(default_factory=list)

    @property
    def series(self):
        return self.outcome.series

    @property
    def lost(self) -> int:
        """Periods that the backend knows to have merged with others."""
        return self.outcome.times.lost if isinstance(self.outcome, Observed) else 0

    @property
    def lent_cores(self) -> float:
        """CPU, cores, that the kernel's CPUs may keep of a quota, or bring back from the period before.

        It matters where a record shows the pool from which CPUs draw. By polling and in the twin, CPU time
        that was not used counts as unused.
        """
        hooks = isinstance(self.outcome, Observed) and self.outcome.telemetry == "hooks"
        return (os.cpu_count() or 1) * int(SLICE.read_text()) / 1e6 / PERIOD_S if hooks else 0.0

    def events(self, kind: str, container: int | None = None) -> list[tuple[float, int, int]]:
        """Return (time, container, memory limit after the event) for each event of one kind."""
        events = self.outcome.events
        rows = zip(events.at_s, events.container, events.kind, events.limit_bytes, strict=True)
        return [
            (at_s, column, limit)
            for at_s, column, found, limit in rows
            if found == kind and container in (None, column)
        ]


class Backend(Protocol):
    name: str

    def periods(self, periods: int) -> int:
        """Return the number of periods that a run needs, in which a process also has to start and grow."""

    def run(self, workload: Workload, allocator: Allocator) -> Ran: ...

    def serve(self, spec: RunSpec, source: ServicesSource, replay: Replay, allocator: Allocator) -> None:
        """Run a scenario with clients."""


def question(scenario: Scenario, app: dict[str, Any]) -> tuple[RunSpec, ServicesSource, Replay]:
    """Return the only run of a scenario with this application, ready to be carried out."""
    from lab.ask.scenario import expand
    from lab.containers.input.sections import container_scenario, machine_of
    from lab.containers.input.services.application import build_app
    from lab.containers.input.services.prepare import ServicesSource

    (spec,) = expand(scenario)
    asked = container_scenario(scenario)
    source = ServicesSource(build_app(app), asked.services, "", ())
    return spec, source, source.prepare(asked, machine_of(spec), np.random.SeedSequence(5))


class Twin:
    name = "twin"

    def periods(self, periods: int) -> int:
        return periods

    def run(self, workload: Workload, allocator: Allocator) -> Ran:
        from twin.containers.run import simulate

        outcome = simulate(workload, allocator, MACHINE, seed=np.random.SeedSequence(7))
        assert outcome.series is not None
        return Ran(outcome, outcome.series.quota_cores.sum(1, dtype=np.float64).tolist())

    def serve(self, spec, source, replay, allocator) -> None:
        from lab.containers.input.sections import machine_of
        from twin.containers.run import simulate

        simulate(replay.workload, allocator, machine_of(spec), seed=np.random.SeedSequence(7))


class Linux:
    """Real cgroups of either version. folder: for the containers' scripts and logs."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self.name = f"linux-v{driver.version}"
        self._driver, self._folder, self._runs = driver, folder, 0

    def close(self) -> None:
        """Wait for what a run began and did not wait for: nothing here."""

    def periods(self, periods: int) -> int:
        # The cores are read each time, because the machine may have become busy meanwhile.
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", "import hashlib, json, mmap, threading"], check=True)
        return periods + min(round(3 * (time.monotonic() - began) / PERIOD_S), 150)

    def run(self, workload: Workload, allocator: Allocator) -> Ran:
        self._runs += 1
        folder = self._folder / str(self._runs)
        scripts = scripts_of(workload, folder)
        seen = _Quotas(self._driver)
        observed = control(
            scripts.containers,
            workload.applications,
            allocator,
            Settings(
                logs=folder / "logs",
                host_cores=float(workload.host_cores.max()),
                host_memory_bytes=workload.host_memory_bytes,
                report_interval_s=workload.report_interval_s,
            ),
            client=scripts,
            on_tick=lambda progress: seen.look(),
            driver=seen,
        )
        return Ran(observed, seen.sums)

    def serve(self, spec, source, replay, allocator) -> None:
        from lab.containers.real.deployments import deployed

        assert type(self) is Linux, "no clients"
        with deployed(spec, source, replay, allocator, self._folder) as made:
            control(
                made.containers,
                replay.workload.applications,
                allocator,
                Settings(logs=self._folder / "served"),
                client=made.client,
                service_level=made.service_level,
            )


class _Quotas:
    """A driver that keeps the groups it made, so that their quotas can be read between two decisions."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._groups = []
        self.sums: list[float] = []
        self.version = driver.version

    def create(self, run, name):
        self._groups.append(self._driver.create(run, name))
        return self._groups[-1]

    def limit_memory(self, run, limit_bytes):
        self._driver.limit_memory(run, limit_bytes)

    def finish(self, run):
        self._driver.finish(run)

    def sweep(self):
        return self._driver.sweep()

    def look(self) -> None:
        self.sums.append(sum(filter(np.isfinite, map(in_force_cores, self._groups))))


def in_force_cores(group) -> float:
    """Return the quota of a group as the kernel has it now, cores; 0 for a group without processes."""
    if not group.pids():
        return 0.0
    for directory in group.directories:
        if (directory / "cpu.cfs_quota_us").exists():
            quota_us = int((directory / "cpu.cfs_quota_us").read_text())
            return np.inf if quota_us < 0 else quota_us / int((directory / "cpu.cfs_period_us").read_text())
        if (directory / "cpu.max").exists():
            quota, period = (directory / "cpu.max").read_text().split()
            return np.inf if quota == "max" else int(quota) / int(period)
    return 0.0
