from dataclasses import replace
from itertools import groupby, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.market import POLICIES, make
from control.market.planned import BUCKETS, PRIOR_ALPHA, PRIOR_SPELLS, SHAPE, Planned, most_usd, plan
from control.market.ports import (
    AHEAD,
    BEHIND,
    DONE,
    GUARD,
    HOLD,
    IDLE,
    ON_DEMAND,
    REASONS,
    STAY,
    TAKE,
    THROUGHOUT,
    WAIT,
    Decision,
    State,
    Terms,
    progress,
)
from twin.cloud.deadline import Played, Windows, optimum_usd, play
from twinbed import ScenarioError

HOUR = 3600.0


def market(*zones: str, price: float = 1.0) -> Windows:
    """Return one window; a zone is written as 1 and 0 by tick."""
    there = np.array([[mark == "1" for mark in zone] for zone in zones]).T[None]
    return Windows(there, np.full(there.shape, price))


def run(name: str, terms: Terms, windows: Windows) -> Played:
    return play(make(name, terms), terms, windows)


def terms_of(work: int, spare: int, restart: float) -> Terms:
    """Return terms in ticks of 600 s."""
    return Terms(work * 600.0, (work + spare) * 600.0, restart * 600.0, 600.0, 3.0)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(POLICIES)),
    work=st.integers(1, 30),
    spare=st.integers(0, 12),
    restart=st.sampled_from([0.0, 0.3, 1.0, 1.7, 3.2]),
    zones=st.integers(1, 3),
    seed=st.integers(0, 10_000),
)
def test_no_policy_is_ever_late_and_none_beats_the_optimum(
    name: str, work: int, spare: int, restart: float, zones: int, seed: int
) -> None:
    terms = terms_of(work, spare + int(np.ceil(restart)), restart)
    random = np.random.default_rng(seed)
    shape = (4, terms.ticks, zones)
    # Spells of all lengths, and one market that never has anything.
    there = np.repeat(random.random(shape) < 0.5, random.integers(1, 9), axis=1)[:, : terms.ticks]
    there[0] = False
    windows = Windows(there, np.repeat(0.5 + random.random((4, 1, zones)), terms.ticks, axis=1))
    played = run(name, terms, windows)
    assert (played.finish_s <= terms.deadline_s + 1e-6).all()
    assert (played.cost_usd >= optimum_usd(terms, windows) - 1e-9).all()
    held = np.concatenate([np.full((1, 4), IDLE), played.choice])
    assert ((held[1:] != held[:-1]) & (held[1:] != IDLE)).sum() <= played.starts.sum()
    assert set(np.unique(played.reason)) <= set(range(len(REASONS)))


