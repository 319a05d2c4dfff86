"""What a fabric's run is judged by. For: keys, titles, units and definitions. Not for: computing them."""

from __future__ import annotations

from lab.runs.metric import Metric


def _metric(key: str, title: str, unit: str, decimals: int, better: str, definition: str) -> Metric:
    return Metric(
        key,
        title,
        unit,
        decimals,
        "higher" if better == "higher" else "lower",
        definition,
    )


METRICS: tuple[Metric, ...] = (
    _metric(
        "outages", "Outages of paths", "1", 0, "lower", "Paths of flows that lost packets, a fault each."
    ),
    _metric(
        "gap_p50_s", "Gap p50", "s", 3, "lower", "Median over outages of the time in which packets are lost."
    ),
    _metric("gap_max_s", "Gap longest", "s", 3, "lower", "The same, the longest."),
    _metric(
        "false_downs_per_h",
        "False downs",
        "1/h",
        2,
        "lower",
        "BFD sessions brought down without a fault, on all links together, by stalls of the machine.",
    ),
    _metric(
        "failed", "Failed", "1", 0, "lower", "1 where a queue pair ended in error, or a job died; else 0."
    ),
    _metric(
        "latency_mean_s",
        "Latency mean",
        "s",
        6,
        "lower",
        "Of sends: mean over finished messages of half the time of a message there and one of its size back.",
    ),
    *(
        _metric(
            f"latency_{key}_s",
            f"Latency {title}",
            "s",
            6,
            "lower",
            f"The same, {title}: the value at rank ⌈share · messages⌉ counted from 0, as perftest prints it.",
        )
        for key, title in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"), ("max", "longest"))
    ),
    _metric(
        "late_messages",
        "Late messages",
        "1",
        0,
        "lower",
        "Of sends: finished messages that took more than twice the median.",
    ),
    *(
        _metric(
            f"iteration_p{share}_s",
            f"Iteration p{share}",
            "s",
            4,
            "lower",
            f"Of training: {share}th percentile of iterations, or of means of `average` of them in a row.",
        )
        for share in (50, 90, 95)
    ),
    _metric(
        "job_s", "Job time", "s", 1, "lower", "Of training: until all iterations are done, saves included."
    ),
    _metric("deaths", "Deaths", "1", 0, "lower", "Of training and fleets: how often the job died."),
    _metric(
        "stuck_s",
        "Longest standstill",
        "s",
        1,
        "lower",
        "Of training that died: the longest time in which it came no further than it had been before.",
    ),
    _metric(
        "accuracy",
        "Accuracy",
        "1",
        4,
        "higher",
        "Of training with `epochs`: the best so far at the time at which the undisturbed job ends.",
    ),
    _metric(
        "flat_s",
        "Longest flat line",
        "s",
        1,
        "lower",
        "Of training with `epochs`: the longest time without an epoch that is done for the first time.",
    ),
    _metric(
        "kept_share",
        "Work done",
        "1",
        4,
        "higher",
        "Of training: work done and saved when the job ended, or after twice the time that it needs.",
    ),
    _metric(
        "bus_bandwidth_mean_gbps",
        "Bus bandwidth",
        "Gbit/s",
        3,
        "higher",
        "Of collectives: nccl-tests' bus bandwidth over all operations and the time that they took.",
    ),
    *(
        _metric(
            f"bus_bandwidth_p{share}_gbps",
            f"Bus bandwidth p{share}",
            "Gbit/s",
            3,
            "higher",
            f"The same, {share}th percentile of single operations.",
        )
        for share in (20, 80)
    ),
    _metric(
        "retransmitted_packets",
        "Retransmitted packets",
        "1",
        0,
        "lower",
        "Of sends: packets that were sent again.",
    ),
    _metric(
        "effective_share",
        "Effective training time",
        "1",
        4,
        "higher",
        "Of fleets: share of the time that was training that was kept, at the pace of a healthy fleet.",
    ),
    _metric("lost_gpu_h", "Lost GPU-hours", "h", 0, "lower", "Of fleets: GPU-hours that were not that."),
    _metric("lost_cost", "Lost money", "USD", 0, "lower", "Of fleets: lost GPU-hours at their price."),
    _metric(
        "edge_faults", "Edge faults", "1", 0, "lower", "Of fleets: faults of cables, ports and adapters."
    ),
    _metric(
        "checkpoint_interval_s",
        "Checkpoint interval",
        "s",
        0,
        "higher",
        "Of fleets: work between two saves, given or Daly's optimum.",
    ),
)
