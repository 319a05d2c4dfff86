"""Beyond the source: policies that a practitioner would compare Escra with today, on E2's questions."""

from __future__ import annotations

from studies.experiments.measures import Pick, change, mean, scaled, total
from studies.experiments.model import Experiment, Figure, Measure

POLICIES = (
    "escra",
    "autothrottle",
    "vpa",
    "vpa:in_place=true",
    "autopilot:update_interval_s=1",
    "static:factor=1.5",
)


def _of(policy: str) -> tuple[tuple[str, str, str, int, Measure], ...]:
    pick, escra = Pick(policy), Pick("escra")
    return (
        ("latency_p50", "Latency p50, vs Escra", "%", 1, change("latency_p50_s", pick, escra)),
        ("latency_p999", "Latency p99.9, vs Escra", "%", 1, change("latency_p999_s", pick, escra)),
        ("throughput", "Throughput, vs Escra", "%", 1, change("throughput_rps", pick, escra)),
        ("failed", "Requests not answered", "%", 2, scaled(100, mean("failed_share", pick))),
        ("throttled", "Throttled periods", "%", 2, scaled(100, mean("throttled_share", pick))),
        ("cpu_slack_p50", "CPU slack p50", "cores", 3, mean("cpu_slack_p50_cores", pick)),
        ("cpu_slack_p99", "CPU slack p99", "cores", 3, mean("cpu_slack_p99_cores", pick)),
        ("memory_slack_p50", "Memory slack p50", "MiB", 1, mean("memory_slack_p50_mib", pick)),
        ("reserved", "Reserved CPU", "cores", 2, mean("mean_reserved_cores", pick)),
        ("kills", "OOM kills, all 8 runs", "1", 1, total("oom_kills", pick)),
        ("restarts", "Restarts, all 8 runs", "1", 1, total("restarts", pick)),
        ("changes", "Limit changes", "1/s", 1, mean("limit_changes_per_s", pick)),
    )


BEYOND = Experiment(
    name="beyond",
    title="Escra beside Autothrottle, VPA with and without restarts, Autopilot and static limits",
    scenario="beyond.yaml",
    method=(
        "As E2, with every policy compared with Escra on the same application, workload and seed; means over "
        "two applications (HipsterShop, Teastore) under the four workloads."
    ),
    discussion=(
        "Who sizes memory from a profile without a margin (Autothrottle, VPA and Autopilot begin at 1.0 "
        "times the peak of another run) loses containers to memory, and with them requests; who holds and "
        "grants, as Escra does, or reserves half as much again, as static limits do, does not. VPA raises "
        "a killed container only at its next update, a minute later, with or without a restart: resizing "
        "in place changes nothing where kills, and not restarts, are the trouble.",
        "Autothrottle holds CPU with a sixteenth of Escra's limit changes and a median latency slightly "
        "below, at a quarter more CPU reserved; its tail is longer. Its 12 % of unanswered requests are "
        "memory's, which it does not control.",
    ),
    figures=tuple(
        Figure(f"{key}@{policy}", title, unit, decimals, measure, policy)
        for policy in POLICIES
        for key, title, unit, decimals, measure in _of(policy)
    ),
)
