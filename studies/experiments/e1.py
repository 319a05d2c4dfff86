"""E1: one container whose load saturates 1 to 4 CPUs in turn. For: the definition. Source: figure 2.2."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from studies.experiments.measures import Pick, mean
from studies.experiments.model import Case, Change, Experiment, Figure

GAMMA_CORES = 0.2
"""Escra lowers no limit that leaves less than this unused: below it a limit has come down far enough."""

NEAR = 0.99
"""Escra makes no change below 1 %: a limit within that of the demand has gone up far enough."""

_ESCRA = Pick("escra")


def follows_s(case: Case, direction: int) -> float:
    """Longest time from a step of the demand (+1 up, −1 down) to a limit that fits it, seconds.

    A limit fits when it is at least 99 % of the demand (up) or at most γ above it (down), at the end of a
    period; infinite where it never does.
    """
    frame = case.run.frame("periods", ["demand_cores", "quota_cores"])
    demand = frame["demand_cores"].to_numpy(np.float64)
    quota = frame["quota_cores"].to_numpy(np.float64)
    period_s = float(case.run.manifest["workload"]["period_s"])
    steps = np.flatnonzero(np.sign(np.diff(demand)) == direction) + 1
    longest = 0.0
    for start in steps:
        fits = (
            quota[start:] >= NEAR * demand[start]
            if direction > 0
            else quota[start:] <= demand[start] + GAMMA_CORES
        )
        longest = max(longest, (int(np.argmax(fits)) + 1) * period_s if fits.any() else np.inf)
    return longest


def _up(cases: Sequence[Case]) -> float:
    return max(follows_s(case, +1) for case in _ESCRA.of(cases))


def _down(cases: Sequence[Case]) -> float:
    return max(follows_s(case, -1) for case in _ESCRA.of(cases))


E1 = Experiment(
    name="E1",
    title="One container, load saturating 1-4 CPUs in turn",
    scenario="E1.yaml",
    method=(
        "The limit follows a step up when it is at least 99 % of the demand, a step down when it is at most "
        "γ = 0.2 core above it; counted from the step to the end of that period, the longest of all steps. "
        "The source shows a curve; its text promises reactions within hundreds of milliseconds, read as at "
        "most a second."
    ),
    figures=(
        Figure(
            "follows_s", "Longest time to follow a step", "s", 2, lambda cases: max(_up(cases), _down(cases))
        ),
        Figure("up_s", "Longest time to follow a step up", "s", 2, _up),
        Figure("down_s", "Longest time to follow a step down", "s", 2, _down),
        Figure("slack", "Median CPU slack", "cores", 3, mean("cpu_slack_p50_cores", _ESCRA)),
    ),
    discussion=(
        "Upwards, Escra needs a throttled period to notice, then adds a share of the unallocated pool in "
        "each period, a share that grows as its window fills with throttles; downwards, the window must "
        "forget first. So the time is set by Υ, the window and the room that Ω leaves, and by nothing of "
        "the machine; each moves it by a period or two.",
        "Two conditions break it. With Ω no larger than the peak, the last step is approached by ever "
        "smaller raises and not reached. With telemetry half a period late, quotas are written in the "
        "middle of periods, and a write refills the container's runtime: it uses more than its limit "
        "without being throttled, and the limit stays below the use.",
    ),
    sensitivity=(
        Change("Υ=10%", ("escra.upsilon=10",)),
        Change("Υ=40%", ("escra.upsilon=40",)),
        Change("window=10", ("escra.window=10",)),
        Change("no guard", ("escra.stale_mean_guard=false",)),
        Change("Ω=1×peak", ("budget_factor=1.0",)),
        Change("Ω=3×peak", ("budget_factor=3.0",)),
        Change("period=50ms", ("period_s=0.05",)),
        Change("telemetry +50ms", ("machine.telemetry_delay_s=0.05",)),
    ),
)
