"""What FC²'s Scala-Opt chooses in its experiments F1–F4, and what the choice costs beside Time-Opt's.

For: the experiments' figures and the results page. Not for: the rules (control.recommender.fc2), nor how fast
a type trains (convnet.py). Source: FC² (Ta, Cluster Computing 22, 2019) §8: types, server and cap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from control.recommender import fc2
from studies.cloud import convnet
from traces.catalogue.catalogue import Listing

REGION = "ap-southeast-1"
CAP = 6
"""Most workers in every experiment of FC² (§8)."""
_IMAGES = 1e6


@dataclass(frozen=True, slots=True)
class Choice:
    """One experiment of FC²: what may be chosen at a batch size, and what the source's Scala-Opt chose."""

    experiment: str
    types: tuple[str, ...]
    server: str
    batch: int
    source: tuple[str, int]


CPU = ("m4.xlarge", "t2.xlarge", "c4.xlarge")
HIGH = ("g3.4xlarge", "p2.xlarge", "c4.8xlarge")
CHOICES = (
    Choice("F1", CPU, "m4.large", 64, ("t2.xlarge", 2)),
    Choice("F1", CPU, "m4.large", 128, ("t2.xlarge", 3)),
    Choice("F2", (*CPU, "p2.xlarge"), "m4.large", 128, ("p2.xlarge", 2)),
    Choice("F2", (*CPU, "p2.xlarge"), "m4.large", 512, ("p2.xlarge", 3)),
    Choice("F2", (*CPU, "p2.xlarge"), "m4.large", 1280, ("p2.xlarge", 5)),
    Choice("F3", HIGH, "m4.2xlarge", 128, ("g3.4xlarge", 2)),
    Choice("F3", HIGH, "m4.2xlarge", 512, ("g3.4xlarge", 4)),
    Choice("F4", HIGH, "m4.10xlarge", 128, ("g3.4xlarge", 6)),
    Choice("F4", HIGH, "m4.10xlarge", 512, ("g3.4xlarge", 6)),
)


def plan(rule: fc2.Rule, row: Choice, listings: Mapping[str, Listing]) -> fc2.Plan:
    """What the rule takes; each worker's use of the server's port is the performance model's."""
    host = listings[row.server]
    workers = [
        fc2.Worker(
            name, listings[name].price_usd_h, convnet.use_bps(listings[name], row.batch, host.network_bps)
        )
        for name in row.types
    ]
    return fc2.plan(rule, workers, fc2.Server(host.name, host.price_usd_h, host.network_bps), cap=CAP)


def run_s(chosen: fc2.Plan, row: Choice, listings: Mapping[str, Listing]) -> float:
    """Seconds for a million images on that cluster."""
    bandwidth = listings[row.server].network_bps
    return convnet.run_s(listings[chosen.worker], row.batch, chosen.count, bandwidth, images=_IMAGES)


def figures(row: Choice, listings: Mapping[str, Listing]) -> dict[str, float]:
    """By name: type, choice and as_cost_opt are 1 where the type, and the count too, are the source's, and
    where the choice is Cost-Opt's, else 0; count; cost and time: percent against Time-Opt; time_opt_cost and
    time_opt_time: Time-Opt against it.
    """
    ours, dearest, cheapest = (
        plan(rule, row, listings) for rule in (fc2.Rule.SCALE, fc2.Rule.TIME, fc2.Rule.COST)
    )
    time_s, base_s = run_s(ours, row, listings), run_s(dearest, row, listings)
    cost = time_s * ours.price_usd_h / (base_s * dearest.price_usd_h)
    name, _ = row.source
    return {
        "type": float(ours.worker == name),
        "choice": float((ours.worker, ours.count) == row.source),
        "count": float(ours.count),
        "cost": 100 * (cost - 1),
        "time": 100 * (time_s / base_s - 1),
        "time_opt_cost": 100 * (1 / cost - 1),
        "time_opt_time": 100 * (base_s / time_s - 1),
        "as_cost_opt": float((ours.worker, ours.count) == (cheapest.worker, cheapest.count)),
    }
