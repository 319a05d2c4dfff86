"""E2-profiling: what aggregation hides from whoever sets static limits. Source: section 2.6.2 and 2.6.3."""

from __future__ import annotations

from studies.experiments.measures import Pick, mean, scaled, total
from studies.experiments.model import Experiment, Figure

FACTORS = ("0.75", "1", "1.5")
INTERVALS_S = (0.1, 1.0, 10.0)

_MEASURED = (
    ("latency_p999", "latency_p999_s", "Latency p99.9", "s", 3),
    ("latency_p50", "latency_p50_s", "Latency p50", "s", 4),
    ("failed", "failed_share", "Requests not answered", "%", 2),
    ("throttled", "throttled_share", "Throttled periods", "%", 2),
    ("cpu_slack", "cpu_slack_p50_cores", "CPU slack p50", "cores", 3),
    ("reserved", "mean_reserved_cores", "Reserved CPU", "cores", 2),
)


def _figures() -> tuple[Figure, ...]:
    found = []
    for factor in FACTORS:
        for interval_s in INTERVALS_S:
            pick = Pick(f"static:factor={factor}", {"profile.interval_s": interval_s})
            aside = f"{factor}× {interval_s:g}s"
            for key, metric, title, unit, decimals in _MEASURED:
                measure = mean(metric, pick)
                if unit == "%":
                    measure = scaled(100, measure)
                found.append(Figure(f"{key}@{aside}", title, unit, decimals, measure, aside))
            found.append(
                Figure(f"kills@{aside}", "OOM kills, all workloads", "1", 1, total("oom_kills", pick), aside)
            )
    return tuple(found)


PROFILING = Experiment(
    name="E2-profiling",
    title="Static limits of 0.75, 1 and 1.5 × peaks profiled over 0.1 to 10 s",
    scenario="E2-profiling.yaml",
    method=(
        "MediaMicroservice under Exponential and Burst; limits are a factor times the largest mean over the "
        "profiling interval of a run without limits, at the same workload with another seed. Means over the "
        "workloads."
    ),
    discussion=(
        "Averaging hides spikes: at 1.5 times the peak, p99.9 is ten times larger when the peak was read "
        "over 1 s instead of 0.1 s, and four times larger again over 10 s, with less and less CPU "
        "reserved.",
        "At 0.75 and 1 times the peak memory decides, which a factor scales like CPU: an idle process is "
        "most of its peak, so that at 0.75 nobody lives, and at 1.0 whoever needs a little more than in "
        "the profiling run is killed again and again. Latencies there are those of the few requests that "
        "were answered.",
    ),
    figures=_figures(),
)
