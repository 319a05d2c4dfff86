"""Advice and containers made of plain files, for applying one to the other."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from lab.containers.advise.model import Advice, Made, Outcome, Row, Setting
from lab.containers.apply import matching, plan
from lab.containers.apply.carrying import Applier, Source, Watched
from lab.containers.apply.journal import Journal
from lab.containers.apply.places import Host
from testbed.containers.attach.audit import Audit
from testbed.containers.cgroup.drivers import detect
from tests.testbed.containers.fake_cgroups import FakeTree

MIB = 1 << 20
NOTHING = Outcome(
    throttled_share=None, oom_events=None, restarts=None, late_share=None, cpu_slack_cores=None,
    memory_slack_bytes=None, money_per_day=None,
)  # fmt: skip


def row(name: str, **more: Any) -> Row:
    defaults: dict[str, Any] = {
        "name": name, "members": [], "replicas": 1, "current": Setting(),
        "advised": Setting(cpu_limit_cores=0.5, memory_limit_bytes=64 * MIB), "policy": "krr",
        "verdict": "apply", "reason": "It was as fast with less.", "before": None, "after": NOTHING,
        "peak_cores": 0.4, "peak_bytes": 3e7,
    }  # fmt: skip
    return Row(**(defaults | more))


def advice(*rows: Row) -> Advice:
    made = Made(
        at="2026-01-01T00:00:00Z", by="0", source="trace", sha256="0" * 64, start_s=0.0, duration_s=1.0,
        interval_s=1.0, seeds=[1], candidates=["krr"], risk=0.05, currency="USD",
    )  # fmt: skip
    return Advice(version=1, made=made, rows=list(rows))


class World:
    """A machine of plain files with the cgroups /pods/NAME, and a folder for state."""

    def __init__(self, folder: Path, names: str = "ab", version: int = 1) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.state, self.version = folder, folder / "state", version
        tree = FakeTree(folder)
        self._tree = tree
        if version == 1:
            self.cpu, self.memory = tree.hierarchy("cpu,cpuacct"), tree.hierarchy("memory")
        else:
            self.cpu = self.memory = tree.unified("cpu memory")
        self.proc = tree.proc
        for name in names:
            self.make(name)

    def make(self, name: str, used: int = 10 * MIB) -> None:
        cpu, memory = self.cpu / "pods" / name, self.memory / "pods" / name
        if self.version == 1:
            places = {"cpu": cpu, "cpuacct": cpu, "memory": memory}
            self._tree.group_v1(places, limit=256 * MIB, memory=used)
            (cpu / "cpu.shares").write_text("1024\n")
        else:
            self._tree.group_v2(cpu, memory=used)
            (cpu / "cpu.weight").write_text("100\n")
            (cpu / "cgroup.controllers").write_text("cpu memory\n")

    def host(self) -> Host:
        return Host(detect(self.proc))

    def values(self, name: str) -> tuple[float, float]:
        """Its CPU and memory limit, as a Target reads them."""
        read = self.host().target(f"/pods/{name}").read()
        return read["cpu_limit_cores"], read["memory_limit_bytes"]

    def applier(self, clock: Any = None) -> Applier:
        more = {} if clock is None else {"clock": clock}
        return Applier(Journal(self.state), Audit(self.state), self.host(), **more)

    def plan(self, advised: Advice, maps: list[str] | None = None) -> plan.ApplyPlan:
        maps = [f"{each.name}=/pods/{each.name}" for each in advised.rows] if maps is None else maps
        rows = plan.chosen(advised, include_care=False)
        places = self.host()
        return plan.make(advised, rows, matching.match(advised, rows, places, maps), places)

    def apply(self, advised: Advice, watched: Watched | None = None, clock: Any = None) -> str | None:
        applier = self.applier(clock)
        with Journal(self.state).held():
            applier.recover()
            planned = self.plan(advised)
            return applier.apply(planned, Source("advice.json", "f" * 64), watched or Watched())

    def undo(self) -> Any:
        journal = Journal(self.state)
        with journal.held():
            path = journal.newest()
            return path and self.applier().take_back(path, journal.load(path), "undo")


FOUND = {1: (math.inf, 256.0 * MIB), 2: (math.inf, math.inf)}
"""What a new container has, by the version of cgroups."""

WANTED = (0.5, 64.0 * MIB)
