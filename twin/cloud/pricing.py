"""What a cluster costs: its price per hour, and what is billed for the time it was held.

For: any provider whose rules are a step of billing, a minimum, a fee on top and a disk per node (Vertex AI,
EC2). Not for: looking prices up (traces/catalogue; they come in), spot interruptions (spot.py). All arrays
broadcast; money is US dollars. Source: the rules come with theirs (traces/catalogue/billing.toml).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twinbed import ScenarioError

Real = NDArray[np.float64]

HOURS_PER_MONTH = 730
"""By which cloud providers turn a price per month into one per hour (365 × 24 / 12)."""
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Rules:
    """increment_s: billed in such steps; minimum_s: at least; management_fee, disk_fee: shares on top of the
    machine's and the disk's price; disk_gib and its price per GiB and month: of every node; startup_s: before
    a node works, paid for if startup_billed. Raises ScenarioError if a quantity is negative."""

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
    """Price per hour of one node: machine and disk, with their fees. NaN (no price) stays NaN."""
    disk = rules.disk_gib * rules.disk_price_per_gib_month / HOURS_PER_MONTH * (1 + rules.disk_fee)
    found: Real = np.asarray(machine_usd_h, np.float64) * (1 + rules.management_fee) + disk
    return found


def billed_s(job_s: ArrayLike, rules: Rules) -> Real:
    """Seconds that are paid for when a job works for so long: whole steps, at least the minimum."""
    held = np.asarray(job_s, np.float64) + (rules.startup_s if rules.startup_billed else 0.0)
    found: Real = np.maximum(np.ceil(held / rules.increment_s) * rules.increment_s, rules.minimum_s)
    return found


def cost_usd(job_s: ArrayLike, cluster_usd_h: ArrayLike, rules: Rules) -> Real:
    """Cost of a job on a cluster whose whole price per hour (fees included) is given."""
    found: Real = billed_s(job_s, rules) / SECONDS_PER_HOUR * np.asarray(cluster_usd_h, np.float64)
    return found
