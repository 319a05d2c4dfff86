"""The backends of the contract of markets. Each has the same interface: run this job under this policy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, Self

import numpy as np

from control.market.course import Market, Outcome, Timing, Zone
from control.market.levels import Levels
from control.market.ports import ON_DEMAND, Policy, Terms
from testbed.cloud.market import Executor, Instances, carry_out
from testbed.cluster.gangs import Seen, Training
from tests.testbed.cluster import trainee
from twin.cloud.market import simulate

TRAINEE = Path(trainee.__file__)
COMPRESSION = 10.0
CORES = 0.2
STEPS_PER_S = CORES / trainee.STEP_CPU_S / COMPRESSION
"""Steps of training that stand for a second of work."""
TIMING = Timing(start_s=1.0, stop_s=0.5, move_s=0.0, every_s=7.0, saves=True)
TERMS = Terms(work_s=36.0, deadline_s=80.0, restart_s=4.0, tick_s=4.0, on_demand_usd_h=3600.0)
"""Prices are per hour, so that a second on demand costs 1 $."""


def market(*zones: tuple[tuple[float, float], ...], speeds: tuple[float, ...] = (), **more: float) -> Market:
    """Return a market. A zone is given as pairs (time, number of machines). Spot costs 0.3 $ per second, and
    the second zone is in another region."""
    made = [
        Zone(
            f"zone-{number}",
            f"region-{number}",
            "spot",
            speeds[number] if speeds else 1.0,
            Levels(*(np.array(column, float) for column in zip(*pairs, strict=True))),
            Levels(np.array([0.0]), np.array([1080.0])),
        )
        for number, pairs in enumerate(zones)
    ]
    given = {"notice_s": 4.0, "billing_s": 1e-3, "move_usd": 7.0, **more}
    return Market(tuple(made), "plain", TERMS.on_demand_usd_h, **given)


PERIOD_S = 0.1
"""Period of a CPU quota, s. A job that starts in the middle of one has all of the quota in what is left."""


class Backend(Protocol):
    name: str
    ahead_s: float
    """Work that a start may be ahead of its time, s."""

    def run(self, offered: Market, policy: Policy, timing: Timing = TIMING) -> Outcome: ...


class Twin:
    name, ahead_s = "twin", 0.0

    def run(self, offered: Market, policy: Policy, timing: Timing = TIMING) -> Outcome:
        return simulate(offered, TERMS, timing, policy)


class Testbed:
    name, ahead_s = "testbed", COMPRESSION * PERIOD_S

    def run(self, offered: Market, policy: Policy, timing: Timing = TIMING) -> Outcome:
        job = training(offered, timing)
        with Instances([job], 1e9) as machines:
            return carried_out(offered, policy, timing, machines, job)


class Processes:
    """Plain processes that need no rights. The job limits itself to its part of a core."""

    name, ahead_s = "processes", COMPRESSION * PERIOD_S

    def run(self, offered: Market, policy: Policy, timing: Timing = TIMING) -> Outcome:
        job = training(offered, timing)
        with TemporaryDirectory() as folder, Plain(job, Path(folder)) as plain:
            return carried_out(offered, policy, timing, plain, job)


class Plain:
    """An executor of one process at a time (testbed.cloud.market.Executor)."""

    def __init__(self, job: Training, folder: Path) -> None:
        self.job, self.folder, self.lives, self.base = job, folder, 0, 0
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self._end()

    def start(self, job: int, servers: Mapping[int, int], quota_cores: float) -> None:
        self.lives += 1
        here = self.folder / str(self.lives)
        here.mkdir()
        options = ["--cores", str(quota_cores), "--checkpoint", str(self.folder / "saved")]
        options += ["--every", str(self.job.every)]
        self.gate = here / "gate"
        environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "TWINBED_STEPS": str(here)}
        environment["TWINBED_GATE"] = str(self.gate)
        self.process = subprocess.Popen([*self.job.command, *options], env=environment)

    def stop(self, job: int) -> None:
        assert self.process is not None
        self.gate.touch()
        self.process.terminate()

    def kill(self, job: int) -> None:
        self._end()
        self.base = self._saved()

    def look(self, job: int, *, release: bool) -> Seen:
        steps = self.folder / str(self.lives) / "0.steps"
        new = steps.stat().st_size // 8 if self.process is not None and steps.exists() else 0
        if new and release:
            self.gate.touch()
        alive = self.process is not None and self.process.poll() is None
        if self.process is not None and not alive:
            assert self.process.returncode <= 0, "the job failed"
            self._end()
            self.base = self._saved()
            return Seen(self.base, begun=bool(new), alive=False)
        return Seen(self.base + new, begun=bool(new), alive=alive)

    def _saved(self) -> int:
        saved = self.folder / "saved"
        return int(saved.read_text()) if saved.exists() else 0

    def _end(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None


def training(offered: Market, timing: Timing) -> Training:
    """Return the job as a program."""
    steps, every = (round(seconds * STEPS_PER_S) for seconds in (TERMS.work_s, timing.every_s))
    command = (sys.executable, str(TRAINEE), "--steps", str(steps))
    return Training(command, TRAINEE.parent, offered.machines, steps, every)


def carried_out(
    offered: Market, policy: Policy, timing: Timing, executor: Executor, job: Training
) -> Outcome:
    def quota(place: int) -> float:
        return CORES * (1.0 if place == ON_DEMAND else offered.zones[place].speed)

    return carry_out(
        offered, TERMS, timing, policy, executor, job, compression=COMPRESSION, quota_cores=quota
    )
