"""Autopilot's vertical scaling: recommenders set limits, which change in place every few minutes.

For: sampling, the update interval, the limits in force and OOM kills. Not for: computing limits
(autopilot_window.py, autopilot_ml.py) nor the application's global limits (cap.py).

Source: Rzadca et al., "Autopilot: workload autoscaling at Google", EuroSys 2020, §3. A CPU sample is a mean
of 1 s; memory is the peak of the update interval. The paper does not publish the weights, decays and margins
of its ML recommender. The values here are our choice, for the stated reasons; they are not fitted to a
published figure.

A memory limit is never lowered below the usage last reported: the kernel would refuse it (cgroup v1) or kill
the container (v2). Memory per container: about 6.5 kB with the ML recommender, 1.2 kB with the moving window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from control.allocator.autopilot_ml import Ensemble, EnsembleRecommender
from control.allocator.autopilot_window import Average, Peak, Percentile, Statistic, WindowRecommender
from control.allocator.histogram import Buckets, exponential
from control.allocator.model import (
    Application,
    Decision,
    Floats,
    History,
    Ids,
    Join,
    OomEvents,
    PeriodStats,
    Reason,
    Slots,
    slot,
)
from control.allocator.roster import Roster
from control.allocator.sampled import SampledPolicy
from control.settings import check, parameter
from twinbed import ScenarioError

_STATISTICS = ("percentile", "average", "max")


@dataclass(frozen=True)
class AutopilotSettings:
    """Parameters of Autopilot: common ones, the moving window's, the ML recommender's."""

    recommender: str = parameter(
        "ml", choices=("ml", "moving_window"), why="the recommender that the Escra paper compares with"
    )
    update_interval_s: float = parameter(300.0, unit="s", low=0.1, why="the paper updates every five minutes")
    sample_interval_s: float = parameter(
        1.0, unit="s", low=0.01, why="the paper's raw signal has one sample a second"
    )
    bucket_ratio: float = parameter(
        1.05,
        unit="factor",
        low=1.01,
        high=2.0,
        why="candidate limits are 5 % apart, as in the VPA; a coarser grid takes less memory and leaves "
        "more slack",
    )
    initial_factor: float = parameter(
        1.0, unit="factor", low=0.01, why="a profiled container starts at its peak, as its owner would ask"
    )
    oom_factor: float = parameter(
        1.5,
        unit="factor",
        low=1.01,
        why="our choice: a container that grows to 10× its limit gets there after six kills",
    )

    cpu_statistic: str = parameter(
        "percentile",
        choices=_STATISTICS,
        why="the paper's choice for serving jobs (batch: average)",
    )
    cpu_percentile: float = parameter(
        0.95,
        unit="fraction of load",
        low=0.01,
        high=1.0,
        why="the paper's choice for latency-sensitive serving",
    )
    cpu_half_life_s: float = parameter(43_200.0, unit="s", low=1.0, why="12 h in the paper")
    memory_statistic: str = parameter(
        "max",
        choices=_STATISTICS,
        why="the paper's choice for jobs that tolerate OOM kills least; percentile suits those that "
        "tolerate a few",
    )
    memory_percentile: float = parameter(
        0.98,
        unit="fraction of time",
        low=0.01,
        high=1.0,
        why="the paper's choice for a low tolerance of OOM kills",
    )
    memory_half_life_s: float = parameter(172_800.0, unit="s", low=1.0, why="48 h in the paper")
    max_window_s: float = parameter(
        86_400.0, unit="s", low=1.0, why="our choice, as N is not published: one day-night cycle"
    )
    margin: float = parameter(
        0.15, unit="fraction", low=0.0, why="the paper adds 10-15 %; this is the cautious end"
    )
    hold_s: float = parameter(
        3600.0, unit="s", low=0.0, why="the paper takes the highest recommendation of the last hour"
    )

    decays: tuple[float, ...] = parameter(
        (0.5, 0.1, 0.02),
        unit="per update",
        low=0.0001,
        high=1.0,
        why="our choice: half-lives of 1, 7 and 34 updates, which is from one interval to three hours",
    )
    margins: tuple[float, ...] = parameter(
        (0.1, 0.2),
        unit="fraction of the limit",
        low=0.0,
        why="our choice: usage cannot exceed its limit, so a margin below two buckets would never show that"
        " more is wanted; no cost leads back from a larger margin, so the largest one is small",
    )
    overrun_weight: float = parameter(
        10.0,
        unit="cost of all time above",
        low=0.0,
        why="our choice: one throttled second costs as much as ten seconds of slack",
    )
    memory_overrun_weight: float = parameter(
        100.0,
        unit="cost of all time above",
        low=0.0,
        why="our choice: an OOM kill loses work, while throttling only delays it",
    )
    underrun_weight: float = parameter(
        1.0, unit="cost of all time below", low=0.0, why="the unit of the other weights"
    )
    limit_change_weight: float = parameter(
        0.1,
        unit="cost per change",
        low=0.0,
        why="our choice: a change must save at least a tenth of an interval's slack",
    )
    model_change_weight: float = parameter(
        0.1, unit="cost per change", low=0.0, why="our choice: as for a change of the limit"
    )
    cost_decay: float = parameter(
        0.1,
        unit="per update",
        low=0.0001,
        high=1.0,
        why="our choice: a model is judged by about its last ten updates",
    )

    def __post_init__(self) -> None:
        check("autopilot", self)
        for key in ("decays", "margins"):
            if not getattr(self, key):
                raise ScenarioError(f"autopilot.{key}: the ensemble needs at least one value")
        if self.update_interval_s < self.sample_interval_s:
            raise ScenarioError(
                f"autopilot.update_interval_s: {self.update_interval_s} s is shorter than "
                f"sample_interval_s, {self.sample_interval_s} s"
            )


Recommender = EnsembleRecommender | WindowRecommender
"""Recommends the limits of one resource."""


class Autopilot(SampledPolicy):
    """Changes limits in place, as Autopilot recommends.

    Implements `ports.Learner`: if there is a history, the first limits are the recommendation at its end.
    """

    name = "autopilot"

    def __init__(self, settings: AutopilotSettings) -> None:
        self.settings = settings
        self._history: History | None = None
        super().__init__(settings.initial_factor, settings.sample_interval_s, settings.update_interval_s)

    def learn(self, history: History) -> None:
        """Feed the history to the recommenders at the next `start`."""
        self._history = history

    def start(self, applications: Sequence[Application], containers: Join) -> Decision:
        """Set initial limits: the recommended ones if there is a history, else those of `SampledPolicy`."""
        first = super().start(applications, containers)
        if self._history is None:
            return first
        self._recall(self._history, first.cpu.ids)
        slots = slot(first.cpu.ids)
        return Decision(
            cpu=self._fleet.cpu_limits(slots, Reason.INITIAL),
            memory=self._fleet.memory_limits(slots, Reason.INITIAL),
        )

    def _recall(self, history: History, ids: Ids) -> None:
        """Sample and update as if the history's periods had just been reported. It ends at time 0."""
        nothing, unthrottled = np.zeros(len(ids)), np.zeros(len(ids), np.bool_)
        at_s = (np.arange(len(history.usage_cores)) + 1.0 - len(history.usage_cores)) * history.period_s
        for row, end_s in enumerate(at_s.tolist()):
            usage, memory = history.usage_cores[row], history.memory_bytes[row]
            self._usage.add(
                PeriodStats(ids, nothing, nothing, unthrottled, usage, memory, history.period_s, end_s)
            )
            if self._sample_interval.over(end_s, history.period_s):
                self._sample(end_s)
            if self._update_interval.over(end_s, history.period_s):
                self._update(end_s, history.period_s)
        # A history may end inside an interval. That interval then ends with the history, and the run's
        # intervals begin with the run.
        self._sample(0.0)
        self._update(0.0, history.period_s)
        self._begin_intervals()

    def on_oom(self, event: OomEvents) -> Decision:
        """Raise the memory limit of killed containers at once.

        The memory that a container asked for also becomes its peak of this interval, so that the next
        recommendation covers it.
        """
        known = self._fleet.roster.member(event.ids)
        slots, first = np.unique(slot(event.ids[known]), return_index=True)
        limit = self._fleet.memory.values[slots]
        asked = limit + event.needed_bytes[known][first]
        self._peak_bytes.values[slots] = np.fmax(self._peak_bytes.values[slots], asked)
        raised = slots[self._fleet.memory.change(slots, np.maximum(limit * self.settings.oom_factor, asked))]
        return Decision(memory=self._fleet.memory_limits(raised, Reason.OOM_BUMP))

    def _set_up(self, roster: Roster) -> None:
        self._peak_bytes = roster.column(np.nan, np.float64)
        self._cpu = cpu_recommender(roster, self.settings)
        self._memory = memory_recommender(roster, self.settings)

    def _observe(self, slots: Slots, cores: Floats, peak_bytes: Floats, at_s: float) -> None:
        self._cpu.observe(slots, cores, at_s)
        self._peak_bytes.values[slots] = np.fmax(self._peak_bytes.values[slots], peak_bytes)

    def _observe_all(self, slots: Slots, cores: Floats, peak_bytes: Floats, at_s: Floats) -> None:
        self._cpu.observe_all(slots, cores, at_s)
        peak_bytes = peak_bytes.max(axis=0)
        self._peak_bytes.values[slots] = np.fmax(self._peak_bytes.values[slots], peak_bytes)

    def _update(self, at_s: float, period_s: float) -> Decision:  # noqa: ARG002 - as in SampledPolicy
        fleet = self._fleet
        peak = self._peak_bytes.values[: fleet.roster.size]
        slots = np.flatnonzero(fleet.roster.alive & ~np.isnan(peak))
        self._memory.observe(slots, peak[slots], at_s)
        self._peak_bytes.values[:] = np.nan
        cores = np.minimum(self._cpu.recommend(slots, at_s), fleet.roster.host_cores[slots])
        cores = np.where(np.isnan(cores), fleet.cpu.values[slots], cores)
        size = np.maximum(self._memory.recommend(slots, at_s), self._usage.memory_bytes[slots])
        cpu_changed = slots[fleet.cpu.change(slots, cores)]
        memory_changed = slots[fleet.memory.change(slots, size)]
        return Decision(
            cpu=fleet.cpu_limits(cpu_changed, Reason.RECOMMENDED),
            memory=fleet.memory_limits(memory_changed, Reason.RECOMMENDED),
        )


