import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.jobs import Configuration, InstanceType, Job, candidates
from control.recommender import choose
from control.recommender.fc2 import Fc2, Rule, Server, Worker, choose_server, plan
from control.recommender.ports import Proposal, Request, Stop
from twinbed import ScenarioError

SERVERS = (Server("m4.large", 0.125, 450e6), Server("m4.2xlarge", 0.5, 1e9), Server("m4.10xlarge", 2.5, 10e9))
WORKERS = (
    Worker("m4.xlarge", 0.25, 140e6),
    Worker("t2.xlarge", 0.2336, 190e6),
    Worker("c4.xlarge", 0.231, 160e6),
)


def test_the_server_is_the_one_with_most_bandwidth_within_the_budget() -> None:
    assert choose_server(SERVERS, 0.25).name == "m4.10xlarge"
    assert choose_server(SERVERS, 0.25, 2.0).name == "m4.2xlarge"
    assert choose_server(SERVERS, 0.25, 2.6).name == "m4.2xlarge"  # the largest would leave no worker
    assert choose_server(SERVERS, 0.25, 0.375).name == "m4.large"
    with pytest.raises(ScenarioError, match=r"0\.3 \$/h pays for no parameter server"):
        choose_server(SERVERS, 0.25, 0.3)
    equal = [Server(name, 0.5, 1e9) for name in ("b", "a", "c")]
    assert choose_server(equal, 0.25).name == choose_server(equal[::-1], 0.25).name == "a"


def test_cost_opt_fills_the_budget_with_the_cheapest_and_time_opt_with_the_dearest() -> None:
    # (2 − 0.125) / 0.231 = 8.1 and (2 − 0.125) / 0.25 = 7.5
    cheap = plan(Rule.COST, WORKERS, SERVERS[0], budget_usd_h=2.0)
    dear = plan(Rule.TIME, WORKERS, SERVERS[0], budget_usd_h=2.0)
    assert (cheap.worker, cheap.count) == ("c4.xlarge", 8)
    assert (dear.worker, dear.count) == ("m4.xlarge", 7)
    assert (cheap.price_usd_h, dear.price_usd_h) == pytest.approx((0.125 + 8 * 0.231, 0.125 + 7 * 0.25))
    assert "c4.xlarge is the cheapest type" in cheap.reason
    assert "m4.xlarge is the dearest type" in dear.reason
    assert plan(Rule.COST, WORKERS, SERVERS[0], cap=6).count == 6


def test_scala_opt_takes_the_type_of_which_the_server_serves_fewest() -> None:
    # 0.95 · 450 = 427.5 Mbit/s: 3 × m4 (140), 2 × t2 (190), 2 × c4 (160); the first of equals stays.
    chosen = plan(Rule.SCALE, WORKERS, SERVERS[0], cap=6)
    assert (chosen.worker, chosen.count) == ("t2.xlarge", 2)
    assert chosen.price_usd_h == pytest.approx(0.125 + 2 * 0.2336)
    assert "m4.large serves 2.2 × t2.xlarge" in chosen.reason
    cheapest = plan(Rule.SCALE_CHEAPEST, WORKERS, SERVERS[0], cap=6)
    assert (cheapest.worker, cheapest.count) == ("c4.xlarge", 2)


def test_scala_opt_is_at_least_one_worker_and_at_most_what_is_paid_for() -> None:
    hungry = (Worker("p2.xlarge", 1.0, 2e9),)
    assert plan(Rule.SCALE, hungry, SERVERS[0], cap=6).count == 1
    modest = (Worker("p2.xlarge", 1.0, 1e6),)
    assert plan(Rule.SCALE_MANUAL, modest, SERVERS[0], budget_usd_h=4.125).count == 4
    assert plan(Rule.SCALE_MANUAL, modest, SERVERS[0], cap=6).count == 6


def test_a_budget_that_is_a_whole_number_of_workers_loses_none_to_binary_fractions() -> None:
    assert plan(Rule.COST, (Worker("x", 0.1),), Server("s", 0.1, 1e9), budget_usd_h=0.4).count == 3


