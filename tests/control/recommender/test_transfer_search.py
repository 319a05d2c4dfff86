from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from control.jobs import History, Job, LocalRun, Objective
from control.recommender.analytic import DEVIATION, Level, level
from control.recommender.ports import Proposal, Request, no_observations
from control.recommender.posterior import condition
from control.recommender.prior import Prior, fit_prior
from control.recommender.transfer import (
    FAR,
    FAR_AT_FIRST,
    STOP_BELOW,
    Transfer,
    TransferSearch,
    rank,
    time_limit,
)
from tests.control.recommender.made_jobs import clusters, history_of, made_history, observed_of, time_of

HISTORY = made_history(8)


@pytest.fixture(scope="module")
def prior() -> Prior:
    return fit_prior(HISTORY.without("job-0"), HISTORY.candidates)


def ratio(history: History, job: int) -> np.ndarray:
    cost = np.where(history.ok[job], history.cost_usd[job], np.inf)
    return cost / cost.min()


def trials_until_good(request: Request, history: History, job: int, most: int = 30) -> int:
    search, seen = Transfer(stop_below=0.0).searcher(request, 0), no_observations()
    for trial in range(1, most + 1):
        step = search.propose(seen)
        assert isinstance(step, Proposal)
        if ratio(history, job)[step.candidate] <= 1.1:
            return trial
        seen = seen.with_trial(step.candidate, *history.run(job, step.candidate))
    return most


@pytest.mark.slow
def test_past_jobs_spare_trials() -> None:
    # Few past jobs: how far they may be believed is most of the work.
    jobs, few = (0, 4), HISTORY.take(np.arange(5))
    with_past = []
    for job in jobs:
        request = Request(Job("new"), few.candidates, history=few.without(f"job-{job}"))
        with_past.append(trials_until_good(request, few, job))
    good = np.mean([(ratio(few, job) <= 1.1).sum() for job in jobs])
    by_chance = (len(HISTORY.candidates) + 1) / (good + 1)
    assert np.mean(with_past) < by_chance
    assert np.mean(with_past) <= 5


def test_trials_narrow_the_posterior(prior: Prior) -> None:
    before = condition(prior, no_observations()).summary()
    after = condition(prior, observed_of(HISTORY, 0, [0, 20, 40])).summary()
    true = np.log(HISTORY.time_s[0])
    assert after[1].mean() < 0.5 * before[1].mean()
    assert np.abs(after[0] - true).mean() < np.abs(before[0] - true).mean()


def test_a_few_components_represent_the_whole_mixture(prior: Prior) -> None:
    posterior = condition(prior, observed_of(HISTORY, 0, [0, 20]))
    everything, exact = posterior.components(len(posterior.weight))
    some, weight = posterior.components(300)
    assert some.size <= 300 < everything.size
    assert exact.sum() == pytest.approx(1) == weight.sum()
    whole, part = exact @ posterior.means(everything), weight @ posterior.means(some)
    assert np.abs(whole - part).max() < 0.1
    spread = np.sqrt(exact @ (posterior.means(everything) - whole) ** 2)
    assert np.sqrt(weight @ (posterior.means(some) - part) ** 2).mean() == pytest.approx(
        spread.mean(), rel=0.2
    )


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(st.integers(0, 47), min_size=1, max_size=5, unique=True), seed=st.integers(0, 99))
def test_the_order_of_trials_does_not_matter(prior: Prior, rows: list[int], seed: int) -> None:
    rows = [row for row in rows if HISTORY.ok[0, row]]
    shuffled = np.random.default_rng(seed).permutation(rows).tolist()
    one = condition(prior, observed_of(HISTORY, 0, rows)).summary()
    other = condition(prior, observed_of(HISTORY, 0, shuffled)).summary()
    assert np.allclose(one, other, atol=1e-6)


