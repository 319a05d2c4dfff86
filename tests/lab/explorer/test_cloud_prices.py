"""The same predictions at other prices: where another configuration becomes the best."""

import numpy as np
import pytest

from control.jobs import Configuration, InstanceType, Job, Objective, candidates
from control.recommender.ports import Interval, Recommendation
from lab.charts import cloud as charts
from lab.cloud.run.recommending import Market, Question
from lab.explorer.cloud_page import HIGH, LOW, MovedPrices

HOURS = {"a": 2.0, "b": 1.0}
PRICES = {"a": 1.0, "b": 3.0}
MARKET = Market("anywhere", workers=(1,))


def row(name: str) -> Recommendation:
    hours, cost = HOURS[name], HOURS[name] * PRICES[name]
    return Recommendation(
        configuration=Configuration(name, 1),
        time_s=3600 * hours,
        cost_usd=cost,
        time_interval=Interval(1800 * hours, 7200 * hours),
        cost_interval=Interval(cost / 2, cost * 2),
        price_usd_h=PRICES[name],
        reason="because",
    )


RANKING = [row("a"), row("b")]
"""a: 2 h at 1 $/h is 2 $; b: 1 h at 3 $/h is 3 $."""


def moved(instance: str, objective: Objective = Objective.COST, **bounds: float) -> MovedPrices:
    types = {name: InstanceType(name, "p", 4, 16) for name in HOURS}
    among = candidates(types, PRICES, [Configuration(name, 1) for name in ("b", "a")])
    question = Question(Job("j"), MARKET, objective, **bounds)
    return MovedPrices(question, RANKING, among, instance, PRICES[instance])


def test_todays_price_gives_todays_answer():
    best = moved("a").best(1.0)
    assert best.configuration == RANKING[0].configuration
    assert best.cost_usd == pytest.approx(2.0)
    assert best.cost_interval.low == pytest.approx(1.0)
    assert best.cost_interval.high == pytest.approx(4.0)


@pytest.mark.parametrize(("instance", "first", "then", "at"), [("a", "a", "b", 1.5), ("b", "b", "a", 2 / 3)])
def test_the_best_changes_where_the_costs_are_equal(instance, first, then, at):
    turns = moved(instance).turns()
    assert [turn.configuration.instance for turn in turns] == [first, then]
    assert turns[0].factor == pytest.approx(LOW)
    # Found on steps of (HIGH / LOW)^(1/200), the first at or after the point.
    assert 1 <= turns[1].factor / at <= (HIGH / LOW) ** (1 / 200) + 1e-9


def test_by_time_only_a_budget_makes_prices_matter():
    assert len(moved("b", Objective.TIME).turns()) == 1
    turns = moved("b", Objective.TIME, budget_usd=6.0).turns()
    assert [turn.configuration.instance for turn in turns] == ["b", "a"]
    # b's median of 1 h costs the budget of 6 $ at 2 × 3 $/h.
    assert turns[1].factor == pytest.approx(2.0, rel=0.03)


def test_costs_grow_with_the_price_of_the_moved_type_only():
    frame = moved("a").costs([Configuration("a", 1), Configuration("b", 1)])
    by_name = dict(list(frame.groupby("configuration")))
    assert np.allclose(by_name["1 × a"]["cost_usd"], 2.0 * by_name["1 × a"]["factor"])
    assert np.allclose(by_name["1 × b"]["cost_usd"], 3.0)


def test_a_parameter_server_moves_with_its_own_price():
    types = {name: InstanceType(name, "p", 4, 16) for name in HOURS}
    cluster = Configuration("a", 2, None, 1, "b")
    among = candidates(types, PRICES, [cluster])
    given = RANKING[0]
    ranking = [
        Recommendation(
            cluster, given.time_s, 10.0, given.time_interval, given.cost_interval, 5.0, given.reason
        )
    ]
    # 2 h × (2 × 1 $/h + 2 × 3 $/h)
    best = MovedPrices(Question(Job("j"), MARKET), ranking, among, "b", 3.0).best(2.0)
    assert best.cost_usd == pytest.approx(16.0)


def test_the_front_leaves_out_what_is_slower_and_dearer():
    frame = charts.ranking([*RANKING, row("b")])
    frame.loc[2, ["time_h", "cost_usd"]] = [2.5, 3.5]
    assert charts.places(frame) == [charts.BEST, charts.FRONT, charts.OTHER]


def test_a_chart_of_one_candidate_can_be_drawn():
    frame = charts.ranking(RANKING[:1])
    assert charts.pareto(frame, deadline_h=np.inf, budget_usd=3.0).to_dict()["layer"]
