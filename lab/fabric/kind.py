"""Fabrics as a kind of question: the row of lab.kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lab.ask.kind import Calibrated, Figure, Kind, Progress, Runner
from twin.fabric.model import Scheme

if TYPE_CHECKING:
    from lab.ask.calibration import Calibration
    from lab.ask.scenario import Scenario
    from lab.charts.palette import Shown
    from lab.runs.formats import Record, Result
    from lab.runs.metric import Metric
    from lab.runs.store import Run, RunStore
    from lab.runs.timeline import Tracks


class Fabric(Kind):
    """A network fabric with faults at its edge, under schemes that meet such faults."""

    name = "fabric"
    title = "a fabric"
    sections = ("fabric",)
    policies = tuple(str(scheme) for scheme in Scheme)
    optional_tables = ("outages", "series", "accuracy", "causes")

    def scenario_model(self) -> type[Scenario]:
        from lab.fabric.input import FabricScenario

        return FabricScenario

    def load_calibration(self, path: str | None) -> Calibration:
        from lab.fabric.calibrate.values import load_calibration

        return load_calibration(path)

    def runner(self) -> Runner:
        from lab.fabric.run.runner import run_all

        return run_all

    def metrics(self) -> Sequence[Metric]:
        from lab.fabric.metrics import METRICS

        return METRICS

    def facts(self, runs: Sequence[Run]) -> Record:
        calibrations = [run.manifest["calibration"] for run in runs]
        named = dict.fromkeys(f"{made['name']} of {made['date']}" for made in calibrations)
        return {**super().facts(runs), "calibration": "; ".join(named)}

    def charts(self, runs: Sequence[Run]) -> Sequence[Figure]:
        from lab.charts.fabric import job, lost_shares
        from lab.charts.palette import shown
        from lab.fabric.metrics import LOST
        from lab.fabric.timeline import measured

        looks: dict[str | None, list[Shown]] = {}
        for look in shown(runs):
            looks.setdefault(measured(look.run), []).append(look)
        return [
            figure
            for unit, own in looks.items()
            for figure in (lost_shares(own, LOST) if unit is None else job(own, unit))
        ]

    def timeline(self, run: Run) -> Tracks:
        from lab.fabric import timeline

        return timeline.tracks(run)

    def validation_steps(self, scenario: Scenario, repeats: int) -> int:
        from lab.ask.scenario import expand

        return len({(spec.variant, spec.policy.text) for spec in expand(scenario)})

    def validate(
        self, scenario: Scenario, store: RunStore, *, repeats: int, fresh: bool, progress: Progress
    ) -> tuple[Result, bool]:
        from lab.fabric.validate.both import validate
        from lab.fabric.validate.judge import RULE, agree, result

        compared = validate(scenario, repeats, progress)
        return result(compared, [RULE]), agree(compared)

    def calibration_steps(self) -> Sequence[str]:
        from lab.fabric.calibrate.measure import STEPS

        return STEPS

    def calibrate(self, name: str, *, quick: bool, progress: Progress) -> Calibrated:
        from lab.fabric.calibrate.measure import HEAD, QUICK, THOROUGH, measure
        from lab.fabric.calibrate.values import FORM

        made = measure(name, QUICK if quick else THOROUGH, progress)
        return Calibrated(made, FORM.sections(made), FORM.write(made, HEAD))
