"""A real controller and real agents over loopback, as a backend of the contract.

Containers that are present at the same times share an agent: it is started when they join and ended when they
leave. The messages to agents and to the controller's allocator fill the same record as the local loop's.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import numpy as np

from control.allocator.model import NOTHING
from testbed.containers.cgroup.group import NOTHING_USED
from testbed.containers.cgroup.polling import Polling
from testbed.containers.host.fleet import Fleet
from testbed.containers.host.life import NS
from testbed.containers.host.observed import LoopTimes, Observed
from testbed.containers.host.records import RunRecord
from testbed.containers.ports import GroupGoneError, Records
from testbed.containers.remote import certificates
from testbed.containers.remote.agent import Agent
from testbed.containers.remote.controller import Controller
from testbed.containers.remote.deployment import Deployment, Placed
from testbed.containers.remote.hosting import Hosting
from testbed.containers.remote.origin import Watcher
from testbed.containers.remote.place import CgroupPlace, sweep
from tests.contract.contract_backends import PERIOD_S, Linux, Ran, in_force_cores, scripts_of
from tests.patience import PATIENCE_S


class LinuxRemote(Linux):
    """Real cgroups under agents that a controller drives over loopback."""

    def __init__(self, driver, folder: Path) -> None:
        super().__init__(driver, folder)
        self.name = f"linux-remote-v{driver.version}"
        certificates.init(folder / "pki")

    def run(self, workload, allocator) -> Ran:
        self._runs += 1
        folder = self._folder / str(self._runs)
        try:
            return asyncio.run(_Run(self._driver, folder, self._folder / "pki", workload, allocator).run())
        finally:
            sweep(self._driver, folder / "agents")


class _Hosting(Hosting):
    """An agent's containers, and the messages about them for the run's record."""

    def __init__(self, place, logs, run: _Run) -> None:
        super().__init__(place, logs)
        self._run = run

    def changed(self, container) -> None:
        container.index = self._run.columns[container.name]
        self._run.fleet.show(container)

    def happened(self, kind, container) -> None:
        self._run.record.note(kind, self._run.columns[container.name], time.monotonic_ns())

    def started(self, container) -> None:
        if container.name not in self._run.joined:
            self._run.joined.add(container.name)
            self.happened("join", container)
            self._run.record.joined(self._run.columns[container.name])

    def gone(self, container, why) -> None:
        if container.name in self.containers:
            self._run.usage(container)
            self.happened("leave", container)
        super().gone(container, why)


class _Told:
    """The allocator, with times and periods counted from the run's beginning."""

    def __init__(self, allocator, run: _Run) -> None:
        self._allocator, self._run = allocator, run

    def __getattr__(self, name: str):
        return getattr(self._allocator, name)

    def on_period(self, stats):
        run, books = self._run, self._run.controller.books
        members, end_ns = books.members, books.latest.end_ns(stats.ids)
        began_ns = run.record.start_ns
        if began_ns is None or (kept := end_ns > began_ns).sum() == 0:
            return NOTHING
        rows = {name: getattr(stats, name)[kept] for name in _ARRAYS}
        columns = np.array([run.columns[members[id_].name] for id_ in rows["ids"].tolist()])
        nothing = np.zeros(len(columns))
        run.record.take(
            Records(end_ns=end_ns[kept], throttled_s=nothing, idle=nothing.astype(bool), **rows), columns
        )
        at_s = (int(end_ns.max()) - began_ns) / NS
        return self._allocator.on_period(type(stats)(**rows, period_s=stats.period_s, at_s=at_s))

    def on_oom(self, event):
        if self._allocator.traps_oom:
            for id_ in event.ids.tolist():
                column = self._run.columns[self._run.controller.books.members[id_].name]
                self._run.record.note("oom", column, time.monotonic_ns())
        return self._allocator.on_oom(event)


_ARRAYS = ("ids", "quota_cores", "unused_cores", "throttled", "usage_cores", "memory_bytes")


