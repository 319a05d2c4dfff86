"""What is validated: the scenarios of the matrix, how long their runs are, and what the whole of it takes.

For: `make results-fidelity-containers` and the Validation page. Not for: running or judging (both.py). No
workload of the matrix is used by `twinbed calibrate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lab.ask.scenario import Scenario, expand, load, with_overrides
from lab.containers.input.sections import container_scenario
from twinbed import ScenarioError

FOLDER = Path(__file__).resolve().parents[2] / "scenarios" / "validation"
PARTS = ("step", "on_off", "ddp", "hipster_shop", "escra_default", "teastore")
START_S = 5.0
"""Of a run: containers start, become ready, and are ended."""


def scenarios(parts: Sequence[str] = (), duration_s: float | None = None) -> list[Scenario]:
    """The matrix, or some parts of it; duration_s: of runs whose scenario says how long they are to be.

    Raises ScenarioError for a part that is not there.
    """
    for part in parts:
        if part not in PARTS:
            raise ScenarioError(f"validation: no part is called {part!r}; there are {', '.join(PARTS)}")
    found = [load(FOLDER / f"{part}.yaml") for part in (parts or PARTS)]
    return [each if duration_s is None else _lasting(each, duration_s) for each in found]


def estimate_s(questions: Sequence[Scenario], repeats: int) -> float:
    """How long the testbed's runs of these scenarios take, about, one after another."""
    return sum((START_S + length_s(each)) * len(expand(each)) * repeats for each in questions)


def length_s(question: Scenario) -> float:
    """How long each of its runs is; 0 for a trace, which says itself."""
    scenario = container_scenario(question)
    if scenario.services is not None:
        return scenario.services.duration_s
    if scenario.job is not None:
        return scenario.job.duration_s
    if scenario.workload is not None:
        return max(sum(step.duration_s for step in each.steps) for each in scenario.workload.containers)
    return 0.0


def _lasting(scenario: Scenario, duration_s: float) -> Scenario:
    for section in ("services", "job"):
        if getattr(scenario, section) is not None:
            return with_overrides(scenario, [f"{section}.duration_s={duration_s:g}"])
    return scenario
