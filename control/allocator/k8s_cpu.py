"""The Kubernetes-like CPU scalers that Autothrottle was compared with: recent usage over a target.

For: `k8s-cpu`, with the horizontal pod autoscaler's timing, and `k8s-cpu-fast`, fifteen times as fast. Both
change the quota of a container instead of the number of its replicas. Not for: memory, which keeps its first
limit, nor the application's limit Ω, which the source does not know (cap.py).

Source: the baselines of Wang et al., "Autothrottle", NSDI 2024, as the authors published them
(microsoft/autothrottle, worker-daemon.py). At the end of every interval, the mean usage over the target
utilisation is stored. The quota is the largest stored value of the window, so it rises at once and falls
after a window has passed. The quotas are those of the code (tests/oracles/test_k8s_cpu.py). The timing of
`k8s-cpu` is the horizontal pod autoscaler's.

Memory per container: 8 bytes for each interval of the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from control.allocator.model import Decision, Floats, Reason, Slots
from control.allocator.roster import Roster
from control.allocator.sampled import SampledPolicy
from control.allocator.usage import whole_intervals
from control.settings import check, parameter
from twinbed import ScenarioError


@dataclass(frozen=True)
class K8sCpuSettings:
    """Parameters of the scaler with the horizontal pod autoscaler's timing."""

    policy: ClassVar[str] = "k8s-cpu"

    target_utilisation: float = parameter(
        0.5,
        unit="share of the quota",
        low=0.01,
        high=1.0,
        why="the median of the targets that the source found best for its three applications under four "
        "traces (§A.6: 0.4 to 0.7)",
    )
    interval_s: float = parameter(15.0, unit="s", low=0.1, why="horizontal-pod-autoscaler-sync-period")
    window_s: float = parameter(
        300.0, unit="s", low=0.1, why="horizontal-pod-autoscaler-downscale-stabilization"
    )
    initial_factor: float = parameter(
        1.0, unit="times the profiled peak", low=0.01, why="as under other policies"
    )
    initial_memory_factor: float = parameter(
        1000.0,
        unit="times the profiled peak",
        low=0.01,
        why="memory is not managed, as under autothrottle: all of M is given out in proportion to the peaks",
    )

    def __post_init__(self) -> None:
        check(self.policy, self)
        if self.window_s < self.interval_s:
            raise ScenarioError(
                f"{self.policy}.window_s: {self.window_s} s is shorter than interval_s, {self.interval_s} s"
            )


@dataclass(frozen=True)
class K8sCpuFastSettings(K8sCpuSettings):
    """Parameters of the fast scaler."""

    policy: ClassVar[str] = "k8s-cpu-fast"

    target_utilisation: float = parameter(
        0.6,
        unit="share of the quota",
        low=0.01,
        high=1.0,
        why="the median of the targets that the source found best for its three applications under four "
        "traces (§A.6: 0.4 to 0.8)",
    )
    interval_s: float = parameter(1.0, unit="s", low=0.1, why="as the source's K8s-CPU-Fast")
    window_s: float = parameter(20.0, unit="s", low=0.1, why="as the source's K8s-CPU-Fast")


class K8sCpu(SampledPolicy):
    """Keeps quotas at recent use over a target: k8s-cpu, or k8s-cpu-fast, fifteen times as fast, by its
    settings."""

    def __init__(self, settings: K8sCpuSettings) -> None:
        self.name, self.settings = settings.policy, settings
        s = settings
        super().__init__(s.initial_factor, s.interval_s, s.interval_s, s.initial_memory_factor)

    def _set_up(self, roster: Roster) -> None:
        s = self.settings
        self._remembered = roster.column(0.0, np.float64, whole_intervals(s.window_s, s.interval_s))
        self._samples = roster.column(0, np.int64)

    def _observe(self, slots: Slots, cores: Floats, peak_bytes: Floats, at_s: float) -> None:  # noqa: ARG002
        samples = self._samples.values[slots]
        length = self._remembered.values.shape[1]
        self._remembered.values[slots, samples % length] = cores / self.settings.target_utilisation
        self._samples.values[slots] = samples + 1

    def _update(self, at_s: float, period_s: float) -> Decision:  # noqa: ARG002 - as in SampledPolicy
        fleet = self._fleet
        size = fleet.roster.size
        slots = np.flatnonzero(fleet.roster.alive & (self._samples.values[:size] > 0))
        wanted = self._remembered.values[slots].max(axis=1)
        changed = slots[fleet.cpu.change(slots, np.minimum(wanted, fleet.roster.host_cores[slots]))]
        return Decision(cpu=fleet.cpu_limits(changed, Reason.RECOMMENDED))
