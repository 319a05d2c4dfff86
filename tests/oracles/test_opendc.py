"""Shared hosts, failures and checkpoints against the figures in OpenDC's own tests.

A core of the host is a CPU, so MHz become cores. Where OpenDC loses what is not supplied (NoDelayScaling), a
fragment is a container that is there as long as the fragment lasts, because a container that leaves takes its
backlog along. Where work waits (PerfectScaling), a task is one container. OpenDC's queue for cores is the
test's: a replay starts a container when the trace says. Failures are walked by twin.fabric.checkpoints.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from control.allocator.model import Application
from tests.oracles.vectors import vectors
from tests.twin.containers.scripted import Scripted, machine, run
from twin.containers.model import Workload
from twin.fabric import checkpoints

PERIOD_S, MINUTE_S, HORIZON_S = 1.0, 60.0, 3000.0
IDLE_W, BUSY_W = 100.0, 200.0

DIFFERS = {
    ("testCheckpoints2", "energy_j"): "a save has no CPU use of its own in a job's walk",
    ("testCheckpoints3", "energy_j"): "a save has no CPU use of its own in a job's walk",
    ("testCheckpoints4", "end_s"): "the interval grows after each save; a job's interval is fixed here",
    ("testCheckpoints4", "energy_j"): "the interval grows after each save; a job's interval is fixed here",
}
"""Figures that we do not reproduce, by vector and figure, and why."""


@dataclass
class Replayed:
    """Cores by period and task (float64[T, tasks]), when tasks start, and when the last one ends."""

    demand: np.ndarray
    supplied: np.ndarray
    start_s: list[float]
    end_s: float
    cores: float

    def figure(self, asked: dict[str, Any]) -> float:
        """The figure of `expected`, in cores where it is in MHz there."""
        what, whose = asked["what"], asked["of"]
        busy_s = self.supplied.sum(axis=1) / self.cores * PERIOD_S
        if what == "end_s":
            return self.end_s
        if what in ("active_s", "idle_s"):
            return busy_s.sum() if what == "active_s" else self.end_s - busy_s.sum()
        if what == "energy_j":
            return IDLE_W * self.end_s + (BUSY_W - IDLE_W) * busy_s.sum()
        if what == "energy_j_of_the_minute":
            row = int(asked["sample"] * MINUTE_S / PERIOD_S)
            minute = busy_s[row : row + int(MINUTE_S / PERIOD_S)]
            return IDLE_W * MINUTE_S + (BUSY_W - IDLE_W) * minute.sum()
        cores = self.demand if what == "demand" else self.supplied
        if whose == "host":
            cores, start_s = cores.sum(axis=1), min(self.start_s)
        else:
            index = int(whose.removeprefix("task "))
            cores, start_s = cores[:, index], self.start_s[index]
        return float(cores[int((start_s + (asked["sample"] + 1) * MINUTE_S) / PERIOD_S)])


def submitted_s(task: dict[str, Any]) -> float:
    at = datetime.datetime.fromisoformat(task.get("submitted", "1970-01-01T00:00"))
    return (at - datetime.datetime(1970, 1, 1)).total_seconds()


def starts_s(tasks: list[dict[str, Any]], cores: int) -> list[float]:
    """When each task has a core to itself, first come, first served."""
    free_s, starts = [0.0] * cores, []
    for task in tasks:
        start_s = max(submitted_s(task), min(free_s))
        free_s[free_s.index(min(free_s))] = start_s + sum(length_s for length_s, _ in task["fragments"])
        starts.append(start_s)
    return starts


def replayed(vector: dict[str, Any], *, apart: bool | None = None) -> Replayed:
    """The vector's tasks on one host. apart: a container per fragment (else per task)."""
    apart = vector["scaling"] == "NoDelayScaling" if apart is None else apart
    hosts, tasks = vector["hosts"], vector["tasks"]
    begins_s = starts_s(tasks, hosts["cores"])
    rows = int(HORIZON_S / PERIOD_S)
    owner, demand, present = [], [], []
    ends_s = []
    for index, task in enumerate(tasks):
        at = int(begins_s[index] / PERIOD_S)
        for number, (length_s, mhz) in enumerate(task["fragments"]):
            if apart or number == 0:
                owner.append(index)
                demand.append(np.zeros(rows))
                present.append(np.zeros(rows, np.bool_))
            until = at + int(length_s / PERIOD_S)
            demand[-1][at:until] = mhz / hosts["core_mhz"]
            present[-1][at : until if apart else rows] = True
            at = until
        ends_s.append(at * PERIOD_S)
    cores = np.array(demand).T
    whose = np.eye(len(tasks))[owner]
    series = run(host_of(cores, np.array(present).T, hosts["cores"]), Scripted(), machine()).series
    supplied = series.usage_cores.astype(np.float64) @ whose
    worked = np.flatnonzero(supplied.sum(axis=1) > 1e-9)
    end_s = max(ends_s) if apart else (worked[-1] + 1) * PERIOD_S
    return Replayed(cores @ whose, supplied, begins_s, end_s, hosts["cores"])


