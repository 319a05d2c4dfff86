"""The ladder of cross-cloud strategies: what must hold for any prices, and small cases by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.market.ladder import (
    HOUR_S,
    LADDER,
    LATE,
    MOVE,
    START,
    STAY,
    Job,
    Offer,
    admitted,
    again,
    offered,
)
from control.market.levels import Levels
from twin.cloud.ladder import Ride, hindsight_usd, play
from twinbed import ScenarioError

HOME, GPU, DAY_S = ("aws", "east"), "V100", 86_400.0
EVERYTHING = np.ones(3, dtype=bool)


def offer(
    name: str, speed: float, *prices: float, gpus: int = 1, place: str = "aws/east", step_s: float = DAY_S
) -> Offer:
    """An offer whose price changes every day."""
    cloud, region = place.split("/")
    t_s = np.arange(len(prices)) * step_s
    return Offer(
        cloud, region, name, GPU if name == "base" else name, gpus, speed, Levels(t_s, np.array(prices))
    )


@st.composite
def markets(draw: st.DrawFn) -> list[Offer]:
    """The reference GPU at home, and up to four other offers, with prices that change at odd moments."""
    price = st.lists(st.floats(0.05, 5), min_size=1, max_size=6)
    others = [
        offer(
            f"type-{number}", draw(st.sampled_from([0.25, 0.7, 1.0, 3.0])), *draw(price),
            gpus=draw(st.sampled_from([1, 4])), place=draw(st.sampled_from(["aws/east", "gcp/west"])),
            step_s=draw(st.sampled_from([DAY_S, 30_000.0])),
        )
        for number in range(draw(st.integers(1, 4)))
    ]  # fmt: skip
    return [offer("base", 1.0, *draw(price)), *others]


def chosen(ride: Ride, offers: list[Offer]) -> list[tuple[str, float]]:
    return [(offers[stay.choice.offer].name, stay.begin_s) for stay in ride.stays]


@settings(max_examples=60, deadline=None)
@given(offers=markets(), days=st.floats(0.2, 4), every_h=st.sampled_from([6.0, 24.0]))
def test_with_hindsight_and_free_moves_every_freedom_helps(
    offers: list[Offer], days: float, every_h: float
) -> None:
    job, every_s = Job(days * DAY_S), every_h * HOUR_S
    costs = []
    for step in LADDER:
        allowed = offered(step, offers, HOME, GPU, 0.0)
        moves = every_s if step == "dynamic" else None
        costs.append(hindsight_usd(job, offers, allowed, 0.0, moves))
        assert play(job, offers, allowed, 0.0, moves).cost_usd >= costs[-1] - 1e-9
    assert np.diff(costs).max() <= 1e-9


@settings(max_examples=60, deadline=None)
@given(
    offers=markets(), days=st.floats(0.2, 4), every_h=st.sampled_from([1.0, 24.0]), restart_h=st.floats(0, 3),
    egress=st.floats(0, 2), spare=st.one_of(st.just(np.inf), st.floats(0, 2)), order=st.randoms(),
)  # fmt: skip
def test_any_ride_is_billed_exactly_moves_rarely_and_is_never_late(
    offers: list[Offer], days: float, every_h: float, restart_h: float, egress: float, spare: float, order
) -> None:
    fastest = max(offer.speed for offer in offers)
    deadline_s = days * DAY_S / fastest * (1 + spare) + restart_h * HOUR_S
    job = Job(days * DAY_S, restart_h * HOUR_S, 1.0, egress, deadline_s=deadline_s)
    allowed = offered("dynamic", offers, HOME, GPU, 0.0)
    ride = play(job, offers, allowed, 0.0, every_h * HOUR_S)
    assert ride.span_s <= deadline_s + 1e-3
    assert ride.moves <= np.ceil(ride.span_s / (every_h * HOUR_S))
    work_s = 0.0
    for stay, then in zip(ride.stays, [*ride.stays[1:], None], strict=True):
        assert then is None or stay.end_s == then.begin_s
        held = offers[stay.choice.offer]
        edges = np.unique(np.clip([*held.usd_h.t_s, stay.begin_s, stay.end_s], stay.begin_s, stay.end_s))
        usd = sum(held.usd_h.at(a) * (b - a) for a, b in pairwise(edges)) / HOUR_S
        assert stay.usd == pytest.approx(usd)
        work_s += max(stay.end_s - stay.begin_s - job.restart_s, 0.0) * held.speed
        assert stay.choice.reason != MOVE or stay.choice.saves_usd > stay.choice.costs_usd
    assert work_s == pytest.approx(job.work_s)
    mixed = list(offers)
    order.shuffle(mixed)
    assert chosen(play(job, mixed, allowed, 0.0, every_h * HOUR_S), mixed) == chosen(ride, offers)
    dearer = [replace(one, usd_h=Levels(one.usd_h.t_s, 2 * one.usd_h.value)) for one in offers]
    twice = play(replace(job, egress_usd_gb=2 * egress), dearer, allowed, 0.0, every_h * HOUR_S)
    assert chosen(twice, dearer) == chosen(ride, offers)


@settings(max_examples=30, deadline=None)
@given(
    prices=st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=12, max_size=12),
    slow=st.sampled_from([0.5, 0.75]), work=st.floats(0.5, 2.9),
)  # fmt: skip
def test_hindsight_is_what_trying_everything_finds(prices: list[float], slow: float, work: float) -> None:
    offers = [offer("base", 1.0, *prices[:6]), offer("slow", slow, *prices[6:])]
    least = np.inf
    for plan in product((0, 1), repeat=6):
        left, usd = work, 0.0
        for day, held in enumerate(plan):
            span = min(left / offers[held].speed, 1.0)
            usd, left = usd + 24 * span * prices[6 * held + day], left - span * offers[held].speed
        least = min(least, usd) if left < 1e-9 else least
    both = np.ones(2, dtype=bool)
    assert hindsight_usd(Job(work * DAY_S), offers, both, 0.0, DAY_S) == pytest.approx(least)


def test_equal_prices_of_work_move_nobody_and_a_move_must_pay_for_itself() -> None:
    same = [
        offer("base", 1.0, 1.0, 2.0),
        offer("b", 2.0, 2.0, 4.0, place="gcp/west"),
        offer("c", 0.5, 0.5, 1.0),
    ]
    assert play(Job(4 * DAY_S), same, EVERYTHING, 0.0, DAY_S).moves == 0
    # On the second day b costs 1 $/h less, so that a day there saves 24 $; restarting takes an hour of 1 $.
    other = offer("b", 1.0, 1.5, 1.0, place="gcp/west")
    offers = [offer("base", 1.0, 1.0, 2.0), other, offer("c", 1.0, 9.0)]
    for restart_s, egress_usd, moves in ((0, 23.9, 1), (0, 24.1, 0), (3600, 22.9, 1), (3600, 23.1, 0)):
        ride = play(Job(2 * DAY_S, restart_s, 1.0, egress_usd), offers, EVERYTHING, 0.0, DAY_S)
        assert [stay.choice.reason for stay in ride.stays] == [START, MOVE][: moves + 1]
        assert ride.stays[0].choice.new_usd == 1.0
        second = 24 + 2 * restart_s / HOUR_S + egress_usd if moves else 48 + 2 * restart_s / HOUR_S
        assert ride.cost_usd == pytest.approx(24 + second)


def test_the_slow_and_cheap_one_comes_first_and_the_deadline_ends_it() -> None:
    offers = [offer("base", 1.0, 3.0), offer("b", 0.5, 0.5), offer("c", 2.0, 20.0)]
    ride = play(Job(4 * DAY_S, deadline_s=5 * DAY_S), offers, EVERYTHING, 0.0, DAY_S)
    assert [offers[stay.choice.offer].type for stay in ride.stays][:2] == ["b", "base"]
    assert ride.stays[1].choice.reason == LATE
    # After a day on b and a quarter to restart, base would need another 3.625 days.
    for days, first in ((4.9, "b"), (4.8, "base")):
        ride = play(Job(4 * DAY_S, DAY_S / 4, deadline_s=days * DAY_S), offers, EVERYTHING, 0.0, DAY_S)
        assert offers[ride.stays[0].choice.offer].type == first
    # Base alone takes the four days exactly, and costs less than b and c in turn.
    ride = play(Job(4 * DAY_S, deadline_s=4 * DAY_S), offers, EVERYTHING, 0.0, DAY_S)
    assert {offers[stay.choice.offer].type for stay in ride.stays} == {"base"}
    with pytest.raises(ScenarioError, match=r"the fastest offer needs 48\.0 h"):
        play(Job(4 * DAY_S, deadline_s=1.9 * DAY_S), offers, EVERYTHING, 0.0, DAY_S)


def test_a_choice_that_is_the_only_one_is_the_cheapest_in_time() -> None:
    # b is late alone. With c it would be cheaper than with base (204 $ and 240 $), but nothing moves here,
    # and base alone costs 288 $ and c 312 $.
    offers = [offer("base", 1.0, 3.0), offer("b", 0.5, 0.5), offer("c", 2.0, 6.5)]
    ride = play(Job(4 * DAY_S, deadline_s=5 * DAY_S), offers, EVERYTHING, 0.0, None)
    assert [offers[stay.choice.offer].type for stay in ride.stays] == ["base"]
    assert ride.cost_usd == pytest.approx(288.0)


def test_what_no_restart_leaves_time_for_is_not_left() -> None:
    # In 1.1 days the rest takes a day on base, and 1.25 days after any restart.
    offers, job = [offer("base", 1.0, 3.0), offer("b", 0.5, 0.5)], Job(DAY_S, DAY_S / 4)
    choice = again(job, offers, EVERYTHING[:2], 0.0, DAY_S / 10, 0, DAY_S, 0.0, 1.1 * DAY_S)
    assert (choice.offer, choice.reason) == (0, STAY)


def test_jobs_are_admitted_in_order_while_they_fit() -> None:
    assert admitted([4.0, np.inf, 7.0, 5.0, 1.0], 10.0) == [True, False, False, True, True]
    # Without a budget, a job that cannot run must not use it up.
    assert admitted([4.0, np.inf, 7.0], np.inf) == [True, False, True]
    assert admitted([], 1.0) == []


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ScenarioError, match="above 0"):
        offer("b", 0.0, 1.0)
    with pytest.raises(ScenarioError, match="restart_s is -1"):
        Job(1.0, -1.0)
    with pytest.raises(ScenarioError, match="needs work"):
        Job(0.0)
    with pytest.raises(ScenarioError, match="baseline: no offer at the start"):
        offered("baseline", [offer("b", 1.0, 1.0)], HOME, GPU, 0.0)
    with pytest.raises(ScenarioError, match=r"dynamic: no offer .*; the first price is 2\.5 days later"):
        offered("dynamic", [offer("b", 1.0, 1.0)], HOME, GPU, -2.5 * DAY_S)
