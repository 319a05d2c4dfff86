"""Shared hosts, failures and checkpoints against the figures in OpenDC's own tests.

A core of the host is a CPU, so MHz become cores. Where OpenDC loses what is not supplied (NoDelayScaling), a
fragment is a container that is there until any fragment begins or ends, because a container that leaves
takes its backlog along. Where work waits (PerfectScaling), a task is one container. OpenDC's queue for cores
is the test's: a replay starts a container when the trace says. Failures are walked by twin.fabric.checkpoints
and observed until the one at which OpenDC gives a task up.
"""

from __future__ import annotations

import datetime
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from control.allocator.model import Application
from tests.oracles.vectors import vectors
from tests.twin.containers.scripted import Scripted, machine, run
from twin.containers.model import Workload
from twin.fabric import checkpoints

MINUTE_S = 60.0
MOST_ROWS = 10_000
"""Periods of a second in a replay; a longer one has periods as long as its fragments allow."""
GIVEN_UP_AT = 10
"""The failure at which OpenDC gives a task up."""
IDLE_W, BUSY_W = 100.0, 200.0

LATER = "the trace says when a fragment begins; OpenDC begins it when the work before it is done"
DIFFERS = {
    ("testScaling3_perfect", "end_s", None): LATER,
    ("testScaling3_perfect", "demand", 19): LATER,
    ("testScaling3_perfect", "demand", 29): LATER,
    ("testScaling3_perfect", "supplied", 29): LATER,
    ("testCheckpoints2", "energy_j", None): "a save has no CPU use of its own in a job's walk",
    ("testCheckpoints3", "energy_j", None): "a save has no CPU use of its own in a job's walk",
    ("testCheckpoints4", "end_s", None): "the interval grows after each save; a job's interval is fixed here",
    (
        "testCheckpoints4",
        "energy_j",
        None,
    ): "the interval grows after each save; a job's interval is fixed here",
}
"""Figures that we do not reproduce, by vector, figure and sample, and why."""


@dataclass
class Replayed:
    """Cores by period and task (float64[T, tasks]), when tasks start, and when the last one ends."""

    demand: np.ndarray
    supplied: np.ndarray
    start_s: list[float]
    end_s: float
    cores: float
    period_s: float = 1.0

    def figure(self, asked: dict[str, Any]) -> float:
        """The figure of `expected`, in cores where it is in MHz there."""
        what, whose = asked["what"], asked["of"]
        busy_s = self.supplied.sum(axis=1) / self.cores * self.period_s
        if what == "end_s":
            return self.end_s
        if what in ("active_s", "idle_s"):
            return busy_s.sum() if what == "active_s" else self.end_s - busy_s.sum()
        if what == "energy_j":
            return IDLE_W * self.end_s + (BUSY_W - IDLE_W) * busy_s.sum()
        if what == "energy_j_of_the_minute":
            at_s = asked["sample"] * MINUTE_S
            minute = busy_s[int(at_s / self.period_s) : int((at_s + MINUTE_S) / self.period_s)]
            measured_s = min(max(self.end_s - at_s, 0.0), MINUTE_S)
            return IDLE_W * measured_s + (BUSY_W - IDLE_W) * minute.sum()
        cores = self.demand if what == "demand" else self.supplied
        if whose == "host":
            cores, start_s = cores.sum(axis=1), min(self.start_s)
        else:
            index = int(whose.removeprefix("task "))
            cores, start_s = cores[:, index], self.start_s[index]
        return float(cores[int((start_s + (asked["sample"] + 1) * MINUTE_S) / self.period_s)])


def submitted_s(task: dict[str, Any]) -> float:
    at = datetime.datetime.fromisoformat(task.get("submitted", "1970-01-01T00:00"))
    return (at - datetime.datetime(1970, 1, 1)).total_seconds()


def tasks_of(vector: dict[str, Any]) -> list[dict[str, Any]]:
    """The vector's tasks with all their fragments, each repeated as often as it says."""
    tasks = [
        {**task, "fragments": task["fragments"] * task.get("fragments_repeated", 1)}
        for task in vector["tasks"]
    ]
    return tasks * vector.get("tasks_repeated", 1)


def starts_s(tasks: list[dict[str, Any]], cores: int) -> list[float]:
    """When each task has a core to itself, first come, first served; from when the first is submitted."""
    first_s = min(map(submitted_s, tasks))
    free_s, starts = [0.0] * cores, []
    for task in tasks:
        start_s = max(submitted_s(task) - first_s, min(free_s))
        free_s[free_s.index(min(free_s))] = start_s + sum(length_s for length_s, _ in task["fragments"])
        starts.append(start_s)
    return starts


def grid(tasks: list[dict[str, Any]], begins_s: list[float], capacity_mhz: float) -> tuple[float, int]:
    """(length of a period in s, number of periods): a minute longer than all work can take."""
    fragments = [fragment for task in tasks for fragment in task["fragments"]]
    lengths_s = [int(length_s) for length_s, _ in fragments]
    work_s = sum(length_s * max(mhz / capacity_mhz, 1.0) for length_s, mhz in fragments)
    seconds = max(begins_s) + work_s + MINUTE_S
    period_s = 1.0 if seconds <= MOST_ROWS else float(math.gcd(*lengths_s, *map(int, begins_s)))
    return period_s, math.ceil(seconds / period_s)


