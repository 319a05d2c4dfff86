"""The cost of a cluster: its price per hour, and the bill for the time it was held.

For: providers whose rules are a billing step, a minimum, a fee on top and a disk per node (Vertex AI, EC2).
Not for: looking prices up, which the caller does, nor spot interruptions (market.py). All arrays broadcast;
money is US$.
Source: traces/catalogue/billing.toml names the source of each provider's rules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from control.jobs import Real
from twinbed import ScenarioError

HOURS_PER_MONTH = 730
"""Hours by which providers divide a price per month (365 × 24 / 12)."""
SECONDS_PER_HOUR = 3600
_ROUNDED = 1e-12
"""Share of a time by which it may exceed whole billing steps, because it is a product, which is rounded."""


@dataclass(frozen=True, slots=True)
class Rules:
    """A provider's billing rules.

    increment_s: step in which time is billed, s.
    minimum_s: least time that is billed, s.
    management_fee, disk_fee: shares on top of the prices of machine and disk.
    disk_gib: disk of every node, GiB.
    disk_price_per_gib_month: price of the disk, US$ per GiB and month.
    startup_s: time before a node works, s.
    startup_billed: whether that time is billed.

    Raises ScenarioError if a quantity is negative.
    """

    increment_s: float = 1.0
    minimum_s: float = 0.0
    management_fee: float = 0.0
    disk_gib: float = 0.0
    disk_price_per_gib_month: float = 0.0
    disk_fee: float = 0.0
    startup_s: float = 0.0
    startup_billed: bool = False

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) >= 0:
                raise ScenarioError(f"billing: {name} is {getattr(self, name)}; it is at least zero")
        if self.increment_s == 0:
            raise ScenarioError("billing: increment_s is 0; the smallest step is above zero")


def node_usd_h(machine_usd_h: ArrayLike, rules: Rules) -> Real:
    """Return the price per hour of one node with its disk and fees; NaN (no price) stays NaN."""
    disk = rules.disk_gib * rules.disk_price_per_gib_month / HOURS_PER_MONTH * (1 + rules.disk_fee)
    return np.asarray(machine_usd_h, np.float64) * (1 + rules.management_fee) + disk


def billed_s(work_s: ArrayLike, rules: Rules) -> Real:
    """Return the billed time of a job, s: whole steps, at least the minimum.

    work_s: its time without the start-up, which the rules add where it is billed.
    """
    held = np.asarray(work_s, np.float64) + (rules.startup_s if rules.startup_billed else 0.0)
    steps = np.ceil(held / rules.increment_s * (1 - _ROUNDED))
    return np.maximum(steps * rules.increment_s, rules.minimum_s)


def cost_usd(work_s: ArrayLike, cluster_usd_h: ArrayLike, rules: Rules) -> Real:
    """Return the cost of a job, US$. work_s: as in `billed_s`. cluster_usd_h: the cluster's price, US$/h."""
    return billed_s(work_s, rules) / SECONDS_PER_HOUR * np.asarray(cluster_usd_h, np.float64)
