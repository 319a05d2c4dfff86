"""Requests without CPU limits, as many operators of Kubernetes run on purpose.

For: `requests-only`. A container's CPU request is a percentile of its profiled use. While the host is short
of CPU, the request is the container's weight (shares.py); CPU that others leave idle goes to any container
that needs it. Memory has a limit, which is also the request, because memory cannot be taken back. Not for:
adapting, nor placing containers.

Ω and M are ignored: a weight takes nothing away, and Kubernetes lets limits add up to more than a cluster
has.

Source: robusta-dev/krr, robusta_krr/strategies/simple.py (a percentile of CPU use without a limit, the
largest memory use and a buffer), and Kubernetes' documentation, "Resource Management for Pods and
Containers".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.allocator.model import PAGE_BYTES, Join
from control.allocator.ports import Given
from control.allocator.profiled import cpu_samples, profile_of
from control.allocator.static import NO_LIMIT_BYTES, NO_QUOTA_CORES, FixedLimits, Plan
from control.settings import check, parameter
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class RequestsOnlySettings:
    """Parameters of the policy. Raises ScenarioError for a value outside its range."""

    cpu_percentile: float = parameter(
        95.0, unit="percent", low=0.0, high=100.0, why="of the profiled CPU use: krr's simple strategy"
    )
    sample_interval_s: float = parameter(
        15.0, unit="s", low=0.01, why="a common scrape interval of Prometheus; the percentile is of its means"
    )
    least_cores: float = parameter(0.01, unit="core", low=0.0, why="krr's cpu-min-value: 10 millicores")
    memory_factor: float = parameter(
        1.15,
        unit="times the profiled peak",
        low=0.0,
        why="krr's memory buffer of 15 %, as request and limit; 0: no memory limit",
    )

    def __post_init__(self) -> None:
        check("requests-only", self)


class RequestsOnly(FixedLimits):
    """CPU requests from a profile, and no CPU limits."""

    name = "requests-only"
    given = Given(profile=True)

    def __init__(self, settings: RequestsOnlySettings) -> None:
        self._settings = settings

    def _plan(self, containers: Join) -> Plan:
        s = self._settings
        samples = cpu_samples(profile_of(self.name, containers), s.sample_interval_s)
        # A container that is not in the profile requests the minimum.
        asked = [np.percentile(cores, s.cpu_percentile) if cores.size else 0.0 for cores in samples]
        requests = np.clip(np.array(asked, np.float64), s.least_cores, containers.host_cores)
        count = len(requests)
        limit = np.full(count, NO_LIMIT_BYTES, np.int64)
        if s.memory_factor:
            if containers.peak_bytes is None:
                raise ScenarioError(f"{self.name}: the containers have no memory profile to take a peak from")
            pages = np.ceil(s.memory_factor * containers.peak_bytes / PAGE_BYTES)
            limit = np.maximum(pages, 1).astype(np.int64) * PAGE_BYTES
        return Plan(np.full(count, NO_QUOTA_CORES), limit, requests)
