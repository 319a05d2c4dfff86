"""The how-to about users' own policies: its policy beats a default. tests/wheel runs its commands."""

import pytest

from lab.containers.input.whatif import whatif_scenario
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from tests import pages

PAGE = pages.HOW_TOS / "write-your-own-policy.md"


def block(language: str) -> list[str]:
    return [block.text for block in pages.blocks(PAGE) if block.language == language]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "follow.py").write_text(block("python")[0])
    return tmp_path


@pytest.mark.slow
def test_its_policy_of_thirty_lines_beats_autothrottle_on_the_recording(folder):
    assert len(block("python")[0].splitlines()) <= 30
    names = ["autothrottle", f"{folder}/follow.py:Follow"]
    scenario = whatif_scenario("bursty_service", names, overrides=["seeds=[0,1,2]"])
    runs = run_scenario(scenario, RunStore(folder / "store"), jobs=1)
    for seed in range(3):
        theirs, ours = (run.manifest["metrics"] for run in runs if run.seed == seed)
        for key in ("mean_reserved_cores", "cost", "throttled_share", "lateness_p99_s"):
            assert ours[key] < 0.75 * theirs[key], (seed, key)
        assert ours["oom_kills"] == theirs["oom_kills"] == 0
