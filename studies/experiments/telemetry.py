"""What late and lost telemetry do to Escra: a question that the source leaves open (section 2.6.9.2)."""

from __future__ import annotations

from typing import Any

from studies.experiments.measures import Pick, change, mean, scaled, total
from studies.experiments.model import Experiment, Figure

DELAYS_S = (0.0, 0.0001, 0.001, 0.005, 0.02, 0.05, 0.1, 0.2)
LOSSES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)


def _figures(key: str, values: tuple[float, ...], text: Any) -> tuple[Figure, ...]:
    found = []
    none = Pick("escra", {key: 0.0})
    for value in values:
        pick, aside = Pick("escra", {key: value}), text(value)
        for name, title, unit, decimals, measure in (
            ("latency_p50", "Latency p50, change", "%", 1, change("latency_p50_s", pick, none)),
            ("latency_p99", "Latency p99, change", "%", 1, change("latency_p99_s", pick, none)),
            ("latency_p999", "Latency p99.9, change", "%", 1, change("latency_p999_s", pick, none)),
            ("failed", "Requests not answered", "%", 2, scaled(100, mean("failed_share", pick))),
            ("throttled", "Throttled periods", "%", 2, scaled(100, mean("throttled_share", pick))),
            ("cpu_slack_p50", "CPU slack p50", "cores", 3, mean("cpu_slack_p50_cores", pick)),
            ("cpu_slack_p99", "CPU slack p99", "cores", 3, mean("cpu_slack_p99_cores", pick)),
            ("kills", "OOM kills, all runs", "1", 1, total("oom_kills", pick)),
        ):
            found.append(Figure(f"{name}@{aside}", title, unit, decimals, measure, aside))
    return tuple(found)


DELAY = Experiment(
    name="telemetry-delay",
    title="Escra with its Controller farther and farther away",
    scenario="telemetry_delay.yaml",
    method=(
        "The network's one-way delay is added to telemetry, to limit changes and to the grant of memory. "
        "HipsterShop and Teastore under Burst, which asks most of it; changes are against no delay, paired, "
        "mean over the two."
    ),
    discussion=(
        "Up to 5 ms the Controller may be far away, and latency even falls a little: a quota that is "
        "written later in the period refills the runtime of a container that has used more of it. From 20 "
        "ms on the tail doubles, and at half a period the median is lost too: decisions are about a "
        "period that is over, quotas are written where they refill most, and Escra reads what a refill "
        "gave as a limit that suffices. A controller belongs into the same region.",
    ),
    figures=_figures("machine.network_delay_s", DELAYS_S, lambda value: f"{1000 * value:g} ms"),
    curve="One-way delay between hosts and Controller",
)

LOSS = Experiment(
    name="telemetry-loss",
    title="Escra with a share of its telemetry lost",
    scenario="telemetry_loss.yaml",
    method=(
        "Each record is lost independently with this probability. HipsterShop and Teastore under Burst; "
        "changes are against no loss, paired, mean over the two."
    ),
    discussion=(
        "Loss harms in proportion and late: up to 2 % nothing is to be seen, 20 % nearly double the tail. "
        "A lost record delays a decision by one period, in which the next record says the same again; "
        "slack stays as it is.",
    ),
    figures=_figures("machine.telemetry_loss", LOSSES, lambda value: f"{100 * value:g} %"),
    curve="Telemetry lost",
)
