"""Markets as a kind of question: the row of lab.kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from control.market import POLICIES
from lab.ask.kind import Figure, Kind, Progress, Runner

if TYPE_CHECKING:
    from lab.ask.calibration import Calibration
    from lab.ask.scenario import Scenario
    from lab.runs.formats import Result
    from lab.runs.metric import Metric
    from lab.runs.store import Run, RunStore
    from lab.runs.timeline import Tracks


class Cloud(Kind):
    """A training job with a deadline on a market of spot and on-demand machines, under policies."""

    name = "cloud"
    title = "a market"
    sections = ("cloud",)
    paths = ("cloud.trace",)
    policies = tuple(POLICIES)
    group = "spot_policies"
    tables = ("summary", "spans", "market", "losses")

    def scenario_model(self) -> type[Scenario]:
        from lab.cloud.input.market import CloudScenario

        return CloudScenario

    def load_calibration(self, path: str | None) -> Calibration:
        # The processes and their quotas are those of the cluster's testbed, and so is their calibration.
        from lab.cluster.calibrate.values import load_calibration

        return load_calibration(path)

    def runner(self) -> Runner:
        from lab.cloud.run.runner import run_all

        return run_all

    def run_for_real(
        self, scenario: Scenario, store: RunStore, repeat: int, progress: Progress | None
    ) -> list[Run]:
        from lab.cloud.real.backend import run_scenario

        return run_scenario(scenario, store, repeat, progress)

    def metrics(self) -> Sequence[Metric]:
        from lab.cloud.metrics import METRICS

        return METRICS

    def charts(self, runs: Sequence[Run]) -> Sequence[Figure]:
        from lab.charts.market import charts

        return list(charts(runs))

    def timeline(self, run: Run) -> Tracks:
        from lab.cloud import timeline

        return timeline.tracks(run)

    def validate(
        self, scenario: Scenario, store: RunStore, *, repeats: int, fresh: bool, progress: Progress
    ) -> tuple[Result, bool]:
        from lab.cloud.validate.both import agree, result, validate

        rows = validate(scenario, store, repeats, progress, fresh=fresh)
        return result(rows), agree(rows)
