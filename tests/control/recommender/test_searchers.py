"""Rules that every recommender's search keeps, and the table that they come from."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.jobs import Configuration, History, Job, Objective, candidates
from control.recommender import RECOMMENDERS, choose, make
from control.recommender.analytic import Analytic
from control.recommender.cherrypick import CherryPick
from control.recommender.ernest import Ernest, fit, terms
from control.recommender.fc2 import Server
from control.recommender.plain_search import Exhaustive
from control.recommender.ports import Observations, Proposal, Request, Stop, no_observations, stop
from control.recommender.transfer import Transfer
from tests.control.recommender.made_jobs import PRICES, TYPES, clusters, made_history, observed_of, time_of
from twinbed import ScenarioError

ALL = {name: make(name) for name in ("cherrypick", "ernest", "exhaustive", "random", "transfer")}
HISTORY = made_history(4)


@pytest.mark.parametrize("name", ALL)
def test_a_search_is_affordable_never_repeats_itself_and_is_the_same_again(name: str) -> None:
    request = Request(Job("new"), clusters(), budget_usd_h=6.0, history=HISTORY.without("job-3"))
    took = []
    for _ in range(2):
        search, observed = ALL[name].searcher(request, seed=3), no_observations()
        for _ in range(8):
            step = search.propose(observed)
            if isinstance(step, Stop):
                break
            assert step.candidate not in observed.candidate
            assert request.candidates.price_usd_h[step.candidate] <= 6.0
            assert step.reason
            observed = observed.with_trial(step.candidate, *HISTORY.run(3, step.candidate))
        took.append(observed.candidate.tolist())
    assert took[0] == took[1]


@pytest.mark.parametrize("name", ALL)
def test_a_search_goes_on_when_every_trial_fails_and_ends_when_nothing_is_left(name: str) -> None:
    among = clusters((2, 4)).take(np.arange(6))
    request = Request(Job("new"), among)
    search, observed = ALL[name].searcher(request, seed=0), no_observations()
    for _ in range(len(among) + 1):
        step = search.propose(observed)
        if isinstance(step, Stop):
            break
        observed = observed.with_trial(step.candidate, 100.0, 1.0, ok=False)
    assert isinstance(step, Stop)
    assert "has ended" in step.reason


def test_a_search_without_a_trial_within_the_bounds_takes_the_one_that_came_closest() -> None:
    request = Request(Job("new"), clusters(), deadline_s=100.0, budget_usd=2.0)
    observed = no_observations()
    for candidate, time_s, usd, ok in [
        (0, 900, 1, True),
        (5, 150, 2.5, True),
        (3, 90, 5, True),
        (4, 50, 1, False),
    ]:
        observed = observed.with_trial(candidate, time_s, usd, ok)
    ended = stop(request, observed, "enough")
    assert ended == Stop(5, "enough; no trial ended within the bounds, and this one came closest")


@pytest.mark.parametrize("name", ALL)
def test_a_budget_below_the_cheapest_cluster_is_refused_with_its_price(name: str) -> None:
    request = Request(Job("new"), clusters(), budget_usd_h=0.01)
    with pytest.raises(
        ScenarioError, match=r"below the cheapest cluster, 2 × c.small at 0.248 \$/h; raise it"
    ):
        ALL[name].searcher(request, seed=0).propose(no_observations())


@pytest.mark.parametrize("name", ["cherrypick", "ernest", "exhaustive", "random"])
def test_a_recommender_that_knows_only_trials_says_so_without_any(name: str) -> None:
    with pytest.raises(ScenarioError, match="try"):
        ALL[name].recommend(Request(Job("new"), clusters()))


@pytest.mark.parametrize("bound", ["budget_usd", "budget_usd_h", "deadline_s"])
def test_a_bound_that_is_not_positive_is_refused(bound: str) -> None:
    with pytest.raises(ScenarioError, match=f"{bound} is 0"):
        Request(Job("new"), clusters(), **{bound: 0.0})


def test_what_was_tried_is_ranked_by_the_objective_and_failures_are_left_out() -> None:
    request = Request(Job("new"), clusters(), Objective.TIME)
    seen = no_observations().with_trial(3, 50.0, 9.0, True).with_trial(1, 80.0, 1.0, True)
    seen = seen.with_trial(2, 10.0, 0.1, ok=False)
    rows = Exhaustive().recommend(request.seen(seen))
    assert [row.time_s for row in rows] == [50.0, 80.0]
    assert [row.reason for row in rows] == ["measured in trial 1 of 3", "measured in trial 2 of 3"]


@pytest.mark.parametrize("name", RECOMMENDERS)
def test_no_method_ranks_a_cluster_on_which_every_trial_failed(name: str) -> None:
    among = clusters((2, 4)).take(np.arange(2))
    among = replace(among, batch=np.full(len(among), 32.0))
    request = Request(Job("new", batch=32, samples=1e6), among, expected_s=np.array([3000.0, 1000.0]))
    method = make(name, server=Server("", 0.0, 1e10), use_bps={str(among.name[0]): 1e9})
    narrow, wide = (among.configuration(row) for row in (0, 1))
    trials = no_observations().with_trial(0, 4000.0, 1.0, ok=True).with_trial(1, 1.0, 0.001, ok=False)
    assert [row.configuration for row in method.recommend(request.seen(trials))] == [narrow]
    later = trials.with_trial(1, 2000.0, 0.5, ok=True)
    assert wide in [row.configuration for row in method.recommend(request.seen(later))]


def test_a_ranking_of_failed_clusters_alone_is_refused() -> None:
    trials = no_observations().with_trial(0, 9.0, 1.0, ok=False)
    request = Request(Job("new"), clusters().take(np.array([0])), observed=trials)
    with pytest.raises(ScenarioError, match="job new: every trial failed, on all clusters that are allowed"):
        CherryPick().recommend(request)


def test_cherrypick_stops_when_little_is_to_be_gained_and_not_before_six_trials() -> None:
    history = made_history(1, noise=0.0)
    request = Request(Job("new"), history.candidates)
    search, observed = CherryPick().searcher(request, 0), no_observations()
    while isinstance(step := search.propose(observed), Proposal):
        observed = observed.with_trial(step.candidate, *history.run(0, step.candidate))
    assert 6 <= len(observed) < 30
    assert history.cost_usd[0, step.best] <= 1.25 * history.cost_usd[0].min()


def test_cherrypick_takes_the_cheapest_cluster_among_those_in_time() -> None:
    history = made_history(1, noise=0.0)
    time_s, cost_usd = history.time_s[0], history.cost_usd[0]
    deadline_s = float(np.quantile(time_s, 0.25))
    assert time_s[cost_usd.argmin()] > deadline_s
    request = Request(Job("new"), history.candidates, deadline_s=deadline_s)
    search, observed = CherryPick().searcher(request, 0), no_observations()
    while isinstance(step := search.propose(observed), Proposal):
        observed = observed.with_trial(step.candidate, *history.run(0, step.candidate))
    assert len(observed) < 30
    assert time_s[step.best] <= deadline_s
    assert cost_usd[step.best] <= 1.25 * cost_usd[time_s <= deadline_s].min()


def test_cherrypick_comes_closest_to_a_deadline_that_nothing_keeps() -> None:
    history = made_history(1, noise=0.0)
    search = CherryPick().searcher(Request(Job("new"), history.candidates, deadline_s=1.0), 0)
    observed = no_observations()
    for _ in range(3):
        step = search.propose(observed)
        observed = observed.with_trial(step.candidate, *history.run(0, step.candidate))
    step = search.propose(observed)
    assert step.reason == "no cluster is expected to keep the bounds; this one comes closest"
    assert history.time_s[0, step.candidate] <= np.quantile(history.time_s[0], 0.2)


def searched(request: Request, history: History) -> tuple[Stop, Observations]:
    """Return the end of CherryPick's search for the first job of a history, and its trials."""
    search, observed = CherryPick().searcher(request, 0), no_observations()
    while isinstance(step := search.propose(observed), Proposal):
        observed = observed.with_trial(step.candidate, *history.run(0, step.candidate))
    return step, observed