def test_a_failed_trial_raises_what_is_expected_there_and_never_lowers_it(prior: Prior) -> None:
    row = 5
    seen = observed_of(HISTORY, 0, [20])
    mean = condition(prior, seen).summary()[0]
    late = condition(prior, seen.with_trial(row, float(np.exp(mean[row] + 0.5)), 1.0, ok=False)).summary()[0]
    early = condition(prior, seen.with_trial(row, 1.0, 0.1, ok=False)).summary()[0]
    assert late[row] > mean[row] + 0.05
    assert early[row] == pytest.approx(mean[row], abs=0.02)


@pytest.mark.slow
def test_intervals_hold_about_as_often_as_they_say(prior: Prior) -> None:
    inside = []
    others = {0: prior, 4: fit_prior(HISTORY.without("job-4"), HISTORY.candidates)}
    for job, known in others.items():
        mean, deviation = condition(known, observed_of(HISTORY, job, [0, 20, 40])).summary()
        off = np.abs(np.log(HISTORY.time_s[job]) - mean) / deviation
        inside.append(off[HISTORY.ok[job]] < 1.645)
    assert 0.75 <= np.concatenate(inside).mean() <= 1.0


def test_without_past_jobs_laws_of_scaling_still_rank() -> None:
    among = clusters()
    # Memory is never short: an untried speed-up beyond linear is not predicted.
    history = history_of(["true"], time_of(among, 0.05, 1.0, 4.0, 1000.0)[None, :])
    ranking = Transfer().recommend(Request(Job("new"), among, observed=observed_of(history, 0, [0, 9, 44])))
    cost = {among.configuration(row): history.cost_usd[0, row] for row in range(len(among))}
    assert cost[ranking[0].configuration] <= 1.3 * min(cost.values())
    assert any(row.reason.startswith("measured in trial") for row in ranking)
    assert "predicted from laws of scaling and 3 trials" in {row.reason for row in ranking}


@pytest.mark.slow
def test_past_jobs_may_have_run_on_other_clusters() -> None:
    among = clusters((3, 5, 10, 20))
    ranking = Transfer().recommend(Request(Job("new"), among, history=HISTORY.take(np.arange(3))))
    assert len(ranking) == len(among)
    assert all(np.isfinite(row.cost_usd) for row in ranking)


def test_a_local_run_says_how_long_the_job_takes_and_narrows_the_interval() -> None:
    series = np.full((10, 3), 0.5)
    run = LocalRun(1.0, series, series, series, series, np.full(50, 0.2), 32, 1000)
    among = clusters()
    plain = Transfer().recommend(Request(Job("new"), among))[0]
    job = Job("new", local_run=run, samples=1e7)
    known = Transfer().recommend(Request(job, among))[0]
    width = [row.time_interval.high / row.time_interval.low for row in (plain, known)]
    assert width[1] < width[0] / 10
    # 1.5 cores · 0.2 s for 3 · 32 samples: 31 250 core-seconds in all
    vcpus = known.configuration.workers * (2 if "small" in known.configuration.instance else 8)
    assert known.time_s == pytest.approx(31_250 / vcpus, rel=1.0)
    work_s = 31_250 / (among.vcpus * among.count)
    for startup_s in (0.0, 180.0):
        mean_log_s = np.log(startup_s + work_s).mean()
        told = level(Request(job, among, startup_s=startup_s))
        assert told == Level(pytest.approx(mean_log_s), DEVIATION)
    skewed = replace(run, step_s=np.tile([0.1, 0.1, 0.1, 0.1, 0.6], 10))  # 0.2 s in the mean
    assert level(Request(replace(job, local_run=skewed), among)) == Level(
        pytest.approx(np.log(work_s).mean()), DEVIATION
    )
    unsized = Request(Job("new", local_run=run), among)
    assert level(unsized) is level(Request(Job("new"), among)) is None


