"""Fabrics as a kind of question: the row of lab.kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lab.ask.kind import Figure, Kind, Progress
from lab.ask.pillar import Pillar
from twin.fabric.model import Scheme

if TYPE_CHECKING:
    from lab.ask.scenario import Scenario
    from lab.charts.palette import Shown
    from lab.runs.formats import Record, Result
    from lab.runs.store import Run, RunStore


class Fabric(Pillar):
    """A network fabric with faults at its edge, under schemes that meet such faults."""

    name = "fabric"
    title = "a fabric"
    sections = ("fabric",)
    policies = tuple(str(scheme) for scheme in Scheme)
    optional_tables = ("outages", "series", "accuracy", "bins", "causes")

    run_for_real = Kind.run_for_real  # The testbed breaks a fabric to validate a scenario, and runs none.

    def scenario_model(self) -> type[Scenario]:
        from lab.fabric.input import FabricScenario

        return FabricScenario

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

    def validation_steps(self, scenario: Scenario, repeats: int) -> int:
        from lab.ask.scenario import expand

        return len({(spec.variant, spec.policy.text) for spec in expand(scenario)})

    def validate(
        self, scenario: Scenario, store: RunStore, *, repeats: int, fresh: bool, progress: Progress
    ) -> tuple[Result, bool]:
        from lab.fabric.validate.both import validate
        from lab.fabric.validate.judge import LEFT_OUT, RULE, agree, result

        compared = validate(scenario, repeats, progress)
        return result(compared, [RULE, LEFT_OUT]), agree(compared)