def host_of(demand: np.ndarray, present: np.ndarray, cores: float) -> Workload:
    count = demand.shape[1]
    return Workload(
        names=tuple(f"c{i}" for i in range(count)),
        applications=(Application("a", 1e6, 1 << 60),),
        app=np.zeros(count, np.int64),
        period_s=PERIOD_S,
        demand_cores=demand,
        memory_bytes=np.zeros(demand.shape, np.int64),
        present=present,
        threads=np.full(count, float(cores)),
        host=np.zeros(count, np.int64),
        host_cores=np.full(count, float(cores)),
        weight=np.ones(count),
        peak_cores=demand.max(axis=0),
        peak_bytes=np.ones(count, np.int64),
    )


def walked(vector: dict[str, Any]) -> Replayed:
    """The vector's only task through its failures."""
    (task,), hosts = vector["tasks"], vector["hosts"]
    work_s = sum(length_s for length_s, _ in task["fragments"])
    deaths_s, backs_s, at_s = [], [], 0.0
    for up_s, down_s in vector["failures"]["up_then_down_s"]:
        deaths_s.append(at_s + up_s)
        backs_s.append(at_s + up_s + down_s)
        at_s = backs_s[-1]
    plan = checkpoints.Checkpointing(
        task.get("checkpoint_interval_s", np.inf), task.get("checkpoint_duration_s", 0.0), 0.0, 0.0
    )
    lives = checkpoints.run(plan, work_s, np.array(deaths_s), np.array(backs_s))
    row = np.arange(int(HORIZON_S / PERIOD_S)) * PERIOD_S
    lives_on = ((row[:, None] >= lives.begin_s) & (row[:, None] < lives.end_s)).any(axis=1)
    demand = lives_on[:, None] * (task["fragments"][0][1] / hosts["core_mhz"])
    return Replayed(demand, demand, [0.0], lives.end_of_job_s, hosts["cores"])


@vectors("opendc/cpu_and_failures")
def test_figures_are_opendc_s(vector: dict[str, Any]) -> None:
    ours = walked(vector) if vector["failures"] else replayed(vector)
    for asked in vector["expected"]:
        scale = vector["hosts"]["core_mhz"] if asked["what"] in ("demand", "supplied") else 1.0
        figure = ours.figure(asked) * scale
        if (vector["id"], asked["what"]) in DIFFERS:
            assert figure != pytest.approx(asked["value"], rel=1e-3), f"{asked}: take it off the list"
        else:
            assert figure == pytest.approx(asked["value"], rel=1e-6), asked


@vectors("opendc/cpu_and_failures", ["*/testFailures*", "*/testCheckpoints*"])
def test_a_container_that_stays_does_later_what_it_could_not_do(vector: dict[str, Any]) -> None:
    ours = replayed(vector, apart=False)
    cores_s = sum(length_s * mhz for task in vector["tasks"] for length_s, mhz in task["fragments"])
    done_s = ours.supplied.sum() * PERIOD_S * vector["hosts"]["core_mhz"]
    assert done_s == pytest.approx(cores_s, rel=1e-6)
    assert (ours.supplied.sum(axis=1) <= ours.cores + 1e-6).all()


def test_two_that_want_more_than_the_host_share_it_evenly() -> None:
    hosts = {"hosts": 1, "cores": 2, "core_mhz": 2000}
    tasks = [{"fragments": [[600.0, 6000.0]]}, {"fragments": [[600.0, 5000.0]]}]
    ours = replayed({"hosts": hosts, "tasks": tasks, "scaling": "NoDelayScaling"})
    assert ours.supplied[60] * 2000 == pytest.approx([2000.0, 2000.0])