def cpu_recommender(roster: Roster, s: AutopilotSettings) -> Recommender:
    """Return the configured recommender over CPU buckets of 0.01 core and wider, up to 1000 cores."""
    buckets = exponential(0.01, s.bucket_ratio, 1000.0)
    if s.recommender == "ml":
        return _ensemble(roster, buckets, s, s.overrun_weight)
    return _window(roster, buckets, s, s.cpu_statistic, s.cpu_half_life_s, s.cpu_percentile, of_load=True)


def memory_recommender(roster: Roster, s: AutopilotSettings) -> Recommender:
    """Return the configured recommender over memory buckets of 1 MB and wider, up to 1 TB."""
    buckets = exponential(1e6, s.bucket_ratio, 1e12)
    if s.recommender == "ml":
        return _ensemble(roster, buckets, s, s.memory_overrun_weight)
    name, half_life_s, fraction = s.memory_statistic, s.memory_half_life_s, s.memory_percentile
    return _window(roster, buckets, s, name, half_life_s, fraction, of_load=False)


def _window(
    roster: Roster,
    buckets: Buckets,
    s: AutopilotSettings,
    name: str,
    half_life_s: float,
    fraction: float,
    *,
    of_load: bool,
) -> WindowRecommender:
    statistic: Statistic
    if name == "percentile":
        statistic = Percentile(roster, buckets, half_life_s, fraction, of_load=of_load)
    elif name == "average":
        statistic = Average(roster, buckets, half_life_s)
    else:
        statistic = Peak(roster, buckets, s.max_window_s)
    return WindowRecommender(roster, statistic, s.margin, s.hold_s)


def _ensemble(roster: Roster, buckets: Buckets, s: AutopilotSettings, overrun: float) -> EnsembleRecommender:
    weights = Ensemble(
        decays=s.decays,
        margins=s.margins,
        overrun=overrun,
        underrun=s.underrun_weight,
        limit_change=s.limit_change_weight,
        model_change=s.model_change_weight,
        cost_decay=s.cost_decay,
    )
    return EnsembleRecommender(roster, buckets, weights)
