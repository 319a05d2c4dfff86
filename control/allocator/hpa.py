"""The Kubernetes Horizontal Pod Autoscaler: it sets a workload's number of replicas by CPU use over requests.

For: one workload's number of replicas, at every sync. Not for: starting and ending replicas, nor their
requests, which an allocator sets. The behaviour is the default of autoscaling/v2, without `behavior`.

Source: kubernetes/kubernetes, pkg/controller/podautoscaler/replica_calculator.go (GetResourceReplicas),
metrics/utilization.go (GetResourceUtilizationRatio) and horizontal.go (stabilizeRecommendation,
calculateScaleUpLimit); flags of kube-controller-manager.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil

import numpy as np

from control.allocator.model import Flags, Floats
from control.settings import check, parameter
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class HpaSettings:
    """Parameters of the HPA, with Kubernetes' defaults. Raises ScenarioError for values out of range."""

    target_utilisation: float = parameter(
        0.8,
        unit="share of the request",
        low=0.01,
        why="averageUtilization of an HPA that names no metric: 80",
    )
    min_replicas: int = parameter(1, unit="replicas", low=1, why="minReplicas")
    max_replicas: int = parameter(10, unit="replicas", low=1, why="maxReplicas has no default; our choice")
    sync_interval_s: float = parameter(15.0, unit="s", low=0.1, why="horizontal-pod-autoscaler-sync-period")
    tolerance: float = parameter(
        0.1, unit="fraction", low=0.0, why="horizontal-pod-autoscaler-tolerance: smaller changes are not made"
    )
    downscale_window_s: float = parameter(
        300.0,
        unit="s",
        low=0.0,
        why="horizontal-pod-autoscaler-downscale-stabilization; there is none upwards",
    )
    readiness_s: float = parameter(
        30.0,
        unit="s",
        low=0.0,
        why="horizontal-pod-autoscaler-initial-readiness-delay: then its CPU use counts",
    )

    def __post_init__(self) -> None:
        check("hpa", self)
        if self.max_replicas < self.min_replicas:
            raise ScenarioError(
                f"hpa.max_replicas: {self.max_replicas} is below min_replicas, {self.min_replicas}"
            )


def replicas_wanted(
    current: int, usage: Floats, requests: Floats, ready: Flags, target: float, tolerance: float
) -> int:
    """Return the number of replicas by the replicas' CPU use, before stabilisation and bounds.

    usage, requests: float64[n], cores; usage NaN: no metric of this replica. ready: bool[n]. A replica
    without a metric counts as idle when the HPA scales up. When the HPA scales down, it counts as using its
    whole request, or the target if that is more. It does not count if the other replicas are at the target. A
    replica that is not ready counts as idle when the HPA scales up. The number stays if there is no metric or
    no request.
    """
    known = ready & ~np.isnan(usage)
    missing, unready = ready & np.isnan(usage), ~ready
    if not (requests.sum() > 0 and requests[known].sum() > 0):  # no sum with a NaN is above 0
        return current
    ratio = _ratio(usage[known], requests[known], target)
    counted = known | (missing & (ratio != 1.0)) | (unready & (ratio > 1.0))
    assumed = np.where(missing & (ratio < 1.0), requests * max(1.0, target), np.where(known, usage, 0.0))
    again = _ratio(assumed[counted], requests[counted], target)
    wanted = ceil(again * np.count_nonzero(counted))
    turned = (ratio - 1.0) * (again - 1.0) < 0.0 or (again - 1.0) * (wanted - current) < 0.0
    return current if turned or 1.0 - tolerance <= again <= 1.0 + tolerance else wanted


def _ratio(usage: Floats, requests: Floats, target: float) -> float:
    """Return utilisation over its target. Utilisation counts in whole percent, as in the source."""
    percent = float(np.floor(100.0 * usage.sum() / requests.sum() + 10.0**-_DIGITS))
    return percent / round(100.0 * target, _DIGITS)


_DIGITS = 9
"""Decimal places of a percentage that count: 100 · 0.57 is 56.99999999999999, and 57 was meant."""
_GROWTH, _ALWAYS = 2.0, 4
"""Factor by which a workload may grow at one sync, and the number of replicas that it may always reach
(scaleUpLimitFactor, scaleUpLimitMinimum)."""


class Hpa:
    """One workload's replicas. It remembers the recommendations within the downscale window."""

    def __init__(self, settings: HpaSettings) -> None:
        self.settings = settings
        self._recommended: deque[tuple[float, int]] = deque()

    def sync(self, at_s: float, current: int, usage: Floats, requests: Floats, ready: Flags) -> int:
        """Return the number of replicas from now on.

        current: replicas asked for so far, including those that are starting. usage, requests, ready:
        [current] arrays as in the module's function.
        """
        s, recommended = self.settings, self._recommended
        if not recommended:
            recommended.append((at_s, current))
        wanted = replicas_wanted(current, usage, requests, ready, s.target_utilisation, s.tolerance)
        recommended.append((at_s, wanted))
        while recommended[0][0] < at_s - s.downscale_window_s:
            recommended.popleft()
        stable = max(count for _, count in recommended)
        most = min(s.max_replicas, max(int(_GROWTH * current), _ALWAYS))
        return max(min(stable, most), s.min_replicas)
