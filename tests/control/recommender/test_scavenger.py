"""Scavenger's search on jobs whose step times and noise scale are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.goodput import Speed
from control.jobs import Configuration, InstanceType, Job, Objective, candidates
from control.recommender.ports import Proposal, Request, Stop, no_observations
from control.recommender.scavenger import Scavenger, noise_in_use, to_goal, usual_batches, worth
from twinbed import ScenarioError

TYPES = {"c4": InstanceType("c4", "made-up", 4, 16)}
AMONG = candidates(
    TYPES,
    {"c4": 1.0},
    [
        Configuration("c4", count, batch)
        for count in (1, 2, 4, 8)
        for batch in (8, 16, 32, 64, 128)
        if count * batch >= 32
    ],
)
JOB = Job("mine", batch=32, samples=1e7)
speeds = st.builds(
    Speed,
    st.floats(0.02, 0.5),
    st.floats(0.001, 0.05),
    st.floats(0.001, 0.5),
    st.floats(1e-4, 0.05),
    gamma=st.floats(1, 3),
)


def true_s(speed: Speed, noise: float) -> np.ndarray:
    step_s = speed.step_s(AMONG.count, AMONG.count, AMONG.batch)
    batch = AMONG.count * AMONG.batch
    return JOB.samples / batch * (noise + batch) / (noise + 32) * step_s


def searched(speed: Speed, noise: float, request: Request, fails: int = -1):
    """The search's end and its trials, of the job's samples."""
    step_s = speed.step_s(AMONG.count, AMONG.count, AMONG.batch)
    raw = JOB.samples / (AMONG.count * AMONG.batch) * step_s
    search, observed = Scavenger().searcher(request, 0), no_observations()
    while isinstance(step := search.propose(to_goal(request, observed)), Proposal):
        row = step.candidate
        assert row not in observed.candidate
        cost = raw[row] / 3600 * AMONG.price_usd_h[row]
        observed = observed.with_trial(row, raw[row], cost, row != fails, noise)
    return step, observed


@pytest.mark.parametrize(("budget_usd_h", "second"), [(9.0, "c8"), (1.5, None)])
def test_every_type_that_is_affordable_is_begun_with_its_fewest_workers(budget_usd_h, second) -> None:
    kinds = {**TYPES, "c8": InstanceType("c8", "made-up", 8, 32)}
    rows = [Configuration(name, count, 32) for name in kinds for count in (2, 1)]
    request = Request(JOB, candidates(kinds, {"c4": 1.0, "c8": 2.0}, rows), budget_usd_h=budget_usd_h)
    search, observed = Scavenger().searcher(request, 0), no_observations()
    assert rows[search.propose(observed).candidate] == Configuration("c4", 1, 32)
    step = search.propose(observed.with_trial(1, 100.0, 1.0, True))
    assert isinstance(step, Stop) if second is None else rows[step.candidate] == Configuration(second, 1, 32)


def test_the_search_begins_with_the_job_s_own_batch_where_smaller_ones_are_offered() -> None:
    rows = [Configuration("c4", count, batch) for count in (2, 1) for batch in usual_batches(JOB)]
    request = Request(JOB, candidates(TYPES, {"c4": 1.0}, rows))
    search, observed = Scavenger().searcher(request, 0), no_observations()
    tried = []
    for _ in range(4):
        step = search.propose(observed)
        tried.append((rows[step.candidate].workers, rows[step.candidate].batch))
        observed = observed.with_trial(step.candidate, 60.0, 1.0, ok=False)
    assert tried == [(1, 32), (1, 16), (1, 64), (1, 8)]


@settings(max_examples=25, deadline=None)
@given(speeds, st.floats(1, 1e6), st.sampled_from(Objective))
def test_the_choice_is_never_worse_than_the_start_and_needs_no_unit_of_samples(speed, noise, by) -> None:
    request = Request(JOB, AMONG, by)
    step, observed = searched(speed, noise, request)
    value = true_s(speed, noise) * (AMONG.price_usd_h if by is Objective.COST else 1)
    assert isinstance(step, Stop)
    assert AMONG.configuration(int(observed.candidate[0])) == Configuration("c4", 1, 32)
    assert value[step.best] <= value[observed.candidate[0]] * (1 + 1e-9)
    assert len(observed) <= len(AMONG)
    # A job that needs other samples is searched in the same way. A power of two leaves the times of steps as
    # they are to the bit: the fit of two candidates may be so close that rounding decides.
    more = replace(request, job=replace(JOB, samples=JOB.samples * 8))
    goal = to_goal(request, observed)
    longer = Scavenger().searcher(more, 0).propose(goal.stretched(np.full(len(goal), 8.0)))
    assert isinstance(longer, Stop)
    assert longer.best == step.best


def test_the_choice_is_on_average_within_a_tenth_of_the_oracle_s() -> None:
    """The source's search is about 10 % over an oracle. One job may be farther off: few trials mislead."""
    random, beyond = np.random.default_rng(5), []
    for _ in range(40):
        low, high = (0.02, 0.001, 0.001, 1e-4), (0.5, 0.05, 0.5, 0.05)
        speed = Speed(*random.uniform(low, high), gamma=random.uniform(1, 3))
        noise = float(10 ** random.uniform(0, 6))
        step, _ = searched(speed, noise, Request(JOB, AMONG, Objective.TIME))
        value = true_s(speed, noise)
        beyond.append(value[step.best] / value.min() - 1)
    assert 0 <= np.mean(beyond) <= 0.1


