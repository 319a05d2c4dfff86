"""The metrics of fabric runs. For: keys, titles, units and definitions. Not for: computing them."""

from __future__ import annotations

from lab.runs.metric import Better, Metric

_RANK = (
    "It is the value at rank ⌈share · messages⌉ counted from 0, as perftest prints it. A message that an "
    "error left unfinished is later than any other; a value among such messages is a lower bound."
)
_ITERATION = "th percentile of iterations, or of means of `average` consecutive ones."
_BUS = "th percentile of the bus bandwidth of single operations, 0 for those that an error left unfinished."

LOST = {
    "rework_gpu_h": "work that was lost",
    "checkpoint_gpu_h": "saves",
    "detect_gpu_h": "finding failures",
    "replace_gpu_h": "restarting",
    "restore_gpu_h": "loading checkpoints",
    "stall_gpu_h": "stalls that the job survived",
    "queue_gpu_h": "waiting for nodes",
    "idle_spare_gpu_h": "spares and nodes in repair",
}
"""Metric of a fleet with a plan → what these GPU-hours were spent on instead of work that was kept."""

_ROWS: tuple[tuple[str, str, str, int, Better, str], ...] = (
    ("outages", "Outages of paths", "1", 0, "neither",
     "Number of paths on which flows lost packets, counted for each fault."),
    ("gap_p50_s", "Gap p50", "s", 3, "lower", "Median over outages of the time for which packets are lost."),
    ("gap_max_s", "Gap longest", "s", 3, "lower", "Longest time over outages for which packets are lost."),
    ("false_downs_per_h", "False downs", "1/h", 2, "lower",
     "BFD sessions, on all links together, that stalls of the hosts bring down without a fault. "
     "Stalls shorter than the calibration's `stalls.floor_s` are unknown, so it is a lower bound at "
     "detection times below that."),
    ("failed", "Failed", "1", 0, "lower",
     "1 if a queue pair ended in error or a job did not end, else 0. A job that dies may still end."),
    ("latency_mean_s", "Latency mean", "s", 6, "lower",
     "Sends: mean over messages of half the time of a message there and one of its size back. Messages that "
     "an error left unfinished count as the longest time that is known, so the mean is then a lower bound."),
    *(
        (f"latency_{key}_s", f"Latency {title}", "s", 6, "lower", f"Sends: latency, {title}. {_RANK}")
        for key, title in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"), ("max", "longest"))
    ),
    ("late_messages", "Late messages", "1", 0, "lower",
     "Sends: messages that took more than twice the median of the finished ones, or that an error left "
     "unfinished."),
    *(
        (f"iteration_p{share}_s", f"Iteration p{share}", "s", 4, "lower", f"Training: {share}{_ITERATION}")
        for share in (50, 90, 95)
    ),
    ("job_s", "Job time", "s", 1, "lower", "Training: time until all iterations are done, saves included."),
    ("deaths", "Deaths", "1", 0, "lower",
     "Training and fleets: number of times that the job died. Planned restarts are none."),
    ("stuck_s", "Longest standstill", "s", 1, "lower",
     "Training that died: longest time in which the job got no further than before."),
    ("accuracy", "Accuracy", "1", 4, "higher",
     "Training with `epochs`: best accuracy so far when the undisturbed job would end."),
    ("flat_s", "Longest flat line", "s", 1, "lower",
     "Training with `epochs`: longest time without an epoch that is done for the first time."),
    ("kept_share", "Work done", "1", 4, "higher",
     "Training: share of the work that was saved when the job ended, or after twice the time it needs."),
    ("bus_bandwidth_mean_gbps", "Bus bandwidth", "Gbit/s", 3, "higher",
     "Collectives: nccl-tests' bus bandwidth of all operations over the time that they took; 0 if an error "
     "left some unfinished."),
    *(
        (f"bus_bandwidth_p{share}_gbps", f"Bus bandwidth p{share}", "Gbit/s", 3, "higher",
         f"Collectives: {share}{_BUS}")
        for share in (20, 80)
    ),
    ("retransmitted_packets", "Retransmitted packets", "1", 0, "lower",
     "Sends: number of packets sent again."),
    ("effective_share", "Effective training time", "1", 4, "higher",
     "Fleets: share of the time spent on training progress that was kept, at the pace of a healthy fleet."),
    ("effective_share_run", "Effective, queue left out", "1", 4, "higher",
     "Fleets with a plan: the same share, of the time in which the job did not wait for nodes."),
    ("goodput_share", "Goodput", "1", 4, "higher",
     "Fleets with a plan: training progress that was kept, divided by that of a run without failures."),
    ("between_deaths_s", "Time between deaths", "s", 0, "higher",
     "Fleets with a plan: simulated time over the number of deaths."),
    *(
        (key, f"GPU-hours: {title}", "h", 0, "lower" if key in LOST else "higher",
         f"Fleets with a plan: GPU-hours of {title}. All of them add up to the fleet's, spares included.")
        for key, title in ({"productive_gpu_h": "kept work"} | LOST).items()
    ),
    ("lost_gpu_h", "Lost GPU-hours", "h", 0, "lower",
     "Fleets: GPU-hours not spent on training progress that was kept, at the pace of a healthy fleet."),
    ("lost_cost", "Lost money", "USD", 0, "lower", "Fleets: price of the lost GPU-hours."),
    ("edge_faults", "Edge faults", "1", 0, "neither",
     "Fleets: number of faults of cables, ports and adapters."),
    ("checkpoint_interval_s", "Checkpoint interval", "s", 0, "neither",
     "Fleets: work between two saves, as given or as Daly's optimum. With a plan: between two checkpoints "
     "that survive everything, as given or as the first-order optimum."),
)  # fmt: skip
"""Key, title, unit, decimals to print, which way is better, definition."""

METRICS: tuple[Metric, ...] = tuple(Metric(*row, may_be_bound=row[0].startswith("latency_")) for row in _ROWS)