def test_candidates_that_would_be_late_come_last(prior: Prior) -> None:
    seen = observed_of(HISTORY, 0, [0, 20, 40])
    mean = condition(prior, seen).summary()[0]
    deadline = float(np.exp(np.median(mean)))
    request = Request(Job("new"), HISTORY.candidates, Objective.COST, deadline_s=deadline, observed=seen)
    request = replace(request, budget_usd=0.5)
    ranking = rank(request, condition(prior, seen))
    limit_s = [min(deadline, 0.5 / row.price_usd_h * 3600) for row in ranking]
    on_time = [row.time_s <= limit for row, limit in zip(ranking, limit_s, strict=True)]
    assert 0 < sum(on_time) < len(on_time)
    assert on_time == sorted(on_time, reverse=True)
    assert "keeps deadline and budget with" in ranking[0].why
    # Log-normal: 90 % of its times are within 1.645 deviations.
    for row, limit in zip(ranking, limit_s, strict=True):
        deviation = np.log(row.time_interval.high / row.time_s) / norm.ppf(0.95)
        assert row.in_bounds == pytest.approx(norm.cdf(np.log(limit / row.time_s) / deviation))
        per_s = row.price_usd_h / 3600
        times = row.time_interval.low, row.time_s, row.time_interval.high
        costs = row.cost_interval.low, row.cost_usd, row.cost_interval.high
        assert costs == pytest.approx([time_s * per_s for time_s in times])
    assert "predicted from 7 past jobs and 3 trials" in {row.reason.partition(";")[0] for row in ranking}


def test_what_is_hard_to_beat_is_most_likely_a_top_configuration_and_a_failure_is_none(prior: Prior) -> None:
    seen = no_observations().with_trial(20, 5.0, 0.001, True).with_trial(3, 900.0, 1.0, ok=False)
    request = Request(Job("new"), HISTORY.candidates)
    search = TransferSearch(request, prior, 0, stop_below=0.0, far=(1.0, 1.0))
    chances = search.chances(seen)
    others = np.delete(chances, [3, 20])
    assert chances[3] == 0 < others.min()
    assert others.max() < 0.9 < chances[20] < 1


def test_a_time_out_is_recognised_and_a_crash_is_not() -> None:
    seen = no_observations().with_trial(0, 500.0, 1.0, True).with_trial(1, 900.0, 1.0, ok=False)
    assert time_limit(None, seen) == 900.0
    assert time_limit(None, seen.with_trial(2, 950.0, 1.0, True)) == np.inf
    assert time_limit(None, no_observations()) == np.inf


@pytest.mark.slow
def test_ten_thousand_candidates_are_ranked_and_searched() -> None:
    among = clusters(tuple(range(2, 2 + 1667)))
    prior = fit_prior(HISTORY, among)
    request = Request(Job("new"), among)
    assert len(rank(request, condition(prior, no_observations()), most=10)) == 10
    search = Transfer().searcher(request, 0)
    step = search.propose(no_observations())
    assert isinstance(step, Proposal)
    usd = search.predicted(no_observations())[0] + np.log(among.price_usd_h)
    assert usd[step.candidate] < np.median(usd)


def test_a_cluster_that_failed_and_then_ended_counts_by_the_trial_that_ended(prior: Prior) -> None:
    search = TransferSearch(
        Request(Job("new"), HISTORY.candidates), prior, 0, STOP_BELOW, (FAR_AT_FIRST, FAR)
    )
    time_s, cost_usd, _ = HISTORY.run(0, 0)
    seen = no_observations().with_trial(0, time_s / 100, cost_usd / 100, False)
    assert isinstance(search.propose(seen.with_trial(0, time_s, cost_usd, True)), Proposal)


def test_the_first_trial_under_a_deadline_that_nothing_keeps_is_the_one_that_comes_closest(
    prior: Prior,
) -> None:
    request = Request(Job("new"), HISTORY.candidates, deadline_s=1e-3)
    search = TransferSearch(request, prior, 0, STOP_BELOW, (FAR_AT_FIRST, FAR))
    step = search.propose(no_observations())
    assert step.candidate == search.predicted(no_observations())[0].argmin()
    assert step.reason == "no cluster is expected to keep the bounds; this one comes closest"
