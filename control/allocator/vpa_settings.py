"""Parameters of the Vertical Pod Autoscaler, with Kubernetes' defaults.

For: `VpaSettings`. Not for: what the parameters do (vpa_recommender.py and vpa.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from control.allocator.vpa_resize import IN_PLACE_MODES, MODES
from control.settings import check, parameter

_DAY_S = 86_400.0
_MIB = 1 << 20


@dataclass(frozen=True)
class VpaSettings:
    """Parameters of the VPA. The defaults are those of Kubernetes; its names are given if they differ."""

    sample_interval_s: float = parameter(
        60.0, unit="s", low=0.1, why="the resolution at which the VPA reads the metrics server"
    )
    update_interval_s: float = parameter(
        60.0, unit="s", low=0.1, why="the updater's loop (updater-interval) and the recommender's"
    )
    min_restart_interval_s: float = parameter(
        60.0, unit="s", low=0.0, why="our choice: at most one restart or resize of a container a minute"
    )
    cpu_half_life_s: float = parameter(
        _DAY_S, unit="s", low=1.0, why="cpu-histogram-decay-half-life: one day-night cycle"
    )
    memory_half_life_s: float = parameter(
        _DAY_S, unit="s", low=1.0, why="memory-histogram-decay-half-life: one day-night cycle"
    )
    memory_aggregation_interval_s: float = parameter(
        _DAY_S, unit="s", low=1.0, why="one memory peak per day, because peaks cause OOM kills, not averages"
    )
    confidence_interval_s: float = parameter(
        _DAY_S,
        unit="s",
        low=1.0,
        why="confidence-interval-cpu and its memory twin: a history so long widens the bounds by the margins "
        "of one day",
    )
    target_percentile: float = parameter(
        0.90, unit="fraction", low=0.01, high=1.0, why="target-cpu-percentile and its memory twin"
    )
    lower_percentile: float = parameter(
        0.50, unit="fraction", low=0.01, high=1.0, why="recommendation-lower-bound-cpu-percentile"
    )
    upper_percentile: float = parameter(
        0.95, unit="fraction", low=0.01, high=1.0, why="recommendation-upper-bound-cpu-percentile"
    )
    margin: float = parameter(
        0.15, unit="fraction", low=0.0, why="recommendation-margin-fraction, on target and both bounds"
    )
    min_cores: float = parameter(
        0.025,
        unit="core",
        low=0.0,
        why="pod-recommendation-min-cpu-millicores; it is part of the policy that is compared, though above"
        " the kernel's 0.01: idle containers do not wake up at the kernel's minimum",
    )
    min_bytes: float = parameter(
        250 * _MIB,
        unit="byte",
        low=0.0,
        why="pod-recommendation-min-memory-mb (in MiB); it is part of the policy that is compared, though "
        "it dominates the limits of small containers",
    )
    update_threshold: float = parameter(
        0.10, unit="fraction", low=0.0, why="pod-update-threshold: smaller changes are not worth a restart"
    )
    min_age_s: float = parameter(
        43_200.0, unit="s", low=0.0, why="in-recommendation-bounds-eviction-lifetime-threshold: 12 h"
    )
    quick_oom_s: float = parameter(
        600.0,
        unit="s",
        low=0.0,
        why="evict-after-oom-threshold: a container killed for memory so soon after its start gets its new "
        "limits at the next update",
    )
    oom_bump_ratio: float = parameter(1.2, unit="factor", low=1.0, why="oom-bump-up-ratio")
    oom_min_bump_bytes: float = parameter(
        100 * _MIB,
        unit="byte",
        low=0.0,
        why="oom-min-bump-up-bytes: without it small containers would be killed again and again",
    )
    update_mode: str = parameter(
        "recreate",
        choices=MODES,
        why="updateMode; the VPA's default, which Escra's paper compares with",
    )
    resize_patience_s: float = parameter(
        300.0,
        unit="s",
        low=0.0,
        why="DeferredResizeUpdateTimeout: then a resize for which its node has no room becomes an eviction",
    )
    evict_when: str = parameter(
        "any",
        choices=("any", "higher", "lower", "oom"),
        why="evictionRequirements. any: none; higher, lower: TargetHigherThanRequests or "
        "TargetLowerThanRequests of CPU or memory, which the updater of 1.7 asks of resizes in place, too "
        "(autoscaler#10181); oom: evict only what was killed for memory soon after its start, which no "
        "release has yet (autoscaler#10174)",
    )
    limit_ratio: float = parameter(
        2.0,
        unit="limit / request",
        low=1.0,
        why="class Burstable, with the ratio in the examples of Kubernetes' documentation (requests of 250m "
        "and 64Mi, limits of 500m and 128Mi); 1: class Guaranteed, limits equal to the requests",
    )
    controlled_values: str = parameter(
        "requests_and_limits",
        choices=("requests_and_limits", "requests_only"),
        why="controlledValues; this default of the VPA keeps limits in proportion to requests; "
        "requests_only: limits stay what they were at the start",
    )
    initial_factor: float = parameter(
        1.0,
        unit="times the profiled peak",
        low=0.01,
        why="a profiled container requests its peak, as its owner would; its limit is limit_ratio times that",
    )

    def __post_init__(self) -> None:
        check("vpa", self)

    @property
    def in_place(self) -> bool:
        """Whether running containers are resized in place."""
        return self.update_mode in IN_PLACE_MODES