class _Run:
    _numbers = itertools.count()

    def __init__(self, driver, folder: Path, pki: Path, workload, allocator) -> None:
        self._driver, self._folder, self._pki, self._workload = driver, folder, pki, workload
        self._scripts = scripts_of(workload, folder)
        self._managed = self._scripts.containers
        self.columns = {name: column for column, name in enumerate(workload.names)}
        self.fleet = Fleet(self._managed, [None] * len(self._managed), float(workload.host_cores.max()))
        self.record = RunRecord(self.fleet, PERIOD_S)
        self.joined: set[str] = set()
        self._hostings: list[_Hosting] = []
        self._sources: list[Polling] = []
        self._used = dict.fromkeys(workload.names, NOTHING_USED)
        self._agent_of = {
            (each.begins_s, each.ends_s): f"contract-{os.getpid()}-{next(self._numbers)}"
            for each in self._managed
        }
        placed = [
            Placed(
                each.spec.name,
                self._agent_of[each.begins_s, each.ends_s],
                each.app,
                each.spec.command,
                peak_cores=each.peak_cores,
                peak_bytes=each.peak_bytes,
            )
            for each in self._managed
        ]
        self.controller = Controller(
            Deployment(tuple(workload.applications), tuple(placed)),
            _Told(allocator, self),
            lambda: certificates.controller_identity(pki),
        )

    def usage(self, container) -> None:
        with suppress(GroupGoneError):
            self._used[container.name] = container.group.read()

    async def run(self) -> Ran:
        async with AsyncExitStack() as tasks:
            port, end_controller = await self._serve(tasks)
            stops = {}
            for times, name in self._agent_of.items():
                if times[0] == 0.0:
                    stops[times] = self._agent(name, port, tasks)
            await self._ready()
            began_s, start_ns = time.time(), self._scripts.start()
            self.record.begin(start_ns)
            before = self._counts()
            changes = sum(hosting.executor.limit_changes for hosting in self._hostings)
            sums = []
            while self._scripts.running():
                await asyncio.sleep(0.01)
                at_s = self.record.at_s(time.monotonic_ns())
                for times, name in self._agent_of.items():
                    if times not in stops and times[0] <= at_s:
                        stops[times] = self._agent(name, port, tasks)
                    if times[1] is not None and times[1] <= at_s:
                        stops[times].set()
                if self.record.advance(time.monotonic_ns()):
                    groups = [one.group for host in self._hostings for one in host.containers.values()]
                    sums.append(sum(filter(np.isfinite, map(in_force_cores, groups))))
            # This happens before the agents end, so that the allocator keeps its state at the end of the time
            # line.
            await end_controller()
            changes = sum(hosting.executor.limit_changes for hosting in self._hostings) - changes
            series, after, reports = self.record.series(), self._counts(), self.record.reports
        used = [np.array(after[name]) - np.array(before[name]) for name in self.columns]
        none = np.zeros(0)
        lost = sum(source.lost for source in self._sources)
        observed = Observed(
            tuple(self.columns),
            self.fleet.app,
            PERIOD_S,
            began_s,
            series,
            self.record.events,
            changes,
            done_s=np.array([each[0] / NS for each in used]),
            nr_periods=np.array([each[2] for each in used]),
            nr_throttled=np.array([each[3] for each in used]),
            reports=reports,
            decide_s=0.0,
            times=LoopTimes(none, none, none, 0.0, 0, lost),
            telemetry="polling",
            facts={},
            exit_codes=(None,) * len(self.columns),
        )
        return Ran(observed, sums)

    async def _serve(self, tasks: AsyncExitStack) -> tuple[int, Callable[[], Awaitable[None]]]:
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        task = asyncio.create_task(self.controller.run("127.0.0.1:0", stop, ready.set_result))
        tasks.push_async_callback(_end, stop, task)
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        return ready.result(), lambda: _end(stop, task)

    def _agent(self, name: str, port: int, tasks: AsyncExitStack) -> asyncio.Event:
        place = CgroupPlace(name, self._driver, self._folder / "agents")
        hosting = _Hosting(place, self._folder / "logs", self)
        self._hostings.append(hosting)
        self._sources.append(Polling(PERIOD_S))
        agent = Agent(
            f"127.0.0.1:{port}",
            certificates.enroll(self._pki, name),
            hosting,
            lambda: self._sources[-1],
            Watcher(place.root),
            host_cores=self.fleet.host_cores,
        )
        stop = asyncio.Event()
        tasks.push_async_callback(_end, stop, asyncio.create_task(agent.run(stop)))
        return stop

    async def _ready(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        early = [each for each in self._managed if each.begins_s == 0.0]
        while not all(each.ready() for each in early):
            assert time.monotonic() < deadline, "containers are not ready; see their logs"
            await asyncio.sleep(0.02)

    def _counts(self) -> dict:
        for hosting in self._hostings:
            for container in hosting.containers.values():
                self.usage(container)
        return dict(self._used)


async def _end(stop: asyncio.Event, task: asyncio.Task) -> None:
    stop.set()
    await task
