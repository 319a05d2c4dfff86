"""Every scenario that ships can be loaded and expanded, and says what it asks."""

from pathlib import Path

import pytest

from lab.ask.scenario import expand, load
from traces.load import shipped

FOLDER = Path(__file__).parents[2] / "scenarios"
SHARED = {"E3": "E2", "E8": "E2", "E10": "E2", "beyond": "E2"}
"""Files whose runs are another's, by the name that the run ids begin with."""


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_scenario_expands_and_asks_a_question(path):
    scenario = load(path)
    assert scenario.name == SHARED.get(path.stem, path.stem)
    assert scenario.title
    assert scenario.question
    assert expand(scenario)
    trace = getattr(scenario, "trace", None)
    assert trace is None or trace.source in shipped()


@pytest.mark.parametrize("stem", SHARED)
def test_shared_runs_differ_from_e2_s_in_their_policies_or_are_a_part_of_them(stem):
    shared, whole = (load(FOLDER / f"{name}.yaml") for name in (stem, "E2"))
    apart = {"title", "question", "policies", "vary"}
    assert shared.model_dump(exclude=apart) == whole.model_dump(exclude=apart)
    assert all(set(values) <= set(whole.vary[key]) for key, values in shared.vary.items())
    assert list(shared.vary) == list(whole.vary)
