"""Clusters as a kind of question: the row of lab.kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from control.scheduler import POLICIES
from lab.ask.kind import Calibrated, Figure, Kind, Progress, Runner

if TYPE_CHECKING:
    from lab.ask.calibration import Calibration
    from lab.ask.scenario import Scenario
    from lab.runs.formats import Result
    from lab.runs.metric import Metric
    from lab.runs.store import Run, RunStore
    from lab.runs.timeline import Tracks


class Cluster(Kind):
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

    def load_calibration(self, path: str | None) -> Calibration:
        from lab.cluster.calibrate.values import load_calibration

        return load_calibration(path)

    def runner(self) -> Runner:
        from lab.cluster.run.runner import run_all

        return run_all

    def run_for_real(
        self, scenario: Scenario, store: RunStore, repeat: int, progress: Progress | None
    ) -> list[Run]:
        from lab.cluster.real.backend import run_scenario

        return run_scenario(scenario, store, repeat, progress)

    def metrics(self) -> Sequence[Metric]:
        from lab.cluster.metrics import METRICS

        return METRICS

    def charts(self, runs: Sequence[Run]) -> Sequence[Figure]:
        from lab.charts.cluster import charts

        return list(charts(runs))

    def timeline(self, run: Run) -> Tracks:
        from lab.cluster import timeline

        return timeline.tracks(run)

    def validate(
        self, scenario: Scenario, store: RunStore, *, repeats: int, fresh: bool, progress: Progress
    ) -> tuple[Result, bool]:
        from lab.cluster.validate.both import agree, result, validate

        rows = validate(scenario, store, repeats, progress, fresh=fresh)
        return result(rows), agree(rows)

    def calibration_steps(self) -> Sequence[str]:
        from lab.cluster.calibrate.measure import STEPS

        return STEPS

    def calibrate(self, name: str, *, quick: bool, progress: Progress) -> Calibrated:
        from lab.cluster.calibrate.measure import HEAD, QUICK, THOROUGH, calibrate
        from lab.cluster.calibrate.values import FORM

        made = calibrate(name, QUICK if quick else THOROUGH, progress)
        return Calibrated(made, FORM.sections(made), FORM.write(made, HEAD))
