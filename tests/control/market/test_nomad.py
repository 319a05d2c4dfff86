"""SkyNomad: how long spot lasts, what a place is worth, and what is billed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from control.market import make
from control.market.nomad import Lifetimes, SkyNomad
from control.market.ports import IDLE, ON_DEMAND, State, Terms
from twin.cloud.deadline import Windows, play

HOUR = 3600.0
TERMS = Terms(24 * HOUR, 36 * HOUR, 360.0, 600.0, 3.0, ((0.0, 0.0, 1.0), (0.0, 0.0, 1.0), (1.0, 1.0, 0.0)))
"""Two zones of one region, and one of another, whose moves cost 1 $."""


def seen(*lifetimes: tuple[float, bool]) -> Lifetimes:
    """Lifetimes of so many s, and whether their end was seen."""
    made, now_s = Lifetimes(), 0.0
    for length_s, ended in lifetimes:
        made.see(True, now_s)
        now_s += length_s
        made.see(False, now_s) if ended else made.leave(now_s)
    return made


def test_expected_lifetimes_are_what_hand_computes() -> None:
    # Hazard 1/3 at 10 (of three), 1 at 40; the last lifetime alone expects 4/3, so that γ* = 1.
    made = seen((10.0, True), (20.0, False), (40.0, True))
    first, second = np.exp(-1 / 3), np.exp(-4 / 3)
    beyond = (10 + 20 + 40) / 3
    assert made.expected_s(70.0, 1e9) == pytest.approx(10 + 30 * first + beyond * second)
    # The last one ended at 10 where 1/3 was expected: γ* = 3.
    made = seen((20.0, False), (40.0, True), (10.0, True))
    first, second = np.exp(-1.0), np.exp(-4.0)
    assert made.expected_s(70.0, 1e9) == pytest.approx(10 + 30 * first + beyond * second)
    assert seen((20.0, False)).expected_s(30.0, 77.0) == 77.0


def test_where_the_hazard_falls_an_old_machine_lasts_longer() -> None:
    made = seen(*[(600.0, True)] * 12, *[(HOUR, True)] * 2, (40 * HOUR, False), (50 * HOUR, True))
    made.see(True, 1e6)
    expected = [made.expected_s(1e6 + age, 0.0) for age in (0.0, 700.0, 2 * HOUR)]
    assert expected == sorted(expected)
    assert expected[0] < expected[-1]


@st.composite
def windows(draw: st.DrawFn) -> Windows:
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    there = np.repeat(random.random((2, 40, 3)) < 0.6, draw(st.integers(3, 30)), axis=1)
    price = np.repeat(0.4 + 1.5 * random.random((2, 4, 3)), 60, axis=1)
    there = np.concatenate([there, there, there], axis=1)[:, : TERMS.ticks]
    return Windows(np.concatenate([there, ~there], axis=1)[:, : TERMS.ticks], price[:, : TERMS.ticks])


@settings(max_examples=15, deadline=None)
@given(market=windows(), name=st.sampled_from(["sky-nomad", "available-progress", "value-progress"]))
def test_the_cost_is_compute_moves_and_probes_and_nobody_is_late(market: Windows, name: str) -> None:
    played = play(make(name, TERMS), TERMS, market)
    assert (played.finish_s <= TERMS.deadline_s).all()
    for job, choices in enumerate(played.choice.T.tolist()):
        spot = [zone for zone in choices if zone >= 0]
        moves = sum(TERMS.egress_usd[old][new] for old, new in pairwise(spot))
        assert played.egress_usd[job] == moves
        paid = [
            {IDLE: 0.0, ON_DEMAND: 3.0}.get(zone, market.spot_usd_h[job, tick, zone]) / 6
            for tick, zone in enumerate(choices)
        ]
        rest = played.cost_usd[job] - moves - played.probes_usd[job]
        assert rest == pytest.approx(sum(paid))
    dear = replace(TERMS, egress_usd=(), probe_s=0.0)
    alike = play(make(name, dear), dear, market)
    assert (alike.egress_usd == 0).all()
    assert (alike.probes_usd == 0).all()


@settings(max_examples=30, deadline=None)
@example(prices=[1.0, 1.0, 1.0], zone=1, by=1.0, there=[False, True, True], done=0.125)
@given(
    prices=st.lists(st.floats(0.3, 2.9), min_size=3, max_size=3), zone=st.integers(0, 2),
    by=st.floats(0.01, 3), there=st.lists(st.booleans(), min_size=3, max_size=3), done=st.floats(0, 12),
)  # fmt: skip
def test_a_zone_whose_price_rises_is_never_preferred(
    prices: list[float], zone: int, by: float, there: list[bool], done: float
) -> None:
    def taken(usd_h: list[float]) -> int:
        policy = SkyNomad(TERMS)
        choice = IDLE
        # A zone that is taken first and then lost would be another history at other prices.
        for tick, offer, work_s in ((0, [False] * 3, 0.0), (60, there, done * HOUR)):
            state = State(
                tick, np.array([offer]), np.array([usd_h]), np.array([IDLE]), np.zeros(1, int), np.zeros(1),
                np.array([work_s]),
            )  # fmt: skip
            choice = int(policy.on_step(state).choice[0])
        return choice

    dearer = [usd + by * (number == zone) for number, usd in enumerate(prices)]
    assert taken(dearer) != zone or taken(prices) == zone


@pytest.mark.parametrize(("egress_usd", "moves"), [(5.0, 1), (20.0, 0)])
def test_a_move_must_be_worth_its_price_over_the_time_that_spot_is_expected_to_last(
    egress_usd, moves
) -> None:
    terms = replace(TERMS, egress_usd=((0.0, egress_usd), (egress_usd, 0.0)))
    price = np.ones((1, terms.ticks, 2))
    # After two hours the other zone is cheaper by half a dollar for each of the 34 hours that are left.
    price[0, :12, 1], price[0, 12:, 1] = 2.0, 0.5
    played = play(SkyNomad(terms), terms, Windows(price > 0, price))
    assert played.choice[[11, 12], 0].tolist() == [0, moves]


def test_a_held_zone_is_not_probed_and_idle_ones_are() -> None:
    policy, held = SkyNomad(TERMS), np.array([0])
    probed = []
    for tick in range(30):
        state = State(
            tick, np.ones((1, 3), bool), np.array([[1.0, 2.0, 2.0]]), held if tick else np.array([IDLE]),
            np.zeros(1, int), np.zeros(1), np.array([tick * 600.0]),
        )  # fmt: skip
        decision = policy.on_step(state)
        assert decision.choice.tolist() == [0]
        if decision.probes is not None:
            probed.append((tick, decision.probes[0].tolist()))
    assert probed == [(12, [False, True, True]), (24, [False, True, True])]


def test_many_short_lifetimes_leave_a_long_one_finite() -> None:
    # The last lifetime is the shortest of 300, so that γ* is 300 and hardly any survival is left after 4 h.
    made = seen(*[(1200.0, True)] * 290, *[(3600.0 + 600 * age, True) for age in range(9)], (600.0, True))
    made.see(True, 1e6)
    expected_s = [made.expected_s(1e6 + age_s, 0.0) for age_s in (0.0, 4 * HOUR)]
    assert np.isfinite(expected_s).all()
    assert min(expected_s) > 0


@pytest.mark.parametrize("name", ["sky-nomad", "available-progress", "value-progress", "planned"])
def test_a_policy_forgets_one_market_before_the_next(name: str) -> None:
    there = np.random.default_rng(3).random((2, TERMS.ticks, 3)) < 0.5
    one, other = Windows(there, np.ones(there.shape)), Windows(there[:1], np.ones(there[:1].shape))
    used = make(name, TERMS)
    play(used, TERMS, one)
    assert (play(used, TERMS, other).choice == play(make(name, TERMS), TERMS, other).choice).all()
