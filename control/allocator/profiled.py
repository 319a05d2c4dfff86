"""The samples that a metrics server would have reported in a profile: each container's mean CPU use and
memory.

For: policies that size requests from a profile (requests_only.py, krr.py). Not for: sizing.
"""

from __future__ import annotations

import numpy as np

from control.allocator.model import Floats, History, Join
from twinbed import ScenarioError


def profile_of(policy: str, containers: Join) -> History:
    """Return the profile of the containers. Raise ScenarioError if they were not profiled."""
    if containers.profile is None:
        raise ScenarioError(f"{policy}: the containers have no profile to take a percentile from")
    return containers.profile


def cpu_samples(profile: History, interval_s: float) -> list[Floats]:
    """Return each container's mean CPU use, cores, in the intervals in which it was present.

    An incomplete last interval counts only if there is no other interval. The same holds for an interval
    shorter than a period.
    """
    usage = profile.usage_cores
    length = max(round(interval_s / profile.period_s), 1)
    count = max(len(usage) // length, 1)
    samples = []
    for column in usage.T:
        whole = column[: count * length] if len(column) >= length else column
        parts = whole.reshape(count, -1)
        there = ~np.isnan(parts)
        seen = there.any(axis=1)
        sums = np.where(there, parts, 0.0).sum(axis=1)
        samples.append(np.asarray(sums[seen] / there.sum(axis=1)[seen], np.float64))
    return samples


def memory_samples(profile: History, interval_s: float) -> list[Floats]:
    """Return each container's largest memory use, bytes, in the same intervals."""
    length = max(round(interval_s / profile.period_s), 1)
    begins = np.arange(0, max(len(profile.memory_bytes) // length, 1)) * length
    there = ~np.isnan(profile.usage_cores)
    samples = []
    for column, seen in zip(profile.memory_bytes.T, there.T, strict=True):
        peaks = np.maximum.reduceat(column, begins).astype(np.float64)
        samples.append(peaks[np.logical_or.reduceat(seen, begins)])
    return samples