@pytest.mark.parametrize(
    ("rule", "workers", "bounds", "message"),
    [
        (Rule.COST, WORKERS, {}, "needs an hourly budget or a largest number"),
        (Rule.COST, (), {"cap": 2}, "no worker type"),
        (Rule.COST, WORKERS, {"budget_usd_h": 0.2}, r"below m4.large with one c4.xlarge \(0.356 \$/h\)"),
        (Rule.SCALE, WORKERS, {"budget_usd_h": 0.2}, "below m4.large with one c4.xlarge"),
        (Rule.SCALE, (Worker("x", 1.0),), {"cap": 2}, "how much network one x uses is not known"),
        (Rule.SCALE_MANUAL, WORKERS, {"cap": 2}, "takes the one type that you fix; 3 are given"),
    ],
)
def test_what_a_rule_lacks_is_said(
    rule: Rule, workers: tuple[Worker, ...], bounds: dict, message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        plan(rule, workers, SERVERS[0], **bounds)


def test_a_server_of_unknown_bandwidth_and_a_worker_without_a_price_are_refused() -> None:
    unknown = Server("m5.large", 0.1, float("nan"))
    with pytest.raises(ScenarioError, match=r"the network rate of m5\.large is not known"):
        plan(Rule.SCALE, WORKERS, unknown, cap=2)
    assert plan(Rule.COST, WORKERS, unknown, cap=2).count == 2
    for price in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ScenarioError, match="worker x: its price is"):
            Worker("x", price)


@given(
    budget=st.floats(0.6, 50),
    use=st.lists(st.floats(1e6, 1e9), min_size=1, max_size=5),
    rule=st.sampled_from([Rule.COST, Rule.TIME, Rule.SCALE]),
)
def test_no_rule_spends_more_than_the_budget(budget: float, use: list[float], rule: Rule) -> None:
    workers = [Worker(f"t{place}", 0.1 * (place + 1), rate) for place, rate in enumerate(use)]
    chosen = plan(rule, workers, SERVERS[0], budget_usd_h=max(budget, 0.625 + 0.125))
    assert chosen.count >= 1
    assert chosen.price_usd_h <= max(budget, 0.75) + 1e-6


def test_scala_opt_as_a_recommender_counts_each_type_s_own_use() -> None:
    types = {name: InstanceType(name, "aws", 4, 16) for name in ("m4.large", "c4.xlarge", "m4.xlarge")}
    prices = {"m4.large": 0.125, "c4.xlarge": 0.231, "m4.xlarge": 0.25}
    rows = [Configuration(n, k, None, 1, "m4.large") for n in ("c4.xlarge", "m4.xlarge") for k in range(1, 7)]
    request = Request(Job("cifar"), candidates(types, prices, rows))
    # 427.5 Mbit/s serve 3 × m4.xlarge (140) and 2 × c4.xlarge (160), the cheaper type.
    use_bps = {"m4.xlarge": 140e6, "c4.xlarge": 160e6}
    rule = choose("scala-opt", request, server=SERVERS[0], use_bps=use_bps)
    assert str(rule.recommend(request)[0].configuration) == "2 × c4.xlarge + 1 × m4.large"
    with pytest.raises(ScenarioError, match=r"one c4\.xlarge uses is not known"):
        Fc2(Rule.SCALE, SERVERS[0], {"m4.xlarge": 140e6}).recommend(request)


def test_as_a_recommender_it_names_its_choice_once_and_knows_no_time() -> None:
    types = {name: InstanceType(name, "aws", 4, 16) for name in ("m4.large", "c4.xlarge", "m4.xlarge")}
    prices = {"m4.large": 0.125, "c4.xlarge": 0.231, "m4.xlarge": 0.25}
    rows = [Configuration(n, k, None, 1, "m4.large") for n in ("c4.xlarge", "m4.xlarge") for k in range(1, 7)]
    request = Request(Job("cifar"), candidates(types, prices, rows), budget_usd_h=1.0)
    rule = Fc2(Rule.COST, SERVERS[0])
    (row,) = rule.recommend(request)
    # (1 − 0.125) / 0.231 = 3.8
    assert str(row.configuration) == "3 × c4.xlarge + 1 × m4.large"
    assert np.isnan(row.time_s)
    assert row.price_usd_h == pytest.approx(0.818)
    search = rule.searcher(request, 0)
    first = search.propose(request.observed)
    assert isinstance(first, Proposal)
    assert isinstance(search.propose(request.observed.with_trial(first.candidate, 9, 1, True)), Stop)


def test_a_choice_beyond_the_allowed_numbers_of_workers_says_what_is_taken() -> None:
    types = {name: InstanceType(name, "aws", 4, 16) for name in ("m4.large", "c4.xlarge")}
    rows = [Configuration("c4.xlarge", count, None, 1, "m4.large") for count in (1, 2, 4)]
    among = candidates(types, {"m4.large": 0.125, "c4.xlarge": 0.25}, rows)
    (row,) = Fc2(Rule.COST, SERVERS[0]).recommend(Request(Job("j"), among, budget_usd_h=5.0))
    assert row.configuration.workers == 4
    assert row.reason.endswith("the bound allows 19; 4 is the largest allowed number up to that")
