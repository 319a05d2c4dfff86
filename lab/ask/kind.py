"""The port that every kind of question implements, used by lab.ask, lab.runs and lab.cli.

For: `Kind`, which a pillar implements in its module kind.py. Not for: the table of kinds (lab.kinds). A
pillar's kind.py imports heavy packages inside its methods, because the command line reads the table before it
knows which verb is called.
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
"""progress(label, fraction): label is RunSpec.label; fraction is the finished part of that run, 0 to 1. It
may raise an exception to cancel the work."""


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
    """Makes runs on the twin. It may cache the input of its last call, which the next call often shares."""

    def __call__(
        self, specs: Sequence[RunSpec], store: RunStore, *, fresh: bool, progress: Progress | None
    ) -> list[Run]:
        """Return the stored runs of specs that differ only in the policy.

        fresh: False reuses a run that is in the store. Raises TwinbedError for bad input. If `progress`
        raises, the run in progress is not stored.
        """


class Kind(Protocol):
    """One kind of question.

    name: name of the kind, as in `twinbed calibrate --pillar`
    title: its name in error messages, after "with"
    sections: keys that mark a scenario file as this kind; a scenario has exactly one of them
    paths: dotted keys whose values may be paths, relative to the scenario file
    words: dotted keys that only describe other keys, and change no figure
    policies: its own policies, which have no parameters; empty if the policies are the allocators
    group: key of twinbed.own.PORTS for the user's own policies that its scenarios may name; "" for none
    tables, optional_tables: names of the tables that every run stores, and that some runs store
    told_by: role of an input in a manifest → the condition with the same content in words
    processes: usual number of processes that run in parallel; None: the number of CPUs
    """

    name: ClassVar[str]
    title: ClassVar[str]
    sections: ClassVar[tuple[str, ...]]
    paths: ClassVar[tuple[str, ...]] = ()
    words: ClassVar[tuple[str, ...]] = ()
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
        """Return the runner for the twin."""
        ...

    def run_for_real(
        self, scenario: Scenario, store: RunStore, repeat: int, progress: Progress | None
    ) -> list[Run]:
        """Return all runs of a scenario, made on this machine, in `expand` order.

        repeat: number of these runs among equal runs. Raises ScenarioError for a kind that has no testbed.
        """
        raise ScenarioError(
            f"{scenario.name}: a scenario with {self.title} runs on the twin only; leave --backend out"
        )

    def metrics(self) -> Sequence[Metric]:
        """Return the metrics of this kind, in the order of tables."""
        ...

    def currency(self, run: Run) -> str:
        """Return the currency of metrics whose unit is `currency`, or ""."""
        return ""

    def facts(self, runs: Sequence[Run]) -> Record:
        """Return the facts about the runs, for the lines above a table: their subjects and their seeds."""
        return {
            self.title.removeprefix("a "): "; ".join(dict.fromkeys(run.manifest["about"] for run in runs)),
            "seed": ", ".join(dict.fromkeys(str(run.seed) for run in runs)),
        }

    def legend(self, runs: Sequence[Run]) -> str:
        """Return a line that explains the columns of the table of these runs; "" if none is needed."""
        return ""

    def notes(self, runs: Sequence[Run]) -> list[str]:
        """Return the assumptions made and the changes to the data, each once."""
        return list(dict.fromkeys(note for run in runs for note in run.manifest["notes"]))

    def remarks(self, runs: Sequence[Run]) -> list[str]:
        """Return remarks that a reader needs before trusting the table, each of one or two sentences."""
        return []

    def beside(
        self, runs: Sequence[Run], names: Sequence[str]
    ) -> tuple[Sequence[Column], Mapping[str, Record]]:
        """Return columns that compare runs with each other, and the record of each name that has them.

        names: one for each run, equal for the seeds of one question.
        """
        return (), {}

    def charts(self, runs: Sequence[Run]) -> Sequence[Figure]:
        """Return the charts for a report on these runs."""
        return []

    def timeline(self, run: Run) -> Tracks:
        """Return the events of a run as a timeline. Raises ScenarioError if the kind keeps none."""
        raise ScenarioError(f"run {run.id}: a run with {self.title} keeps no timeline")

    def validation_steps(self, scenario: Scenario, repeats: int) -> int:
        """Return the number of labels with progress in `validate`: the twin's runs, and each repeat here."""
        from lab.ask.scenario import expand

        return len(expand(scenario)) * (1 + repeats)

    def validate(
        self, scenario: Scenario, store: RunStore, *, repeats: int, fresh: bool, progress: Progress
    ) -> tuple[Result, bool]:
        """Return the twin's figures beside this machine's, and whether they agree within the aims.

        repeats: number of runs of each policy on this machine. fresh: False reuses stored runs. Raises
        BackendError if this machine cannot run them, and ScenarioError for a kind without a testbed.
        """
        raise ScenarioError(f"{scenario.name}: there is no testbed to validate a scenario with {self.title}")

    def calibration_steps(self) -> Sequence[str]:
        """Return the labels whose progress `calibrate` reports; empty if nothing can be measured."""
        return ()

    def calibrate(self, name: str, *, quick: bool, progress: Progress) -> Calibrated:
        """Return a calibration that was measured on this machine.

        Raises BackendError if this machine cannot measure, and ScenarioError for a kind without calibration.
        """
        raise ScenarioError(f"--pillar {self.name}: {self.title} has nothing to calibrate")
