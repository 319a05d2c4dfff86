"""Clusters as a kind of question: the row of lab.kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from control.scheduler import POLICIES
from lab.ask.kind import Figure
from lab.ask.pillar import Pillar

if TYPE_CHECKING:
    from lab.ask.scenario import Scenario
    from lab.runs.store import Run


class Cluster(Pillar):
    """Training jobs on a cluster of GPUs, under schedulers."""

    name = "cluster"
    title = "a cluster"
    sections = ("cluster",)
    paths = ("cluster.log.path", "cluster.measured.path", "cluster.measured.pairs", "cluster.faults.trace")
    policies = tuple(POLICIES)
    group = "schedulers"
    tables = ("summary", "jobs", "queue")
    optional_tables = ("spans", "types")
    processes = None

    def scenario_model(self) -> type[Scenario]:
        from lab.cluster.input import ClusterScenario

        return ClusterScenario

    def charts(self, runs: Sequence[Run]) -> Sequence[Figure]:
        from lab.charts.cluster import charts

        return list(charts(runs))