@pytest.mark.parametrize("seed", range(4))
def test_cherrypick_takes_the_fastest_cluster_among_those_within_the_budget(seed: int) -> None:
    history = made_history(1, seed, noise=0.0)
    time_s, cost_usd = history.time_s[0], history.cost_usd[0]
    budget_usd = float(np.quantile(cost_usd, 0.25))
    assert cost_usd[time_s.argmin()] > budget_usd
    request = Request(Job("new"), history.candidates, Objective.TIME, budget_usd=budget_usd)
    step, observed = searched(request, history)
    assert len(observed) < 30
    assert cost_usd[step.best] <= budget_usd
    assert time_s[step.best] <= 1.4 * time_s[cost_usd <= budget_usd].min()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("exhaustive", "cheapest of 47 clusters left, 0.296 $/h"), ("random", "drawn from 47 clusters left")],
)
def test_plain_searches_say_what_is_left(name: str, reason: str) -> None:
    request = Request(Job("new"), clusters())
    seen = no_observations().with_trial(int(request.candidates.price_usd_h.argmin()), 100.0, 1.0, True)
    step = ALL[name].searcher(request, seed=0).propose(seen)
    assert isinstance(step, Proposal)
    assert step.reason.startswith(reason)


def test_clusters_of_one_price_are_tried_in_their_order() -> None:
    among = clusters()
    two_prices = np.tile([2.0, 1.0], len(among) // 2)
    search = Exhaustive().searcher(Request(Job("new"), among.repriced(two_prices)), seed=0)
    assert search.order.tolist() == [*range(1, len(among), 2), *range(0, len(among), 2)]


@settings(max_examples=30, deadline=None)
@given(
    theta=st.tuples(*[st.floats(0.1, 100.0)] * 4),
    counts=st.lists(st.integers(1, 64), min_size=6, max_size=10, unique=True),
)
def test_ernest_finds_the_curve_that_made_the_times(theta: tuple[float, ...], counts: list[int]) -> None:
    machines = np.array(counts, dtype=float)
    time_s = terms(machines, np.ones_like(machines)) @ np.array(theta)
    fitted = fit(machines, np.ones_like(machines), time_s)
    assert (fitted >= 0).all()
    assert np.allclose(terms(machines, np.ones_like(machines)) @ fitted, time_s, rtol=1e-5)


def test_ernest_ranks_only_types_that_were_tried() -> None:
    history = made_history(1, noise=0.0)
    request = Request(Job("new"), history.candidates, observed=observed_of(history, 0, [0, 3, 7]))
    ranking = Ernest().recommend(request)
    assert {row.configuration.instance for row in ranking} == {"c.small"}
    assert len(ranking) == 8
    assert ranking[0].time_interval.low < ranking[0].time_s < ranking[0].time_interval.high


def test_ernest_ranks_no_cluster_that_failed() -> None:
    history = made_history(1, noise=0.0)
    observed = observed_of(history, 0, [3, 7])
    request = Request(Job("new"), history.candidates, observed=observed.with_trial(0, 5.0, 0.01, ok=False))
    counts = {row.configuration.workers for row in Ernest().recommend(request)}
    assert counts == {4, 6, 8, 12, 16, 24, 32}


def test_ernest_tries_three_widths_of_each_type_and_then_the_best_by_its_fits() -> None:
    among = clusters((1, 2, 4, 8, 16))
    # a + b / m + c · m is least at √(7600 / 119) ≈ 8 workers of 8 vCPUs, which the plan leaves out.
    time_s = time_of(among, serial=0.05, need_gib=0.0, penalty=1.0, size=1000.0) + 119.0 * among.count
    search, observed = Ernest().searcher(Request(Job("new"), among, Objective.TIME), 0), no_observations()
    while isinstance(step := search.propose(observed), Proposal):
        observed = observed.with_trial(step.candidate, float(time_s[step.candidate]), 1.0, True)
    planned = observed.candidate[:18]
    assert among.count[planned].tolist() == [1, 4, 16] * 6
    assert np.diff((among.price_usd_h / among.count)[planned]).min() > -1e-9
    assert {(among.count[row], among.vcpus[row]) for row in [*observed.candidate[18:], step.best]} == {
        (8, 8.0)
    }
    assert "fits predict was tried" in step.reason


def test_ernest_looks_for_the_cheapest_in_time_among_the_affordable() -> None:
    among = clusters((1, 2, 4, 8, 16))
    time_s = time_of(among, serial=0.05, need_gib=0.0, penalty=1.0, size=1000.0)
    cost_usd = time_s / 3600 * among.price_usd_h
    request = Request(Job("new"), among, budget_usd_h=4.0, deadline_s=1200.0)
    allowed = (time_s <= 1200.0) & (among.price_usd_h <= 4.0)
    best = int(np.where(allowed, cost_usd, np.inf).argmin())
    assert among.count[best] in (2, 8)  # widths that the plan leaves out
    search, observed = Ernest().searcher(request, 0), no_observations()
    while isinstance(step := search.propose(observed), Proposal):
        assert among.price_usd_h[step.candidate] <= 4.0
        row = step.candidate
        observed = observed.with_trial(row, float(time_s[row]), float(cost_usd[row]), True)
    assert step.best == best


def test_ernest_begins_by_name_where_types_cost_the_same() -> None:
    among = clusters()
    # Six types of one price: of their orders a set would keep the first by name in one process of six.
    same = among.repriced(among.count.astype(np.float64))
    step = Ernest().searcher(Request(Job("new"), same), seed=0).propose(no_observations())
    assert isinstance(step, Proposal)
    assert among.name[step.candidate] == min(among.name)


def test_ernest_fits_each_batch_size_alone() -> None:
    rows = [Configuration("c.small", count, batch) for batch in (16, 64) for count in (1, 2, 4, 8)]
    among = candidates(TYPES, PRICES, rows)
    time_s = np.where(among.batch == 16, 1000.0, 400.0) / among.count
    observed = no_observations()
    for row in np.flatnonzero(among.count < 8).tolist():
        observed = observed.with_trial(row, float(time_s[row]), 1.0, True)
    ranking = Ernest().recommend(Request(Job("new"), among, Objective.TIME, observed=observed))
    widest = {row.configuration.batch: row.time_s for row in ranking if row.configuration.workers == 8}
    assert widest == {16: pytest.approx(125.0), 64: pytest.approx(50.0)}
    search = Ernest().searcher(Request(Job("new"), among), seed=0)
    assert "c.small, batch 16" in search.propose(no_observations()).reason


@pytest.mark.parametrize("name", RECOMMENDERS)
def test_every_row_of_the_table_can_be_built(name: str) -> None:
    method = RECOMMENDERS[name]
    recommender = make(name, server=Server("small", 0.1, 1e9))
    assert callable(recommender.recommend)
    assert method.title
    assert method.summary
    if name == "transfer":
        assert make(name, {"stop_below": 0.5}).stop_below == 0.5
    if method.needs_server:
        with pytest.raises(
            ScenarioError, match=f"{name} is for clusters with a parameter server; name its type"
        ):
            make(name)


def test_an_unknown_recommender_is_named() -> None:
    with pytest.raises(ScenarioError, match=r"no recommender 'oracle'; there are transfer, .*, spotdnn$"):
        make("oracle")


def test_the_analytic_model_answers_for_transfer_only_while_nothing_else_is_known() -> None:
    among = clusters()
    request = Request(Job("new"), among, expected_s=np.full(len(among), 60.0))
    partly = replace(request, expected_s=np.append(np.full(len(among) - 1, 60.0), np.nan))
    for one in (request, partly):
        assert isinstance(choose("transfer", one), Analytic)
    nothing = replace(request, expected_s=np.full(len(among), np.nan))
    taught = replace(request, history=HISTORY), request.seen(observed_of(HISTORY, 0, [3]))
    for other in (nothing, replace(request, expected_s=None), *taught):
        assert isinstance(choose("transfer", other), Transfer)


def test_past_jobs_with_too_few_runs_teach_nothing() -> None:
    among = clusters()
    request = Request(Job("new"), among, expected_s=np.full(len(among), 60.0))
    few = HISTORY.take([0, 1])
    few.ok[:, 2:] = False
    assert isinstance(choose("transfer", replace(request, history=few)), Analytic)
    few.ok[0, :3] = True
    assert isinstance(choose("transfer", replace(request, history=few)), Transfer)


def test_clusters_that_cost_nothing_are_ranked_by_time() -> None:
    among = clusters()
    expected_s = time_of(among, serial=0.05, need_gib=1.0, penalty=1.0, size=1000.0)
    ranking = Analytic().recommend(
        Request(Job("new"), among.repriced(np.zeros(len(among))), expected_s=expected_s)
    )
    assert [row.time_s for row in ranking] == sorted(row.time_s for row in ranking)


def test_the_analytic_model_tries_the_first_of_its_ranking_and_stops() -> None:
    among = clusters()
    expected_s = time_of(among, serial=0.05, need_gib=1.0, penalty=1.0, size=1000.0)
    cost_usd = expected_s * among.price_usd_h / 3600
    expected_s[cost_usd.argmin()] = cost_usd[cost_usd.argmin()] = np.nan  # that one it does not know
    best = int(np.nanargmin(cost_usd))
    request = Request(Job("new"), among, expected_s=expected_s)
    (first, *others) = Analytic().recommend(request)
    assert (first.configuration, first.cost_usd) == (among.configuration(best), pytest.approx(cost_usd[best]))
    assert len(others) == len(among) - 2
    search = Analytic().searcher(request, seed=0)
    step = search.propose(no_observations())
    assert isinstance(step, Proposal)
    assert step.candidate == best
    other = search.propose(no_observations().with_trial(best, 9.0, 1.0, ok=False))
    assert isinstance(other, Proposal)
    assert among.configuration(other.candidate) == others[0].configuration
    ended = search.propose(no_observations().with_trial(best, 9.0, 1.0, ok=True))
    assert isinstance(ended, Stop)
    assert ended.best == best
