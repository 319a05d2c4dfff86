"""A kind of question whose parts are modules of its own folder, under the names that all pillars use.

For: the kind.py of each pillar, which adds what differs. Not for: kinds with other modules, which implement
`Kind` themselves. A module is imported when it is needed, because the command line reads the table of kinds
before it knows which verb is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lab.ask.kind import Calibrated, Kind, Progress, Runner

if TYPE_CHECKING:
    from lab.ask.calibration import Calibration
    from lab.ask.scenario import Scenario
    from lab.runs.formats import Result
    from lab.runs.metric import Metric
    from lab.runs.store import Run, RunStore
    from lab.runs.timeline import Tracks


class Pillar(Kind):
    """A kind in the folder lab/NAME, where NAME is its `name`. It uses these modules and names:

    calibrate.values: load_calibration(path), FORM
    calibrate.measure: STEPS, HEAD, QUICK, THOROUGH, calibrate(name, effort, progress)
    metrics.csv: its metrics
    run.runner: run_all, a Runner
    real.backend: run_scenario(scenario, store, repeat, progress)
    timeline: tracks(run)
    validate.both: validate(scenario, store, repeats, progress, fresh=…), result(rows), agree(rows)
    """

    def _module(self, path: str) -> Any:
        return import_module(f"lab.{self.name}.{path}")

    def load_calibration(self, path: str | None) -> Calibration:
        calibration: Calibration = self._module("calibrate.values").load_calibration(path)
        return calibration

    def runner(self) -> Runner:
        runner: Runner = self._module("run.runner").run_all
        return runner

    def run_for_real(
        self, scenario: Scenario, store: RunStore, repeat: int, progress: Progress | None
    ) -> list[Run]:
        runs: list[Run] = self._module("real.backend").run_scenario(scenario, store, repeat, progress)
        return runs

    def metrics(self) -> Sequence[Metric]:
        from lab.runs.metric import read

        return read(f"lab.{self.name}")

    def timeline(self, run: Run) -> Tracks:
        tracks: Tracks = self._module("timeline").tracks(run)
        return tracks

    def validate(
        self, scenario: Scenario, store: RunStore, *, repeats: int, fresh: bool, progress: Progress
    ) -> tuple[Result, bool]:
        both = self._module("validate.both")
        rows = both.validate(scenario, store, repeats, progress, fresh=fresh)
        return both.result(rows), both.agree(rows)

    def calibration_steps(self) -> Sequence[str]:
        steps: Sequence[str] = self._module("calibrate.measure").STEPS
        return steps

    def calibrate(self, name: str, *, quick: bool, progress: Progress) -> Calibrated:
        measure, form = self._module("calibrate.measure"), self._module("calibrate.values").FORM
        made = measure.calibrate(name, measure.QUICK if quick else measure.THOROUGH, progress)
        return Calibrated(made, form.sections(made), form.write(made, measure.HEAD))
