"""A toy kind of question: throws dice. It is all that a new kind needs, beside a row in lab.kinds."""

from collections.abc import Sequence

import numpy as np
from pydantic import Field, PositiveInt

from lab.ask.calibration import Calibration
from lab.ask.kind import Kind, Progress, Runner
from lab.ask.scenario import PolicyText, RunSpec, Scenario, policies_by_default
from lab.ask.section import Section
from lab.runs.formats import Record
from lab.runs.manifest import identified, store_run
from lab.runs.metric import Metric, summary
from lab.runs.store import Run, RunStore

METRICS = (Metric("mean_pips", "Mean", "pips", 2, "higher", "Mean over all throws."),)


class DiceInput(Section):
    """Dice to throw."""

    throws: PositiveInt = Field(default=10, description="Number of throws.")


class DiceScenario(Scenario):
    """A scenario about dice."""

    policies: list[PolicyText] = policies_by_default(["fair", "loaded"])
    dice: DiceInput | None = None


class Dice(Kind):
    """Dice, fair or loaded."""

    name = "dice"
    title = "dice"
    sections = ("dice",)
    policies = ("fair", "loaded")

    def scenario_model(self) -> type[Scenario]:
        return DiceScenario

    def load_calibration(self, path: str | None) -> Calibration:
        return Calibration("table", "none", "none", "2026-01-01", {}, "")

    def runner(self) -> Runner:
        return throw

    def metrics(self) -> Sequence[Metric]:
        return METRICS

    def facts(self, runs: Sequence[Run]) -> Record:
        return {"throws": max(run.manifest["spec"]["dice"]["throws"] for run in runs)}


def throw(specs: Sequence[RunSpec], store: RunStore, *, fresh: bool, progress: Progress | None) -> list[Run]:
    return [_throw(spec, store) for spec in specs]


def _throw(spec: RunSpec, store: RunStore) -> Run:
    random = np.random.default_rng(spec.seed)
    pips = random.integers(1, 7, spec.scenario.dice.throws)
    values = {"mean_pips": 6.0 if spec.policy.name == "loaded" else float(pips.mean())}
    about = {"backend": "twin", "inputs": [], "notes": ["No dice were harmed."]}
    identity = identified(spec, spec.resolved(), "")
    return store_run(spec, store, identity, about, values, {"summary": summary(METRICS, values)}, began=0.0)
