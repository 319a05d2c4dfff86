"""The cost of failures to a large job, in closed form: intervals, effective training time, standby pools.

For: checks of planner.py, and the figures that sources print. Not for: one tier by Young and Daly
(checkpoints.py). All rates are per second, all times in seconds. ETTR is the effective training time ratio,
the productive share.
Source: A. Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning Research Clusters, 2024
(arXiv 2410.21680); ByteRobust, 2025 (arXiv 2509.16293) for pools and weighted scheduling.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy

from twin.fabric.checkpoints import young_s
from twin.fabric.planner import NO_PROGRESS
from twinbed import ScenarioError

STANDBY_DAILY = 1.2e-3
"""Failures of a machine per day that give ByteRobust's pools (derived; 1.17e-3 to 1.25e-3 do)."""
_COVERED = 0.99
_CATASTROPHE = 32
"""Number of machines that fail at once in ByteRobust's rare case."""


def expected_ettr(per_s: float, interval_s: float, save_s: float, start_s: float) -> float:
    """Return Meta's first-order ETTR of a job with `per_s` failures. Raises ScenarioError where the job makes
    no progress."""
    lost = per_s * (start_s + interval_s / 2)
    return _progress(lost) / (1 + save_s / interval_s)


def first_order_interval_s(save_s: float, mtbf_s: float) -> float:
    """Return Young's interval less the save, s."""
    return young_s(save_s, mtbf_s) - save_s


def tier_interval_s(save_s: float, served_per_s: float) -> float:
    """Return the best interval of a tier, s. save_s: time of a save, s. served_per_s: failures per second
    that the tier serves."""
    return float(np.sqrt(2 * save_s / served_per_s))


def _progress(lost: float) -> float:
    if lost >= 1:
        raise ScenarioError(f"{NO_PROGRESS} ({lost:.4g} s are lost in each second)")
    return 1 - lost


def standby_pool(machines: int) -> int:
    """Return the 99th percentile of the machines that fail in a day, ByteRobust's number of standbys."""
    return int(scipy.stats.binom.ppf(_COVERED, machines, STANDBY_DAILY))


def weighted_s(machines: int, time_s: Callable[[int], float]) -> float:
    """Return ByteRobust's weighted scheduling time, s. time_s: k → time to replace k machines, s."""
    counts = np.arange(1, standby_pool(machines) + 1)
    weights = scipy.stats.binom.pmf(counts, machines, STANDBY_DAILY)
    usual_s = sum(w * time_s(int(k)) for w, k in zip(weights / weights.sum(), counts, strict=True))
    return float(_COVERED * usual_s + (1 - _COVERED) * time_s(_CATASTROPHE))


def replica_groups_ettr(per_s: float, rejoin_s: float, groups: int, step_s: float) -> float:
    """Return the ETTR of a job without checkpoints whose replica groups leave and rejoin."""
    return _progress(per_s * (rejoin_s / groups + step_s))