def replayed(vector: dict[str, Any], *, apart: bool | None = None) -> Replayed:
    """The vector's tasks on one host. apart: what is not done when a fragment begins or ends is lost."""
    apart = vector["scaling"] == "NoDelayScaling" if apart is None else apart
    hosts, tasks = vector["hosts"], tasks_of(vector)
    begins_s = starts_s(tasks, hosts["cores"])
    period_s, rows = grid(tasks, begins_s, hosts["cores"] * hosts["core_mhz"])
    bounds = [
        list(
            itertools.accumulate(
                (int(s / period_s) for s, _ in task["fragments"]), initial=int(at / period_s)
            )
        )
        for task, at in zip(tasks, begins_s, strict=True)
    ]
    changes = sorted(set(itertools.chain(*bounds)))
    owner, demand, present = [], [], []
    for index, task in enumerate(tasks):
        for number, (at, until) in enumerate(itertools.pairwise(bounds[index])):
            cuts = [row for row in changes if at <= row < until] if apart else [at]
            for begin, end in itertools.pairwise([*cuts, until]):
                if apart or number == 0:
                    owner.append(index)
                    demand.append(np.zeros(rows))
                    present.append(np.zeros(rows, np.bool_))
                demand[-1][begin:end] = task["fragments"][number][1] / hosts["core_mhz"]
                present[-1][begin : end if apart else rows] = True
    cores = np.array(demand).T
    whose = np.eye(len(tasks))[owner]
    load = host_of(cores, np.array(present).T, hosts["cores"], period_s)
    series = run(load, Scripted(), machine()).series
    supplied = series.usage_cores.astype(np.float64) @ whose
    worked = np.flatnonzero(supplied.sum(axis=1) > 1e-9)
    end_s = (changes[-1] if apart else worked[-1] + 1) * period_s
    return Replayed(cores @ whose, supplied, begins_s, end_s, hosts["cores"], period_s)


def host_of(demand: np.ndarray, present: np.ndarray, cores: float, period_s: float) -> Workload:
    count = demand.shape[1]
    return Workload(
        names=tuple(f"c{i}" for i in range(count)),
        applications=(Application("a", 1e6, 1 << 60),),
        app=np.zeros(count, np.int64),
        period_s=period_s,
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
    failures = vector["failures"]["up_then_down_s"]
    for up_s, down_s in failures * GIVEN_UP_AT if vector["failures"]["repeated"] else failures:
        deaths_s.append(at_s + up_s)
        backs_s.append(at_s + up_s + down_s)
        at_s = backs_s[-1]
    plan = checkpoints.Checkpointing(
        task.get("checkpoint_interval_s", np.inf), task.get("checkpoint_duration_s", 0.0), 0.0, 0.0
    )
    until_s = deaths_s[GIVEN_UP_AT - 1] if len(deaths_s) >= GIVEN_UP_AT else np.inf
    lives = checkpoints.run(plan, work_s, np.array(deaths_s), np.array(backs_s), until_s=until_s)
    end_s = float(lives.end_s[-1])
    row = np.arange(math.ceil(end_s + MINUTE_S))
    lives_on = ((row[:, None] >= lives.begin_s) & (row[:, None] < lives.end_s)).any(axis=1)
    demand = lives_on[:, None] * (task["fragments"][0][1] / hosts["core_mhz"])
    return Replayed(demand, demand, [0.0], end_s, hosts["cores"])


@vectors("opendc/cpu_and_failures")
def test_figures_are_opendc_s(vector: dict[str, Any]) -> None:
    ours = walked(vector) if vector["failures"] else replayed(vector)
    for asked in vector["expected"]:
        scale = vector["hosts"]["core_mhz"] if asked["what"] in ("demand", "supplied") else 1.0
        figure = ours.figure(asked) * scale
        if (vector["id"], asked["what"], asked.get("sample")) in DIFFERS:
            assert figure != pytest.approx(asked["value"], rel=1e-3), f"{asked}: take it off the list"
        else:
            assert figure == pytest.approx(asked["value"], rel=1e-6), asked


@vectors("opendc/cpu_and_failures", ["*/testFailures*", "*/testCheckpoints*"])
def test_a_container_that_stays_does_later_what_it_could_not_do(vector: dict[str, Any]) -> None:
    ours = replayed(vector, apart=False)
    cores_s = sum(length_s * mhz for task in tasks_of(vector) for length_s, mhz in task["fragments"])
    done_s = ours.supplied.sum() * ours.period_s * vector["hosts"]["core_mhz"]
    assert done_s == pytest.approx(cores_s, rel=1e-6)
    assert (ours.supplied.sum(axis=1) <= ours.cores + 1e-6).all()


def test_two_that_want_more_than_the_host_share_it_evenly() -> None:
    hosts = {"hosts": 1, "cores": 2, "core_mhz": 2000}
    tasks = [{"fragments": [[600.0, 6000.0]]}, {"fragments": [[600.0, 5000.0]]}]
    ours = replayed({"hosts": hosts, "tasks": tasks, "scaling": "NoDelayScaling"})
    assert ours.supplied[60] * 2000 == pytest.approx([2000.0, 2000.0])
