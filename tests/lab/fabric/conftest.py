"""Small runs of a fabric, stored."""

import pytest

from lab.ask.scenario import build
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from tests.lab.fabric.sample_fabric import SENDS


@pytest.fixture(scope="session")
def sends(tmp_path_factory):
    """40 sends without and with a fault, under thorn and none, seeds 0 and 1. Not to be changed."""
    store = RunStore(tmp_path_factory.mktemp("sends"))
    return store, run_scenario(build(SENDS), store, jobs=1)
