"""KRR's strategies `simple` and `simple_limit`: requests and limits from recorded usage of a workload's pods.

For: one recommendation from histories, and `krr`, the policy that puts it in force at the start. Not for:
changing limits while a workload runs, because KRR reads recordings only. A workload with a horizontal pod
autoscaler is advised like any other, as with KRR's allow-hpa; KRR's default has no opinion on it.

Source: robusta-dev/krr, robusta_krr/strategies/simple.py and simple_limit.py, and the rounding of
robusta_krr/core/runner.py. As there, NaN means that there is no opinion, and None means no limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isnan, nan

import numpy as np

from control.allocator.model import Floats, Join
from control.allocator.ports import Given
from control.allocator.profiled import cpu_samples, memory_samples, profile_of
from control.allocator.static import NO_QUOTA_CORES, FixedLimits, Plan
from control.settings import check, parameter
from twinbed import ScenarioError

_MIB = 1 << 20
_LEAST_CORES = 0.01
_LEAST_BYTES = 100.0 * _MIB


@dataclass(frozen=True, slots=True)
class KrrSettings:
    """Parameters of both strategies. The defaults are KRR's."""

    cpu_percentile: float = parameter(
        95.0, unit="percent", low=0.01, high=100.0, why="simple: percentile of each pod's CPU use"
    )
    cpu_request_percentile: float = parameter(
        66.0, unit="percent", low=0.01, high=100.0, why="simple_limit: percentile of all pods' CPU use"
    )
    cpu_limit_percentile: float = parameter(
        96.0, unit="percent", low=0.01, high=100.0, why="simple_limit: percentile of all pods' CPU use"
    )
    memory_buffer: float = parameter(
        15.0, unit="percent", low=0.0, why="memory-buffer-percentage, on the largest usage"
    )
    oom_memory_buffer: float = parameter(
        25.0, unit="percent", low=0.0, why="oom-memory-buffer-percentage, on a limit that was too small"
    )
    cpu_limits: bool = parameter(
        False, unit="true | false", why="off: strategy simple, which is krr's default; on: simple_limit"
    )
    sample_interval_s: float = parameter(
        75.0, unit="s", low=0.01, why="timeframe-duration: 1.25 min between two points of Prometheus"
    )
    points_required: int = parameter(
        100, unit="samples", low=1, why="points-required, over all pods: fewer allow no recommendation"
    )

    def __post_init__(self) -> None:
        check("krr", self)


@dataclass(frozen=True, slots=True)
class Advice:
    """Requests and limits of every pod of a workload, in cores and bytes; NaN: no opinion, None: no limit."""

    cpu_request_cores: float
    cpu_limit_cores: float | None
    memory_request_bytes: float
    memory_limit_bytes: float


def simple(
    cores: Sequence[Floats], memory: Sequence[Floats], settings: KrrSettings, oom_limit_bytes: float = 0.0
) -> Advice:
    """Return the largest of the pods' CPU percentiles without a CPU limit, and the largest memory.

    cores, memory: usage, one array of samples per pod, cores and bytes; a pod without samples says nothing.
    oom_limit_bytes: largest limit under which a pod was killed for memory, 0 if none was. The percentile is
    rounded to whole percent first.
    """
    cpu = nan
    if _enough(cores, settings):
        # KRR asks Prometheus, whose quantile_over_time is linear between the two nearest ranks, as NumPy's.
        whole = round(settings.cpu_percentile / 100, 2)
        cpu = max(float(np.quantile(pod, whole)) for pod in cores if pod.size)
    size = _memory(memory, settings, oom_limit_bytes)
    return Advice(cpu, nan if isnan(cpu) else None, size, size)


def simple_limit(
    cores: Sequence[Floats], memory: Sequence[Floats], settings: KrrSettings, oom_limit_bytes: float = 0.0
) -> Advice:
    """Return two percentiles of all pods' CPU samples together, and the largest memory.

    The arguments are those of `simple`.
    """
    request = limit = nan
    if _enough(cores, settings):
        together = np.concatenate(cores)
        percentiles = settings.cpu_request_percentile, settings.cpu_limit_percentile
        request, limit = (float(value) for value in np.percentile(together, percentiles))
    size = _memory(memory, settings, oom_limit_bytes)
    return Advice(request, limit, size, size)


def shown(advice: Advice) -> Advice:
    """Return the advice rounded up to whole millicores and MiB, at least 10 millicores and 100 MiB."""
    limit = advice.cpu_limit_cores
    return Advice(
        _up(advice.cpu_request_cores, 1000, _LEAST_CORES),
        None if limit is None else _up(limit, 1000, _LEAST_CORES),
        _up(advice.memory_request_bytes, 1 / _MIB, _LEAST_BYTES),
        _up(advice.memory_limit_bytes, 1 / _MIB, _LEAST_BYTES),
    )


def _enough(pods: Sequence[Floats], settings: KrrSettings) -> bool:
    return sum(len(pod) for pod in pods) >= settings.points_required


def _memory(pods: Sequence[Floats], settings: KrrSettings, oom_limit_bytes: float) -> float:
    if not _enough(pods, settings):
        return nan
    peak = max(float(pod.max()) for pod in pods if pod.size)
    return max(
        peak * (1 + settings.memory_buffer / 100), oom_limit_bytes * (1 + settings.oom_memory_buffer / 100)
    )


def _up(value: float, steps_per_unit: float, least: float) -> float:
    return value if isnan(value) else max(ceil(value * steps_per_unit) / steps_per_unit, least)


class Krr(FixedLimits):
    """Puts KRR's advice from the profile in force once. Each container is a workload of its own."""

    name = "krr"
    given = Given(profile=True)

    def __init__(self, settings: KrrSettings) -> None:
        self._settings = settings

    def _plan(self, containers: Join) -> Plan:
        """Return the advice. Raise ScenarioError where the strategy has no opinion: KRR's users would change
        nothing.
        """
        s = self._settings
        profile = profile_of(self.name, containers)
        strategy = simple_limit if s.cpu_limits else simple
        cores, memory = (of(profile, s.sample_interval_s) for of in (cpu_samples, memory_samples))
        points = min(map(len, cores), default=s.points_required)
        if points < s.points_required:
            raise ScenarioError(
                f"krr: has no opinion from {points} samples of {s.sample_interval_s:g} s, below "
                f"points_required={s.points_required}; give a longer profile, or a smaller sample_interval_s "
                "or points_required"
            )
        advice = [shown(strategy([pod], [used], s)) for pod, used in zip(cores, memory, strict=True)]
        limits = [pod.cpu_limit_cores for pod in advice]
        return Plan(
            np.array([NO_QUOTA_CORES if cores is None else cores for cores in limits], np.float64),
            np.array([pod.memory_limit_bytes for pod in advice], np.int64),
            np.array([pod.cpu_request_cores for pod in advice], np.float64),
        )
