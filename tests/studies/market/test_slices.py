"""Greedy in slices of the time."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from control.market.ports import IDLE, ON_DEMAND, Terms
from studies.market.slices import TimeSliced
from tests.control.market.test_policies import market, run, terms_of
from twin.cloud.deadline import Played, Windows, optimum_usd, play


def sliced(terms: Terms, slices: int, windows: Windows) -> Played:
    return play(TimeSliced(terms, slices), terms, windows)


def test_time_slices_finish_each_slice_on_demand_and_carry_over_what_is_ahead() -> None:
    """10 ticks of work in 20 with a restart of one tick, in two slices of 5 in 10."""
    for spot, course in (
        # Six ticks are needed from the fifth on. The second slice does the same.
        ("0" * 20, "iiii oooooo iiii oooooo"),
        # Spot does nine ticks of work in the first slice, so the second has one left to do.
        ("1" * 10 + "0" * 10, "ssssssssss iiiiiiii oo"),
    ):
        choices = sliced(terms_of(10, 10, 1.0), 2, market(spot)).choice[:, 0].tolist()
        marks = "".join({IDLE: "i", ON_DEMAND: "o"}.get(choice, "s") for choice in choices)
        assert marks == course.replace(" ", "")


@settings(max_examples=60, deadline=None)
@given(
    slices=st.integers(1, 40),
    work=st.integers(1, 60),
    spare=st.sampled_from([0.0, 0.4, 1.0, 5.5, 60.0]),
    restart=st.sampled_from([0.0, 0.3, 1.7, 20.0]),
    seed=st.integers(0, 10_000),
)
def test_time_slices_are_in_time(slices: int, work: int, spare: float, restart: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    terms = Terms(work * 600, (work + restart + spare) * 600, restart * 600, 600.0, 3.0)
    there = np.repeat(random.random((3, terms.ticks + 1, 2)) < 0.5, random.integers(1, 30), axis=1)
    there = there[:, : terms.ticks + 1]
    windows = Windows(there, np.ones(there.shape))
    played = sliced(terms, slices, windows)
    assert (played.finish_s <= terms.deadline_s + 1e-6).all()
    assert (played.cost_usd >= optimum_usd(terms, windows) - 1e-9).all()


def test_one_time_slice_is_greedy_on_markets_whose_spot_is_taken_at_any_time() -> None:
    random = np.random.default_rng(3)
    terms = terms_of(30, 20, 0.5)
    there = np.repeat(random.random((20, 25, 1)) < 0.4, 2, axis=1)
    windows = Windows(there, np.ones(there.shape))
    apart = sliced(terms, 1, windows).cost_usd - run("greedy", terms, windows).cost_usd
    assert np.abs(apart).max() < 1.0  # greedy keeps one tick more to spare
