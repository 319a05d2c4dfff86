"""The metrics of runs on a market. For: keys, titles, units and definitions. Not for: computing them
(lab.cloud.run.runner)."""

from __future__ import annotations

from lab.runs.metric import Better, Metric

_ROWS: tuple[tuple[str, str, str, int, Better, str], ...] = (
    ("cost_usd", "Cost", "USD", 2, "lower", "Price of all machines, moves and probes of the job."),
    ("egress_usd", "Moving data", "USD", 2, "lower", "Price of moving the checkpoint to other regions."),
    ("probes_usd", "Probes", "USD", 2, "lower",
     "Price of machines that were started only to see whether there are some."),
    ("over_optimum", "÷ optimum", "1", 3, "lower",
     "Cost divided by the least cost in hindsight, with decisions at every minute. No value where the "
     "speeds of machines have no common measure, or machines are paid in steps below a minute."),
    ("finish_h", "Ends after", "h", 2, "lower", "Time from the start until the work is done."),
    ("late", "Late", "1", 2, "lower", "1 if the job ended after its deadline, else 0; a mean is a share."),
    ("lost_h", "Lost work", "h", 2, "lower", "Work that was done again because a machine was taken away."),
    ("waiting_h", "Waiting", "h", 2, "lower", "Time without a machine before the end."),
    ("starting_h", "Starting", "h", 2, "lower", "Time with a machine that starts or is being left."),
    ("spot_h", "On spot", "h", 2, "neither", "Time for which the job held spot machines."),
    ("on_demand_h", "On demand", "h", 2, "neither", "Time for which the job held on-demand machines."),
    ("starts", "Starts", "1", 1, "neither", "Number of times that machines were started."),
    ("moves", "Moves", "1", 1, "neither",
     "Number of starts in another zone than the one before, or on demand instead of spot, or the reverse."),
    ("region_moves", "Region moves", "1", 1, "neither",
     "Number of starts with the checkpoint of another region."),
    ("revocations", "Revocations", "1", 1, "neither", "Number of notices that machines would be taken away."),
)  # fmt: skip
"""Key, title, unit, decimals to print, which way is better, definition."""

METRICS: tuple[Metric, ...] = tuple(Metric(*row) for row in _ROWS)
