"""A kind of question that costs nothing to run, and a scenario of it."""

import pytest

from lab import kinds
from lab.ask import scenario
from lab.ask.scenario import build
from lab.engine.local import Local
from lab.sweep.plan import SweepPlan
from lab.sweep.points import points
from tests.lab.kinds.dice import Dice


@pytest.fixture
def dice(monkeypatch):
    """The scenario `throws`, with its kind in the table."""
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, Dice()))
    scenario.any_kind.cache_clear()
    yield build({"name": "throws", "dice": {"throws": 20}})
    scenario.any_kind.cache_clear()


@pytest.fixture
def here():
    return Local(1)


@pytest.fixture
def plan(dice):
    return SweepPlan("throws", points(dice, ["dice.throws=10,40"], None), range(6))