def test_without_noise_batches_are_worth_nothing_and_with_much_of_it_they_are() -> None:
    request, seen = Request(JOB, AMONG), no_observations()
    batch = AMONG.count * AMONG.batch
    for noise in (np.nan, 1e-12):
        assert worth(request, seen.with_trial(0, 1.0, 1.0, True, noise)) == pytest.approx(32 / batch)
    assert worth(request, seen.with_trial(0, 1.0, 1.0, True, 1e12)) == pytest.approx(np.ones(len(AMONG)))


def test_the_noise_scale_in_use_is_that_since_it_last_moved() -> None:
    seen = no_observations()
    for noise, used in ((np.nan, np.nan), (100.0, 100.0), (150.0, 125.0), (np.nan, 125.0), (400.0, 400.0)):
        seen = seen.with_trial(0, 1.0, 1.0, True, noise)
        assert noise_in_use(seen) == pytest.approx(used, nan_ok=True)


def test_a_batch_that_failed_keeps_the_search_from_larger_ones_and_steps_run_out() -> None:
    fast = Speed(1.0, 0.001)
    request = Request(JOB, AMONG)
    largest = next(row for row in range(len(AMONG)) if (AMONG.count[row], AMONG.batch[row]) == (1, 128))
    step, observed = searched(fast, 1e9, request, fails=largest)
    assert (AMONG.batch[observed.candidate] == 128).sum() == 1
    assert AMONG.batch[step.best] == 64
    short = replace(request, job=replace(JOB, samples=32 * 200.0))
    step = Scavenger().searcher(short, 0).propose(observed.stretched(np.full(len(observed), 1.0)))
    assert "of the job's steps" in step.reason


def test_where_every_trial_fails_each_affordable_cluster_is_tried_once() -> None:
    request = Request(JOB, AMONG, budget_usd_h=4.0)
    search, observed = Scavenger().searcher(request, 0), no_observations()
    while isinstance(step := search.propose(observed), Proposal):
        assert step.candidate not in observed.candidate
        observed = observed.with_trial(step.candidate, 60.0, 1.0, ok=False)
    assert sorted(observed.candidate.tolist()) == np.flatnonzero(AMONG.count <= 4).tolist()


def test_the_ranking_is_by_goodput_and_what_is_missing_is_named() -> None:
    request = Request(JOB, AMONG)
    _, observed = searched(Speed(0.1, 0.01, 0.1), 500.0, request)
    rows = Scavenger().recommend(request.seen(to_goal(request, observed)))
    assert [row.cost_usd for row in rows] == sorted(row.cost_usd for row in rows)
    assert "noise scale 500 samples" in rows[0].reason
    rows = Scavenger().recommend(request.seen(no_observations().with_trial(0, 60.0, 1.0, True)))
    assert "noise scale not known yet: more samples in a step count as no gain" in rows[0].reason
    with pytest.raises(ScenarioError, match="try some with --search"):
        Scavenger().recommend(request)
    with pytest.raises(ScenarioError, match="needs `batch`"):
        Scavenger().searcher(Request(Job("none"), AMONG), 0)
    with pytest.raises(ScenarioError, match="job endless: a search of batch sizes needs `samples`"):
        Scavenger().searcher(Request(Job("endless", batch=32), AMONG), 0)
    plain = candidates(TYPES, {"c4": 1.0}, [Configuration("c4", 1)])
    with pytest.raises(ScenarioError, match="give some with --batches"):
        Scavenger().searcher(Request(JOB, plain), 0)
