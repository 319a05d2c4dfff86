"""Firm's training: what is learnt from, that it is learnt, and that worlds repeat."""

import numpy as np
import pytest

from control.allocator.firm_agent import INPUTS, LOWER, RAISE, Actor, Aimd
from lab.containers.calibrate.values import load_calibration
from studies.firm.page import document, module
from studies.firm.train import STEP_CORES, Learner, transitions
from studies.firm.world import Played, drawn, play
from tests.control.allocator.test_firm_agent import window


def test_a_transition_is_of_a_container_that_the_rule_was_asked_about():
    first, second, last = window(used=(0.1, 0.2)), window(used=(0.3, 0.4), kept=0.5), window(used=(0.5, 0.6))
    first.violated[:], first.culprit[:] = True, [False, True]
    rows = transitions(Played([first, second, last]), [np.array([0, 1]), np.array([2, 2]), np.array([0, 0])])
    assert rows[:, 0].tolist() == [0.2, 0.3, 0.4]
    assert rows[:, INPUTS : INPUTS + 3].argmax(axis=1).tolist() == [RAISE, LOWER, LOWER]
    # 5 · 0.5 + 0.4 − 5, 5 · 1 + 0.5 − 5, 5 · 1 + 0.6 − 5.
    assert rows[:, INPUTS + 3].tolist() == pytest.approx([-2.1, 0.5, 0.6])
    assert rows[:, INPUTS + 4].tolist() == [0.4, 0.5, 0.6]


@pytest.mark.slow
def test_an_actor_learns_which_action_is_paid():
    pytest.importorskip("torch", reason="torch is not installed: pip install 'twinbed[cloud]'")
    random, learner = np.random.default_rng(1), Learner(1)
    for _ in range(1000):
        state, action = random.random((64, INPUTS)), random.integers(3, size=64)
        paid = action == np.where(state[:, 0] > 0.5, RAISE, LOWER)
        rows = np.hstack([state, np.eye(3)[action], paid[:, None], random.random((64, INPUTS))])
        learner.step(rows.astype(np.float32))
    states = np.full((2, INPUTS), 0.5)
    states[:, 0] = [0.9, 0.1]
    assert Actor(learner.layers(), STEP_CORES).actions(states).tolist() == [RAISE, LOWER]


@pytest.mark.slow
def test_a_world_is_its_seeds_and_so_is_what_is_earned_in_it():
    calibration = load_calibration(None)
    first, second = (drawn(900_003, calibration) for _ in range(2))
    assert first.slo_s == second.slo_s
    earned = play(first, Aimd(STEP_CORES)).earned()
    assert earned == play(second, Aimd(STEP_CORES)).earned()
    assert 0.0 < earned[0] < 6.0


def test_the_module_of_numbers_and_the_page_say_what_was_made():
    from control.allocator.firm_weights import SEPARATOR
    from studies.firm.page import PATH

    assert module(SEPARATOR) == PATH.read_text(encoding="utf-8")
    values = np.array([[4.0, 0.5, 0.4], [5.0, 1.0, 0.2]])
    aimd, better = "AIMD, room for 60 s", "DDPG, room for 60 s"
    page = document("Told.", {aimd: values, better: values + np.array([1.0, 0.0, 0.1])})
    assert "| DDPG, room for 60 s | 5.500 ± 6.353 | +1.000 ± 0.000 | 75.0% | 40.0% |" in page
    assert "should ship with it. Of all rules below, `DDPG, room for 60 s` earns most" in page
    worse = document("Told.", {aimd: values, better: values - np.array([1.0, 0.0, 0.0])})
    assert "ships with AIMD. Of all rules below, `AIMD, room for 60 s` earns most" in worse
