"""Markets as a kind of question: the row of lab.kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from control.market import POLICIES
from lab.ask.kind import Figure, Kind
from lab.ask.pillar import Pillar

if TYPE_CHECKING:
    from lab.ask.calibration import Calibration
    from lab.ask.scenario import Scenario
    from lab.runs.store import Run


class Cloud(Pillar):
    """A training job with a deadline on a market of spot and on-demand machines, under policies."""

    name = "cloud"
    title = "a market"
    sections = ("cloud",)
    paths = ("cloud.trace",)
    policies = tuple(POLICIES)
    group = "spot_policies"
    tables = ("summary", "spans", "market", "losses")

    calibration_steps = Kind.calibration_steps
    calibrate = Kind.calibrate

    def scenario_model(self) -> type[Scenario]:
        from lab.cloud.input.market import CloudScenario

        return CloudScenario

    def load_calibration(self, path: str | None) -> Calibration:
        # The processes and their quotas are those of the cluster's testbed, and so is their calibration.
        from lab.cluster.calibrate.values import load_calibration

        return load_calibration(path)

    def charts(self, runs: Sequence[Run]) -> Sequence[Figure]:
        from lab.charts.market import charts

        return list(charts(runs))
