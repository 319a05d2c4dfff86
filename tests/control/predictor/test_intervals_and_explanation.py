from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.jobs import Configuration, Job, Objective, candidates
from control.predictor.examples import of_one_job
from control.predictor.explanation import contributions, importance
from control.predictor.features import SERIES, Encoder
from control.predictor.intervals import Domain, factor
from control.predictor.networks import Kind
from control.predictor.physical import train_physical
from control.predictor.training import Schedule, train
from tests.made_up_jobs import PRICES, TYPES, examples
from twinbed import ScenarioError


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.5, 0.8, 0.9]))
def test_a_conformal_factor_is_an_error_that_was_seen_and_grows_with_the_coverage(seed, coverage):
    errors = np.random.default_rng(seed).exponential(size=200)
    result = factor(errors, coverage)
    assert np.log(result) in errors or np.isclose(np.log(result), errors).any()
    assert (np.log(result) >= errors).mean() >= coverage
    assert result <= factor(errors, 0.95)


def test_conformal_intervals_cover_new_errors_as_often_as_they_say():
    rng = np.random.default_rng(0)
    covered = [
        np.exp(abs(rng.standard_normal())) <= factor(np.abs(rng.standard_normal(100)), 0.9)
        for _ in range(2000)
    ]
    assert 0.88 < np.mean(covered) < 0.93


def test_too_few_errors_say_nothing():
    assert factor(np.ones(5), 0.9) == np.inf
    for coverage in (0.0, 1.0):
        with pytest.raises(ScenarioError, match="between 0 and 1"):
            factor(np.ones(5), coverage)


def test_a_row_is_outside_where_its_three_nearest_are_farther_than_those_of_others():
    rows = examples(1)
    encoded = Encoder.fit(rows).encode(rows)

    def on_a_line(*places):
        """Rows with four equal columns, which are as far from each other as one column says."""
        return replace(encoded, static=np.repeat(np.array([places]).T, 4, axis=1))

    domain = Domain.of(on_a_line(*np.arange(10.0)))
    # At an end the three others are 1, 2 and 3 away.
    assert domain.far == pytest.approx(2.0)
    assert domain.outside(on_a_line(4.5, 10.0, 10.1, -1.0, -1.1)).tolist() == [
        False,
        False,
        True,
        False,
        True,
    ]


def test_a_factor_by_hand():
    errors = np.array([0.9, 0.1, 0.3, 0.2, 0.5, 0.4, 0.6, 0.8, 0.7])
    assert factor(errors, 0.5) == pytest.approx(np.exp(0.5))
    assert factor(errors) == pytest.approx(np.exp(0.9))  # (9 + 1) · 0.9 is the ninth of nine
    assert factor(errors, 0.91) == np.inf


def test_few_rows_are_as_far_apart_as_their_others():
    rows = examples(1)
    encoded = Encoder.fit(rows).encode(rows)

    def at(*places):
        return replace(encoded, static=np.array([places]).T)

    assert Domain.of(at(1.0)).far == 0.0
    assert Domain.of(at(1.0, 3.0)).far == 2.0
    # 0 and 2 are 2 and 6 away on average from the other two, 6 is 5 away; the 99th percentile is near 5.
    assert Domain.of(at(0.0, 2.0, 6.0)).far == pytest.approx(5 - 0.02)
    assert Domain.of(at(1.0, 3.0)).outside(at(1.0, 5.0, 7.0)).tolist() == [False, True, True]


def test_rows_unlike_any_other_are_flagged():
    rows = examples(4)
    encoder = Encoder.fit(rows)
    domain = Domain.of(encoder.encode(rows))
    assert domain.outside(encoder.encode(rows)).mean() < 0.02
    strange = of_one_job(
        Job("strange", {"epochs": 5000.0}), candidates(TYPES, PRICES, [Configuration("huge", 500)])
    )
    assert domain.outside(encoder.encode(strange)).all()


@pytest.mark.slow
def test_what_matters_is_what_the_law_was_made_of():
    rows = examples(6)
    model = train_physical(Objective.TIME, rows, 0)
    result = importance(model, Objective.TIME, rows, np.random.default_rng(0))
    assert result.group[0] == "analytic model"
    assert (np.diff(result.loss) <= 0).all()
    assert abs(result.loss[result.group.index("workers' CPU")]) < 1e-12  # not used by it


@pytest.mark.slow
def test_a_network_s_importance_tells_series_of_roles_apart():
    rows = examples(4)
    model = train(Kind.TIME, rows, 0, schedule=Schedule(epochs=30, patience=30))
    result = importance(model, Objective.TIME, rows, np.random.default_rng(0))
    losses = dict(zip(result.group, result.loss, strict=True))
    assert set(SERIES) <= set(losses)
    assert losses["workers"] > 0.01
    assert max(losses[name] for name in SERIES) > 0.0
    assert losses["order of layers"] == 0.0  # the same for all jobs


@pytest.mark.slow
def test_an_application_that_is_not_known_is_a_contribution_of_its_own():
    rows = examples(5)
    model = train_physical(Objective.TIME, rows, 0)
    one = rows.take(np.array([17]))
    stranger = replace(one, jobs=tuple(replace(job, name="new") for job in one.jobs))
    result = contributions(model, stranger, rows, np.random.default_rng(0))
    assert "known application" in result.group
    assert result.base + result.log_factor.sum() == pytest.approx(float(np.log(model.predict(stranger)[0])))


@pytest.mark.slow
@pytest.mark.parametrize("by", list(Objective))
def test_contributions_sum_to_the_prediction(by):
    rows = examples(5)
    model = train_physical(by, rows, 0)
    one = rows.take(np.array([17]))
    result = contributions(model, one, rows, np.random.default_rng(0))
    assert result.base + result.log_factor.sum() == pytest.approx(float(np.log(model.predict(one)[0])))
