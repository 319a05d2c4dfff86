"""One job on a market in virtual time: never late, never below the optimum, equal to the play in ticks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.market import POLICIES, make
from control.market.course import REVOKED, STARTING, WAITING, WORKING, Market, Span, Timing, Zone
from control.market.levels import Levels
from control.market.ports import BEHIND, IDLE, ON_DEMAND, REASONS, TAKE, Decision, State, Terms
from twin.cloud.deadline import Windows, optimum_usd, play
from twin.cloud.market import simulate
from twinbed import ScenarioError

MINUTE_S = 60.0


def zones(
    there: np.ndarray, price: np.ndarray, step_s: float, speeds: tuple[float, ...] = ()
) -> tuple[Zone, ...]:
    """Zones with availability and prices by steps, [steps, zones]."""
    t_s = np.arange(len(there)) * step_s
    return tuple(
        Zone(
            str(zone),
            f"region {zone % 2}",
            "spot",
            speeds[zone] if speeds else 1.0,
            Levels(t_s, there[:, zone].astype(float)),
            Levels(t_s, price[:, zone]),
        )
        for zone in range(there.shape[1])
    )


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(POLICIES)),
    seed=st.integers(0, 10_000),
    start=st.sampled_from([0, 2, 7]),
    notice=st.sampled_from([0.0, 30.0, 120.0]),
    saves=st.booleans(),
    slack=st.integers(1, 12),
    speeds=st.sampled_from([(1.0, 1.0, 1.0), (0.5, 1.0, 1.6)]),
)
def test_nobody_is_late_or_beats_the_optimum_when_machines_go_at_any_minute(
    name: str, seed: int, start: int, notice: float, saves: bool, slack: int, speeds: tuple[float, ...]
) -> None:
    random = np.random.default_rng(seed)
    work_s, move_s, stop_s = 20 * 600.0, 45.0, 20.0
    restart_s = start * MINUTE_S + move_s + stop_s
    terms = Terms(work_s, work_s + restart_s + slack * 600, restart_s, 600.0, 3.0)
    minutes = int(terms.deadline_s // MINUTE_S) + 1
    there = np.repeat(random.random((minutes, 3)) < 0.5, random.integers(1, 90), axis=0)[:minutes]
    price = np.repeat(0.5 + random.random((minutes // 50 + 1, 3)), 50, axis=0)[:minutes]
    market = Market(zones(there, price, MINUTE_S, speeds), "plain", 3.0, notice_s=notice, billing_s=MINUTE_S)
    timing = Timing(start * MINUTE_S, stop_s, move_s, 450.0, saves)
    done = simulate(market, terms, timing, make(name, terms))
    assert done.finish_s <= terms.deadline_s + 1e-6
    bound = Terms(work_s, minutes * MINUTE_S, start * MINUTE_S, MINUTE_S, 3.0)
    assert done.cost_usd >= optimum_usd(bound, Windows(there[None], price[None]), speeds)[0] - 1e-9
    assert (done.lost_s == 0) or not saves or notice < stop_s
    works = sum(
        (span.end_s - span.begin_s) * (speeds[span.place] if span.place >= 0 else 1.0)
        for span in done.spans
        if span.state == "working"
    )
    assert works == pytest.approx(work_s + done.lost_s)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_whole_ticks_without_losses_in_between_cost_what_the_play_in_ticks_costs(name: str) -> None:
    terms = Terms(20 * 600.0, 30 * 600.0, 600.0, 600.0, 3.0)
    random = np.random.default_rng(5)
    there = np.repeat(random.random((10, 2)) < 0.6, 3, axis=0)
    price = np.full(there.shape, 1.0)
    market = Market(zones(there, price, 600.0), "plain", 3.0, notice_s=0.0, billing_s=600.0)
    done = simulate(market, terms, Timing(600.0, 0.0, 0.0, 600.0, True), make(name, terms))
    played = play(make(name, terms), terms, Windows(there[None], price[None]))
    assert done.cost_usd == pytest.approx(played.cost_usd[0])
    assert done.finish_s == pytest.approx(played.finish_s[0])
    assert done.starts == played.starts[0]


class Scripted:
    """Takes these places, tick by tick, and remembers what it saw."""

    def __init__(self, *places: int) -> None:
        self.places, self.seen = places, []

    def on_step(self, state: State) -> Decision:
        self.seen.append((state.held[0], state.zone[0], state.restart_left_s[0]))
        place = self.places[state.tick]
        return Decision(np.array([place]), np.array([BEHIND if place == ON_DEMAND else TAKE]))


def test_a_policy_sees_the_last_zone_and_what_is_left_of_a_start_that_it_still_holds() -> None:
    minutes = np.arange(100)
    there = np.stack([minutes < 31, minutes < 19], axis=1)
    market = Market(zones(there, np.ones(there.shape), MINUTE_S), "plain", 3.0, notice_s=120.0)
    policy = Scripted(1, 1, 0, *[ON_DEMAND] * 3)
    timing = Timing(700.0, 0.0, 200.0, 600.0, saves=False)
    done = simulate(market, Terms(1000.0, 6000.0, 1500.0, 600.0, 3.0), timing, policy)
    # Zone 1 is lost at 1140 s, and zone 0 has its notice at 1740 s, while the job starts there.
    lost, noticed = (IDLE, 1, 0), (IDLE, 0, 0)
    assert policy.seen == [(IDLE, 0, 0), (1, 1, 900), lost, noticed, (ON_DEMAND, 0, 900), (ON_DEMAND, 0, 0)]
    assert (done.starts, done.moves, done.regions, done.revocations) == (3, 2, 1, 2)
    assert done.events == ((1020.0, "notice", 1), (1140.0, "lost", 1), (1740.0, "notice", 0))
    # The first 440 s of work are not saved. Spot costs 1 $/h, and on demand 3 $/h.
    assert (done.lost_s, done.finish_s) == (440.0, 3500.0)
    assert (done.spot_usd, done.on_demand_usd) == pytest.approx((1740 / 3600, 3 * 1700 / 3600))
    spot, on_demand = REASONS[TAKE], REASONS[BEHIND]
    assert done.spans == (
        Span(0.0, 700.0, STARTING, 1, spot),
        Span(700.0, 1140.0, WORKING, 1, spot),
        Span(1140.0, 1200.0, WAITING, IDLE, REVOKED),
        Span(1200.0, 1800.0, STARTING, 0, spot),
        Span(1800.0, 2500.0, STARTING, ON_DEMAND, on_demand),
        Span(2500.0, 3500.0, WORKING, ON_DEMAND, on_demand),
    )
    with pytest.raises(ScenarioError, match="where there is none, in tick 1"):
        simulate(market, Terms(9000.0, 90_000.0, 0.0, 1800.0, 3.0), timing, Scripted(0, 0))


@pytest.mark.parametrize(
    ("notice_s", "stop_s", "kept"), [(30.0, 30.0, True), (30.0, 31.0, False), (0.0, 0.0, False)]
)
def test_a_save_that_takes_the_whole_notice_is_in_time(notice_s: float, stop_s: float, kept: bool) -> None:
    there = Levels(np.array([0.0, 5000.3]), np.array([1.0, 0.0]))
    zone = Zone("a", "here", "t", 1.0, there, Levels(np.array([0.0]), np.array([1.0])))
    terms = Terms(20_000.0, 40_000.0, 400.0, 600.0, 3.0)
    timing = Timing(360.0, stop_s, 0.0, 1800.0, saves=True)
    done = simulate(Market((zone,), "t", 3.0, notice_s=notice_s), terms, timing, make("greedy", terms))
    assert (done.lost_s == 0) is kept
