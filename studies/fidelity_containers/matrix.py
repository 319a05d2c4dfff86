"""The scenarios of the validation matrix, the length of their runs, and the time that all runs take.

For: `python -m studies fidelity-containers`. Not for: running or judging (lab.containers.validate). No
workload of the matrix is used by `twinbed calibrate`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lab.ask.scenario import Scenario, expand, load, with_overrides
from lab.ask.shipped import SCENARIOS
from lab.containers.input.sections import container_scenario
from twinbed import ScenarioError

PARTS = ("step", "on_off", "ddp", "hipster_shop", "escra_default", "teastore")
REPEATS = 5
"""Undisturbed runs of each cell on the testbed. With only three runs, a single disturbance affects a third of
them."""
DURATION_S = 30.0
"""Length of a run whose scenario gives a duration, s. Runs of 10 s agreed with the median latency of the
other repeats in only 29 % (docs/decisions/0036)."""
SEED = 20
"""Seed that draws the loads of a page that has only a few of them."""
START_S = 5.0
"""Time of a run in which containers start, become ready, and are ended, s."""


def scenarios(
    parts: Sequence[str] = (), duration_s: float | None = None, few: int | None = None
) -> list[Scenario]:
    """Return the matrix, or some parts of it.

    duration_s: length of runs whose scenario gives a duration; None: the scenario's. few: number of loads
    that are drawn for each application; None: all. Raises ScenarioError for an unknown part.
    """
    for part in parts:
        if part not in PARTS:
            raise ScenarioError(f"validation: no part is called {part!r}; there are {', '.join(PARTS)}")
    loaded = [_drawn(load(SCENARIOS / "validation" / f"{part}.yaml"), few) for part in (parts or PARTS)]
    return [scenario if duration_s is None else _lasting(scenario, duration_s) for scenario in loaded]


def estimate_s(questions: Sequence[Scenario], repeats: int) -> float:
    """Return about how long the testbed's runs of these scenarios take, one after another."""
    return sum((START_S + length_s(question)) * len(expand(question)) * repeats for question in questions)


def length_s(question: Scenario) -> float:
    """Return how long each of its runs is; 0 for a trace, which has its own length."""
    scenario = container_scenario(question)
    for section in (scenario.services, scenario.job):
        if section is not None:
            return section.duration_s
    if scenario.workload is None:
        return 0.0
    return max(sum(step.duration_s for step in container.steps) for container in scenario.workload.containers)


def _drawn(scenario: Scenario, few: int | None) -> Scenario:
    """Return the scenario with `few` of the values that vary, in their order. Every call returns the same
    values."""
    rng = np.random.default_rng([SEED, *scenario.name.encode()])
    vary = {
        key: [values[place] for place in sorted(rng.permutation(len(values))[:few])]
        for key, values in scenario.vary.items()
    }
    return scenario.model_copy(update={"vary": vary})


def _lasting(scenario: Scenario, duration_s: float) -> Scenario:
    for section in ("services", "job"):
        if getattr(scenario, section) is not None:
            return with_overrides(scenario, [f"{section}.duration_s={duration_s:g}"])
    return scenario
