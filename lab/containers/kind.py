"""Containers as a kind of question: the row of lab.kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from lab.ask.kind import Calibrated, Figure, Progress, Runner
from lab.ask.pillar import Pillar

if TYPE_CHECKING:
    from lab.ask.scenario import Scenario
    from lab.runs.formats import Column, Record, Result
    from lab.runs.store import Run, RunStore


class Containers(Pillar):
    """Containers under an allocator: replayed traces, services with clients, serverless functions and
    jobs."""

    name = "containers"
    title = "containers"
    sections = ("trace", "workload", "services", "serverless", "job")
    paths = (
        "trace.source",
        "job.file",
        "services.app",
        "services.arrivals.file",
        "profile.arrivals.file",
        "serverless.arrivals.file",
    )
    words = ("price.currency", "price.source", "price.as_of")
    group = "policies"
    tables = ("summary", "containers", "events", "periods")
    optional_tables = ("requests", "spans")
    told_by: ClassVar[Mapping[str, str]] = {
        "trace": "name",
        "application": "services.app",
        "arrivals": "services.arrivals",
    }
    processes = None

    def scenario_model(self) -> type[Scenario]:
        from lab.containers.input.sections import ContainerScenario

        return ContainerScenario

    def runner(self) -> Runner:
        from lab.containers.run.runner import Runner

        return Runner()

    def currency(self, run: Run) -> str:
        return str(run.manifest["spec"]["price"]["currency"])

    def facts(self, runs: Sequence[Run]) -> Record:
        from lab.containers.run.remarks import facts

        return facts(runs)

    def legend(self, runs: Sequence[Run]) -> str:
        from lab.containers.run.remarks import legend

        return legend(runs)

    def notes(self, runs: Sequence[Run]) -> list[str]:
        from lab.containers.run.remarks import prices

        return [*super().notes(runs), *prices(runs)]

    def remarks(self, runs: Sequence[Run]) -> list[str]:
        from lab.containers.run.remarks import remarks

        return remarks(runs)

    def beside(
        self, runs: Sequence[Run], names: Sequence[str]
    ) -> tuple[Sequence[Column], Mapping[str, Record]]:
        from lab.containers.run.savings import columns, savings

        made = {name: saving.record for name, saving in savings(runs, names).items()}
        return columns(runs) if made else (), made

    def charts(self, runs: Sequence[Run]) -> Sequence[Figure]:
        from lab.charts.report import all_charts

        return list(all_charts(runs))

    def validate(
        self, scenario: Scenario, store: RunStore, *, repeats: int, fresh: bool, progress: Progress
    ) -> tuple[Result, bool]:
        from lab.containers.validate.both import validate
        from lab.containers.validate.present import own_share, result
        from lab.containers.validate.rule import reached, share

        cells = validate(scenario, store, repeats=repeats, progress=progress, fresh=fresh)
        twins = share([judgement for cell in cells for judgement in cell.judgements])
        return result(cells), reached(twins, own_share(cells))

    def calibrate(self, name: str, *, quick: bool, progress: Progress) -> Calibrated:
        from lab.containers.calibrate.measure import HEAD, QUICK, THOROUGH, calibrate
        from lab.containers.calibrate.values import write

        made = calibrate(name, QUICK if quick else THOROUGH, progress)
        sections = {"values": made.values, "program": made.program, "measured": made.measured}
        return Calibrated(made, sections, write(made, HEAD))
