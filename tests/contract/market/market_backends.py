"""The backends of the contract of markets, behind the same line: run this job under this policy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Protocol

import numpy as np

from control.market.course import Market, Outcome, Timing, Zone
from control.market.levels import Levels
from control.market.ports import ON_DEMAND, Policy, Terms
from testbed.cloud.market import Instances, carry_out
from testbed.cluster.gangs import Training
from tests.testbed.cluster import trainee
from twin.cloud.market import simulate

TRAINEE = Path(trainee.__file__)
COMPRESSION = 10.0
CORES = 0.2
STEPS_PER_S = CORES / trainee.STEP_CPU_S / COMPRESSION
"""Steps of training that stand for a second of work."""
TIMING = Timing(start_s=1.0, stop_s=0.5, move_s=0.0, every_s=5.0, saves=True)
TERMS = Terms(work_s=20.0, deadline_s=120.0, restart_s=4.0, tick_s=4.0, on_demand_usd_h=3600.0)
"""Prices are per hour, so that a second on demand costs 1 $."""


def market(*zones: tuple[tuple[float, float], ...], speeds: tuple[float, ...] = (), **more: float) -> Market:
    """A zone is pairs of time and machines; spot costs 0.3 $ a second, and the second zone's region is
    another."""
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


class Backend(Protocol):
    name: str

    def run(self, offered: Market, policy: Policy, timing: Timing = TIMING) -> Outcome: ...


class Twin:
    name = "twin"

    def run(self, offered: Market, policy: Policy, timing: Timing = TIMING) -> Outcome:
        return simulate(offered, TERMS, timing, policy)


class Testbed:
    name = "testbed"

    def run(self, offered: Market, policy: Policy, timing: Timing = TIMING) -> Outcome:
        steps, every = (round(seconds * STEPS_PER_S) for seconds in (TERMS.work_s, timing.every_s))
        command = (sys.executable, str(TRAINEE), "--steps", str(steps))
        job = Training(command, TRAINEE.parent, offered.machines, steps, every)

        def quota(place: int) -> float:
            return CORES * (1.0 if place == ON_DEMAND else offered.zones[place].speed)

        with Instances([job], 1e9) as machines:
            return carry_out(
                offered, TERMS, timing, policy, machines, job, compression=COMPRESSION, quota_cores=quota
            )
