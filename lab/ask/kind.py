"""What a kind of question must be able to do: the port between the table of kinds and lab.ask, lab.runs
and lab.cli.

For: `Kind`, which a pillar implements in its module kind.py. Not for: the table (lab.kinds). A pillar's
kind.py imports what is heavy inside its methods, because the command line reads the table before it knows
which verb is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from twinbed import ScenarioError

if TYPE_CHECKING:
    import altair as alt

    from lab.ask.calibration import Calibration, Values
    from lab.ask.scenario import RunSpec, Scenario
    from lab.runs.formats import Column, Record, Result
    from lab.runs.metric import Metric
    from lab.runs.store import Run, RunStore
    from lab.runs.timeline import Tracks

Progress = Callable[[str, float], None]
"""progress(label, fraction): label is RunSpec.label, fraction is the part of that run that is done, 0 to
1. It may raise an exception to cancel the work."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart of a report. title: its heading; caption: how to read it; chart: the drawing."""

    title: str
    caption: str
    chart: alt.TopLevelMixin


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A measured calibration. sections: its values by section and key; text: the file to write."""

    calibration: Calibration
    sections: Mapping[str, Values]
    text: str


class Runner(Protocol):
    """Makes runs on the twin. It may keep the input of its last call, which the next call often shares."""

    def __call__(
        self, specs: Sequence[RunSpec], store: RunStore, *, fresh: bool, progress: Progress | None
    ) -> list[Run]:
        """Return the stored runs of specs that differ in the policy alone.

        fresh: False opens a run that the store has already. Raises TwinbedError for bad input. If
        `progress` raises, nothing is stored of the run that was at work.
        """


class Kind(Protocol):
    """One kind of question.

    name: of the kind, as `twinbed calibrate --pillar` takes it
    title: how an error message calls it, after "with"
    sections: keys of a scenario file that say that the scenario is of this kind; a scenario has exactly one
    paths: dotted keys whose values may be paths, relative to the scenario file
    policies: its own policies, which have no parameters; empty where the policies are the allocators
    group: sort of policies of a user's own that its scenarios may name (twinbed.own.PORTS), "" for none
    tables, optional_tables: names of the tables that every run stores, and that some runs store
    told_by: role of an input in a manifest → the condition that says the same in words
    processes: number of processes that usually run side by side; None: as many as there are CPUs
    """

    name: ClassVar[str]
    title: ClassVar[str]
    sections: ClassVar[tuple[str, ...]]
    paths: ClassVar[tuple[str, ...]] = ()
    policies: ClassVar[tuple[str, ...]] = ()
    group: ClassVar[str] = ""
    tables: ClassVar[tuple[str, ...]] = ("summary",)
    optional_tables: ClassVar[tuple[str, ...]] = ()
    told_by: ClassVar[Mapping[str, str]] = {}
    processes: ClassVar[int | None] = 1

    def scenario_model(self) -> type[Scenario]:
        """Return the model of a scenario file: the keys that every scenario has, and the kind's own."""
        ...

    def load_calibration(self, path: str | None) -> Calibration:
        """Return the calibration in a file, or the one that ships. Raises ScenarioError."""
        ...

    def runner(self) -> Runner:
        """Return what makes runs on the twin."""
        ...

    def run_for_real(
        self, scenario: Scenario, store: RunStore, repeat: int, progress: Progress | None
    ) -> list[Run]:
        """Return all runs of a scenario, made on this machine, in `expand` order.

        repeat: which of several equal runs they are. Raises ScenarioError for a kind that has no testbed.
        """
        raise ScenarioError(
            f"{scenario.name}: a scenario with {self.title} runs on the twin only; leave --backend out"
        )

    def metrics(self) -> Sequence[Metric]:
        """Return what its runs are judged by, in the order in which tables show it."""
        ...

    def currency(self, run: Run) -> str:
        """Return the currency of metrics whose unit is `currency`, or ""."""
        return ""

    def facts(self, runs: Sequence[Run]) -> Record:
        """Return what the runs are about, for the lines above a table."""
        ...

    def legend(self, runs: Sequence[Run]) -> str:
        """Return how to read the table of these runs, in a line, or ""."""
        return ""

    def notes(self, runs: Sequence[Run]) -> list[str]:
        """Return what was assumed and done to the data, once each."""
        return list(dict.fromkeys(note for run in runs for note in run.manifest["notes"]))

    def remarks(self, runs: Sequence[Run]) -> list[str]:
        """Return what a reader should know before believing the table: one sentence or two each."""
        return []

    def beside(
        self, runs: Sequence[Run], names: Sequence[str]
    ) -> tuple[Sequence[Column], Mapping[str, Record]]:
        """Return columns that compare runs with each other, and the record of each name that has them.

        names: one for each run, equal for the seeds of one question.
        """
        return (), {}

    def charts(self, runs: Sequence[Run]) -> Sequence[Figure]:
        """Return the charts of a report about these runs."""
        return []

    def timeline(self, run: Run) -> Tracks:
        """Return what happened in a run, as a timeline. Raises ScenarioError where it keeps none."""
        raise ScenarioError(f"run {run.id}: a run with {self.title} keeps no timeline")

    def validation_steps(self, scenario: Scenario, repeats: int) -> int:
        """Return how many labels `validate` reports progress of: the twin's runs, and each repeated here."""
        from lab.ask.scenario import expand

        return len(expand(scenario)) * (1 + repeats)

    def validate(
        self, scenario: Scenario, store: RunStore, *, repeats: int, fresh: bool, progress: Progress
    ) -> tuple[Result, bool]:
        """Return the twin's figures beside this machine's, and whether they agree as well as is aimed at.

        repeats: how often this machine runs each policy; fresh: False takes stored runs. Raises
        BackendError where this machine cannot, and ScenarioError for a kind without a testbed.
        """
        raise ScenarioError(f"{scenario.name}: there is no testbed to validate a scenario with {self.title}")

    def calibration_steps(self) -> Sequence[str]:
        """Return the labels that `calibrate` reports progress of; empty where nothing can be measured."""
        return ()

    def calibrate(self, name: str, *, quick: bool, progress: Progress) -> Calibrated:
        """Return a calibration, measured on this machine.

        Raises BackendError where this machine cannot, and ScenarioError for a kind without one.
        """
        raise ScenarioError(f"--pillar {self.name}: {self.title} has nothing to calibrate")