def unusual(kind: str, ticks: int, random: np.random.Generator) -> np.ndarray:
    """Return availability unlike the public traces, bool[ticks]."""
    t = np.arange(ticks)
    there: dict[str, np.ndarray] = {
        "never": t < 0,
        "always": t >= 0,
        "rare": random.random(ticks) < 0.01,
        "nearly always": random.random(ticks) < 0.99,
        "every other tick": t % 2 == 0,
        "by day": (t + random.integers(144)) % 144 < 72,
        "two of five ticks": t % 5 < 2,
        "only late": t > ticks // 2,
        "long spells": np.repeat(random.random(ticks // 40 + 1) < 0.5, 40)[:ticks],
    }
    return there[kind]


def prices(kind: str, ticks: int, random: np.random.Generator) -> np.ndarray:
    """Return prices of spot beside 3 $ on demand, US$/h, float64[ticks]."""
    t = np.arange(ticks)
    return {
        "flat": np.ones(ticks),
        "random walk": np.clip(np.exp(np.cumsum(random.normal(0, 0.3, ticks))), 0.001, 1000),
        "spike": np.where((t > ticks // 4) & (t < ticks // 2), 300.0, 1.0),
        "dear but at the start": np.where(t == 0, 0.1, 30.0),
        "always dear": np.full(ticks, 3.1),
    }[kind]


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["never", "always", "rare", "nearly always", "every other tick", "by day",
        "two of five ticks", "only late", "long spells"]),
    price=st.sampled_from(["flat", "random walk", "spike", "dear but at the start", "always dear"]),
    work=st.floats(0.1, 60),
    spare=st.sampled_from([0.0, 0.4, 1.0, 5.5, 60.0]),
    restart=st.sampled_from([0.0, 0.3, 1.7, 20.0]),
    egress=st.sampled_from([0.0, 5.0]),
    seed=st.integers(0, 10_000),
)  # fmt: skip
def test_ours_is_in_time_and_within_its_bound_on_markets_of_any_kind(
    kind: str, price: str, work: float, spare: float, restart: float, egress: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    moving = ((0.0, egress), (egress, 0.0))
    terms = Terms(work * 600, (work + restart + spare) * 600, restart * 600, 600.0, 3.0, moving)
    ticks = terms.ticks + 1
    there = np.stack([unusual(kind, ticks, random) for _ in range(2)], axis=1)[None]
    usd_h = np.stack([prices(price, ticks, random) for _ in range(2)], axis=1)[None]
    windows = Windows(there, usd_h)
    for name in POLICIES:
        played = run(name, terms, windows)
        assert played.finish_s[0] <= terms.deadline_s + 1e-6, name
        assert name != "planned" or played.cost_usd[0] <= most_usd(terms) + 1e-6


def test_spot_that_costs_more_than_on_demand_is_left() -> None:
    terms = terms_of(10, 20, 0.5)
    windows = market("1" * 30)
    windows.spot_usd_h[:, 4:] = 30.0
    played = run("planned", terms, windows)
    assert played.choice[:4, 0].tolist() == [0] * 4
    assert (played.choice[4:, 0] < 0).all()


def test_spot_that_stays_is_held_to_the_end_also_where_a_plan_takes_ticks_together() -> None:
    # 500 ticks are more than STEPS: a step is two ticks. Restarts are longer than a step, as in large jobs.
    for work in (470.2, 470.5, 470.8, 471.3, 471.7):
        terms = Terms(work * 600.0, 500 * 600.0, 2.4 * 600.0, 600.0, 3.0)
        played = run("planned", terms, market("1" * 500))
        assert played.starts[0] == 1, work
        assert played.on_demand_h[0] == 0, work
        assert played.cost_usd[0] == pytest.approx(np.ceil(work + 2.4) / 6), work


def test_a_deadline_that_on_demand_meets_within_a_tick_is_met() -> None:
    # 10.2 ticks of work and restart before 10.5 ticks: whole ticks alone would be too few.
    terms = Terms(10 * 600.0, 10.5 * 600.0, 0.2 * 600.0, 600.0, 3.0)
    for name in POLICIES:
        assert run(name, terms, market("10" * 5)).finish_s[0] == pytest.approx(10.2 * 600)


class Adversary:
    """A market that sees what a job holds, and takes spot away, in every zone, whenever that hurts."""

    def __init__(self, terms: Terms, random: np.random.Generator, zones: int) -> None:
        self.terms, self.random, self.zones = terms, random, zones

    def against(self, name: str) -> float:
        """Return the time at which the job ends, s."""
        terms, policy = self.terms, make(name, self.terms)
        held, zone, left_s, done_s = (np.array([IDLE]), np.array([0]), np.zeros(1), np.zeros(1))
        for tick in range(terms.ticks):
            there = (held[0] == IDLE) | (self.random.random((1, self.zones)) < 0.3)
            held = np.where((held >= 0) & ~there[0, np.maximum(held, 0)], IDLE, held)
            state = State(tick, there, np.ones(there.shape), held, zone, left_s, done_s)
            decision: Decision = policy.on_step(state)
            choice = decision.choice
            zone = np.where(choice >= 0, choice, zone)
            start = (choice != held) & (choice != IDLE)
            left_s = np.where(start, terms.restart_s, np.where(choice == IDLE, 0.0, left_s))
            done_s = done_s + np.where(choice == IDLE, 0.0, np.maximum(terms.tick_s - left_s, 0.0))
            left_s, held = np.maximum(left_s - terms.tick_s, 0.0), choice
            if done_s[0] >= terms.work_s - 1e-6:
                return (tick + 1) * terms.tick_s
        return float("inf")


@pytest.mark.parametrize("zones", [1, 3])
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_market_that_takes_spot_away_when_it_hurts_makes_no_policy_late(name: str, zones: int) -> None:
    random = np.random.default_rng(5)
    for restart in (0.3, 1.2, 2.5):
        terms = terms_of(20, 6, restart)
        assert all(Adversary(terms, random, zones).against(name) <= terms.deadline_s for _ in range(10))


@pytest.mark.parametrize("name", ["greedy", "uniform-progress", "planned"])
def test_spot_that_is_always_there_is_held_from_start_to_end(name: str) -> None:
    terms = terms_of(10, 8, 0.5)
    played = run(name, terms, market("1" * 18))
    assert played.cost_usd[0] == pytest.approx(11 * 600 / HOUR)
    assert played.starts[0] == 1


def test_greedy_waits_and_then_holds_one_machine_on_demand() -> None:
    terms = terms_of(10, 4, 1.0)
    played = run("greedy", terms, market("0" * 14))
    assert played.starts[0] == 1
    assert played.choice[:, 0].tolist() == [IDLE] * 2 + [ON_DEMAND] * 11 + [IDLE]


@pytest.mark.parametrize(
    ("name", "spot", "course", "reasons"),
    [
        ("on-demand", "1" * 20, "o" * 11 + "i" * 9, [THROUGHOUT, DONE]),
        # The line rises by half a tick. On demand does nothing in its first tick, and is left two restarts
        # (one tick of the line) ahead: at 5 of 4.5 ticks.
        ("uniform-progress", "0" * 20, "i oooooo iiii oooooo iii", [AHEAD, BEHIND, HOLD] * 2 + [DONE]),
        # On demand is left on the line, and the guard takes the last two ticks.
        (
            "plain-progress",
            "0" * 20,
            "i oooo ii oooo ii oooo i oo",
            [AHEAD, BEHIND, HOLD] * 3 + [AHEAD, GUARD],
        ),
        # Spot is taken from on demand at once, and held although far ahead. Then the line decides.
        (
            "uniform-progress",
            "000" + "1" * 7 + "0" * 10,
            "ioo sssssss iiiii oooo i",
            [AHEAD, BEHIND, HOLD, TAKE, STAY, AHEAD, BEHIND, GUARD, DONE],
        ),
        # Nine ticks are needed from the tenth on, and one is kept.
        ("greedy", "000111" + "0" * 14, "iii sss iiii ooooooooo i", [WAIT, TAKE, STAY, WAIT, GUARD, DONE]),
    ],
)
def test_rules_do_what_a_hand_computes(name: str, spot: str, course: str, reasons: list[int]) -> None:
    """course: idle, on demand or spot by tick, of 10 ticks of work in 20 with a restart of one tick."""
    played = run(name, terms_of(10, 10, 1.0), market(spot))
    choices = [{IDLE: "i", ON_DEMAND: "o"}.get(choice, "s") for choice in played.choice[:, 0].tolist()]
    assert "".join(choices) == course.replace(" ", "")
    assert [reason for reason, _ in groupby(played.reason[:, 0].tolist())] == reasons


@pytest.mark.parametrize("name", ["greedy", "uniform-progress", "plain-progress"])
def test_a_zone_that_has_spot_is_enough(name: str) -> None:
    assert run(name, terms_of(10, 10, 1.0), market("0" * 20, "1" * 20)).choice[:11, 0].tolist() == [1] * 11


def test_hysteresis_starts_fewer_machines() -> None:
    random = np.random.default_rng(1)
    terms = terms_of(60, 30, 0.5)
    there = np.repeat(random.random((20, 23, 1)) < 0.4, 4, axis=1)[:, :90]
    windows = Windows(there, np.ones(there.shape))
    assert (
        run("uniform-progress", terms, windows).starts.sum()
        < run("plain-progress", terms, windows).starts.sum()
    )


def test_zones_are_taken_by_price_and_on_a_tie_the_last_one_again() -> None:
    state = State(
        3, np.array([[True, True], [True, True], [False, True]]), np.array([[1.0, 1.0], [1.0, 0.9], [0.5,
        1.0]]), np.full(3, IDLE), np.array([1, 0, 0]), np.zeros(3), np.zeros(3),
    )  # fmt: skip
    assert state.cheapest.tolist() == [1, 1, 1]


def test_a_start_that_is_given_up_leaves_nothing_to_wait_for() -> None:
    held, spot = np.array([0, 0, IDLE]), np.ones((3, 1))
    state = State(1, spot > 0, spot, held, np.zeros(3, int), np.array([900.0, 900.0, 0.0]), np.zeros(3))
    done_s, left_s = progress(terms_of(10, 10, 2.5), state, np.array([0, IDLE, ON_DEMAND]))
    assert (done_s.tolist(), left_s.tolist()) == ([0, 0, 0], [300, 0, 900])


@pytest.mark.parametrize(("cheap_usd_h", "moves"), [(1.0, 1), (1.99, 0)])
def test_a_job_moves_to_a_cheaper_zone_when_the_saving_pays_for_the_restart(cheap_usd_h, moves) -> None:
    windows = market("1" * 130, "0" * 50 + "1" * 80)
    windows.spot_usd_h[:, :, 0], windows.spot_usd_h[:, :, 1] = 2.0, cheap_usd_h
    played = run("planned", terms_of(100, 30, 0.3), windows)
    assert played.starts[0] == 1 + moves
    assert played.choice[99, 0] == moves


@pytest.mark.parametrize(("egress_usd", "zone"), [(0.0, 1), (5.0, 0)])
def test_a_start_in_another_zone_counts_the_move_of_the_checkpoint(egress_usd: float, zone: int) -> None:
    terms = replace(terms_of(100, 60, 0.3), egress_usd=((0.0, egress_usd), (egress_usd, 0.0)))
    # The job begins in zone 0. After an outage both zones are there, and zone 1 is 5 % cheaper.
    windows = market("1" * 20 + "0" * 5 + "1" * 135, "0" * 25 + "1" * 135)
    windows.spot_usd_h[:, :, 1] = 0.95
    choices = run("planned", terms, windows).choice[20:, 0]
    assert choices[choices >= 0][0] == zone


@pytest.mark.parametrize("steady", [0, 1])
def test_of_two_zones_that_return_together_the_one_that_lost_less_is_taken(steady: int) -> None:
    zones = ["10" * 20 + "00" + "1" * 118] * 2
    zones[steady] = "1" * 40 + "00" + "1" * 118
    choices = run("planned", terms_of(100, 60, 0.3), market(*zones)).choice[42:, 0]
    assert choices[choices >= 0][0] == steady


def test_a_plan_waits_only_with_slack_and_takes_spot_that_has_lasted() -> None:
    made = plan(60, 30, restart=0.5, ratio=0.3)
    action = made.action
    left, young, old, out = 40, 0, BUCKETS - 2, BUCKETS
    assert action(left, 1, 3, 25, out, IDLE + 1) == 0  # short outages and much slack: wait
    assert action(left, 1, 0, 2, out, IDLE + 1) == 1  # long outages and no slack: on demand
    assert action(left, 1, 1, 20, old, IDLE + 1) == 2
    assert action(left, 1, 1, 20, young, 2) == 2
    assert (
        made.actions.nbytes == made.actions.size == 61 * 4 * 4 * 31 * 2 * BUCKETS
    )  # a byte for all machines held


@pytest.mark.parametrize("spell", [2, 20])
def test_what_is_learned_of_outages_is_how_far_they_grew_however_long_spot_lasts(spell: int) -> None:
    zone = ("1" * spell + "000") * 2 + "111"
    terms = terms_of(len(zone) - 2, 2, 0.0)
    policy = Planned(terms)
    play(policy, terms, market(zone))
    # Two outages grew from 1 to 4 ticks, beside those of the prior.
    hazard = (4**SHAPE - 1) / SHAPE
    expected = (2 + PRIOR_SPELLS) / (2 * hazard + PRIOR_SPELLS / PRIOR_ALPHA)
    assert policy._alphas()[0, -1] == pytest.approx(expected)


def test_the_law_of_spells_is_learned_from_markets_that_follow_it() -> None:
    rng, up, down = np.random.default_rng(4), 0.3, 0.6

    def spell(alpha: float) -> int:
        """Return a length, in ticks, at whose age the integral of the hazard reaches an exponential draw."""
        return max(1, round((1 + SHAPE * rng.exponential() / alpha) ** (1 / SHAPE) - 0.5))

    zones = ["".join("1" * spell(up) + "0" * spell(down) for _ in range(200))[:400] for _ in range(50)]
    there = np.array([[[mark == "1"] for mark in zone] for zone in zones])
    terms = terms_of(398, 2, 0.0)
    policy = Planned(terms)
    play(policy, terms, Windows(there, np.ones(there.shape)))
    np.testing.assert_allclose(np.median(policy._alphas(), axis=0), [up, down], rtol=0.25)  # the prior counts


def cheapest(terms: Terms, there: list[list[bool]], speeds: tuple[float, ...]) -> float:
    """Return the least cost by trying everything. there: by tick and zone."""
    zones, best = len(speeds), np.inf
    for choices in product((IDLE, ON_DEMAND, *range(zones)), repeat=len(there)):
        held, zone, left_s, done_s, cost = IDLE, IDLE, 0.0, 0.0, 0.0
        for tick, choice in enumerate(choices):
            if choice >= 0 and not there[tick][choice]:
                break
            left_s = terms.restart_s if choice not in (held, IDLE) else (0.0 if choice == IDLE else left_s)
            speed = speeds[choice] if choice >= 0 else 1.0
            if choice >= 0:
                cost += terms.egress_usd[zone][choice] if zone >= 0 else 0.0
                zone = choice
            worked_s = 0.0
            if choice != IDLE:
                cost += (3.0 if choice == ON_DEMAND else 1.0 + choice / 2) * terms.tick_s / HOUR
                worked_s = max(terms.tick_s - left_s, 0.0) * speed
            ends_s = tick * terms.tick_s + min(left_s, terms.tick_s) + (terms.work_s - done_s) / speed
            done_s, left_s, held = done_s + worked_s, max(left_s - terms.tick_s, 0.0), choice
            if done_s >= terms.work_s - 1e-6:
                best = min(best, cost) if ends_s <= terms.deadline_s + 1e-6 else best
                break
    return best


@settings(max_examples=25, deadline=None)
@given(
    there=st.lists(st.lists(st.booleans(), min_size=2, max_size=2), min_size=5, max_size=5),
    work=st.sampled_from([300.0, 900.0, 1800.0, 2400.0]),
    restart=st.sampled_from([0.0, 180.0, 600.0, 750.0]),
    speeds=st.sampled_from([(1.0, 1.0), (0.5, 2.0), (1.25, 0.3), (25 / 13, 1 / 3)]),
    egress=st.sampled_from([0.0, 0.05, 0.4]),
    late=st.sampled_from([0.0, 350.0]),
)
def test_the_optimum_is_what_trying_everything_finds(
    there: list[list[bool]],
    work: float,
    restart: float,
    speeds: tuple[float, ...],
    egress: float,
    late: float,
) -> None:
    moving = ((0.0, egress), (egress / 2, 0.0))
    terms = Terms(min(work, 2400.0 - restart), 3000.0 - late, restart, 600.0, 3.0, moving)
    windows = Windows(np.array(there)[None], np.broadcast_to([1.0, 1.5], (1, 5, 2)))
    assert optimum_usd(terms, windows, speeds)[0] == pytest.approx(cheapest(terms, there, speeds))


def test_speeds_without_a_common_measure_have_no_optimum() -> None:
    terms = terms_of(30, 10, 0.5)
    windows = Windows(np.ones((1, 40, 1), bool), np.ones((1, 40, 1)))
    assert np.isnan(optimum_usd(terms, windows, [1 / 3 + 1e-6])[0])


def test_more_spot_never_costs_the_optimum_more_and_a_longer_restart_never_less() -> None:
    random = np.random.default_rng(2)
    there = random.random((10, 40, 1)) < 0.5
    more = there | (random.random(there.shape) < 0.3)
    costs = [
        optimum_usd(terms_of(25, 15, restart), Windows(market_, np.ones(there.shape)))
        for market_, restart in ((more, 0.5), (there, 0.5), (there, 1.5))
    ]
    assert (costs[0] <= costs[1] + 1e-9).all()
    assert (costs[1] <= costs[2] + 1e-9).all()


def test_what_cannot_be_played_is_refused() -> None:
    with pytest.raises(ScenarioError, match="do not fit before"):
        Terms(10 * HOUR, 10 * HOUR, 360.0, 600.0, 3.0)
    with pytest.raises(ScenarioError, match="it is empty"):
        market("")
    with pytest.raises(ScenarioError, match="no policy 'oracle'"):
        make("oracle", terms_of(10, 4, 0.5))
    with pytest.raises(ScenarioError, match="10 ticks are known of the 14"):
        run("greedy", terms_of(10, 4, 0.5), market("1" * 10))
