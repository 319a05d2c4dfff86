"""Firm's rules: what a window becomes, and that an actor's answer depends on its state alone."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from control.allocator.firm_agent import INPUTS, KEEP, LOWER, RAISE, Actor, Aimd, Window


def window(limit=(1.0, 1.0), used=(0.5, 0.5), kept=1.0, load=1.0, violated=False):
    count = len(limit)
    return Window(
        slots=np.arange(count),
        limit_cores=np.array(limit),
        used=np.array(used),
        kept=np.full(count, kept),
        load=np.full(count, load),
        mix=np.tile([0.5, 0.25, 0.25], (count, 1)),
        violated=np.full(count, violated),
        culprit=np.full(count, True),
    )


def test_aimd_doubles_where_the_slo_is_missed_and_else_lowers_by_a_step():
    assert Aimd(0.1)(window(violated=True)).tolist() == [2.0, 2.0]
    assert Aimd(0.1)(window()).tolist() == [0.9, 0.9]


def test_a_state_is_use_slo_load_and_mix_within_bounds():
    assert window(kept=0.4, load=2.0).state[0].tolist() == [0.5, 0.4, 0.5, 0.5, 0.25, 0.25]
    assert window(load=1e9).state[0, 2] == 1.0


def test_an_actor_says_its_largest_output():
    # One layer: KEEP has the output 0.5, RAISE the use, LOWER 1 − use.
    layers = (([[0.0] * INPUTS, [1.0] + [0.0] * 5, [-1.0] + [0.0] * 5], [0.45, 0.0, 1.0]),)
    actor = Actor(layers, 0.1)
    states = np.zeros((3, INPUTS))
    states[:, 0] = [0.9, 0.1, 0.55]
    assert actor.actions(states).tolist() == [RAISE, LOWER, RAISE]
    layers = (([[0.0] * INPUTS] * 3, [1.0, 0.0, 0.0]),)
    assert Actor(layers, 0.1).actions(states).tolist() == [KEEP] * 3
    asked = window(limit=(1.0, 2.0), used=(0.9, 0.1))
    assert Actor((([[0.0] * 6, [1.0] + [0.0] * 5, [-1.0] + [0.0] * 5], [0.45, 0.0, 1.0]),), 0.1)(
        asked
    ).tolist() == [1.1, 1.9]


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_the_same_weights_and_state_give_the_same_action_in_any_company(seed, count):
    random = np.random.default_rng(seed)
    sizes = (INPUTS, 40, 40, 3)
    layers = [
        (random.standard_normal((outputs, inputs)).tolist(), random.standard_normal(outputs).tolist())
        for inputs, outputs in pairwise(sizes)
    ]
    states = random.random((count, INPUTS))
    together = Actor(layers, 0.1).actions(states)
    alone = [Actor(layers, 0.1).actions(state[None])[0] for state in states]
    assert together.tolist() == alone
