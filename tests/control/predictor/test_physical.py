from dataclasses import replace

import numpy as np
import pytest

from control.jobs import Objective
from control.predictor.baselines import Baseline, fit
from control.predictor.examples import best, folds_of_jobs
from control.predictor.physical import Correction, Corrector, train_physical
from tests.made_up_jobs import examples
from twinbed import ScenarioError


def error(rows, predicted, by=Objective.TIME):
    return float(np.median(np.abs(np.log(predicted / rows.objective(by)))))


def left_out(rows, job):
    mask = rows.job == job
    return rows.take(~mask), rows.take(mask)


@pytest.mark.slow
@pytest.mark.parametrize("by", list(Objective))
def test_an_unseen_job_is_predicted_by_the_physics_and_what_past_jobs_teach_of_its_errors(by):
    rows = examples(6)
    for job in range(3):
        known, asked = left_out(rows, job)
        model = train_physical(by, known, 0)
        assert error(asked, model.predict(asked), by) < 0.06  # the noise's median is 0.02
        assert model.correction.corrector is not Corrector.NONE  # the law is off by a power of the vCPUs


@pytest.mark.slow
def test_it_beats_trees_without_physics_where_the_job_is_unseen():
    rows = examples(6)
    known, asked = left_out(rows, 5)
    ours = error(asked, train_physical(Objective.TIME, known, 0).predict(asked))
    assert ours < error(asked, fit(Baseline.XGBOOST, Objective.TIME, known, 0).predict(asked))


@pytest.mark.slow
def test_without_a_prior_it_learns_the_outcome_itself():
    rows = examples(6, prior=False)
    model = train_physical(Objective.TIME, rows, 0)
    assert model.level == pytest.approx(np.log(rows.time_s).mean())
    assert error(rows, model.predict(rows)) < 0.2


@pytest.mark.slow
def test_errors_that_a_feature_of_the_job_explains_are_corrected_for_an_unseen_job():
    rows = examples(6)
    epochs = np.array([job.features["epochs"] for job in rows.jobs])[rows.job]
    rows.time_s[:] = rows.prior_time_s * np.exp(0.3 * epochs)
    known, asked = left_out(rows, 5)
    model = train_physical(Objective.TIME, known, 0)
    assert model.correction.corrector is Corrector.RIDGE
    assert error(asked, model.predict(asked)) < 0.5  # it is 0.9 from the mean of the known jobs


def test_physics_that_is_right_is_left_alone():
    rows = examples(6)
    rows.prior_time_s[:] = rows.time_s * 2.0
    model = train_physical(Objective.TIME, rows, 0)
    np.testing.assert_allclose(model.predict(rows), rows.time_s, rtol=1e-6)


def test_the_part_of_the_prior_that_is_not_billed_costs_nothing():
    rows = replace(examples(6), unbilled_s=60.0)
    rows.prior_time_s[:] += 60
    rows.cost_usd[:] = (rows.prior_time_s - 60) / 3600 * rows.candidates.price_usd_h
    model = train_physical(Objective.COST, rows, 0)
    np.testing.assert_allclose(model.predict(rows), rows.cost_usd, rtol=1e-6)


def test_errors_of_jobs_left_out_are_kept_for_intervals():
    rows = examples(4)
    model = train_physical(Objective.TIME, rows, 0)
    assert len(model.job_errors) == len(model.row_errors) == len(rows)
    assert (np.diff(model.job_errors) >= 0).all()
    assert model.jobs == tuple(job.name for job in rows.jobs)
    assert len(folds_of_jobs(rows.job)) == 4


def test_a_single_job_is_learned_from_by_leaving_rows_out():
    rows = examples(1)
    trained = train_physical(Objective.TIME, rows, 0)
    assert error(rows, trained.predict(rows)) < 0.06
    np.testing.assert_array_equal(trained.job_errors, trained.row_errors)


@pytest.mark.parametrize("name", [Baseline.FOREST, Baseline.FOREST_CLASSIFIER])
def test_a_forest_is_the_same_for_the_same_seed(name):
    rows = examples(2)
    one, other = (fit(name, Objective.TIME, rows, 7).predict(rows) for _ in range(2))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", [name for name in Baseline if name.classifies])
def test_a_classifier_says_which_rows_are_among_the_best(name):
    rows = examples(2)
    among = best(rows.time_s, rows.job)
    probability = fit(name, Objective.TIME, rows, 0).predict(rows)
    assert probability[among].mean() > probability[~among].mean()
    rows.time_s[:] = 1.0
    with pytest.raises(ScenarioError, match=f"{name}: all rows are among the best"):
        fit(name, Objective.TIME, rows, 0)


def test_too_few_rows_and_rows_without_an_outcome_are_refused():
    rows = examples(1)
    with pytest.raises(ScenarioError, match="at least 10 are needed"):
        train_physical(Objective.TIME, rows.take(np.arange(9)), 0)
    rows.cost_usd[2] = np.nan
    with pytest.raises(ScenarioError, match=r"row 4 .*cost is nan"):
        train_physical(Objective.COST, rows, 0)


def test_a_prior_for_some_rows_only_is_refused():
    rows = examples(2)
    rows.prior_time_s[0] = np.nan
    with pytest.raises(ScenarioError, match=r"row 2 \(job job-0\): the analytic model, which"):
        train_physical(Objective.TIME, rows, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(Baseline))
def test_baselines_learn_the_rows_that_they_see(name):
    rows = examples(3)
    predicted = fit(name, Objective.TIME, rows, 0).predict(rows)
    assert predicted.shape == (len(rows),)
    if name.classifies:
        assert ((predicted >= 0) & (predicted <= 1)).all()
    else:
        assert np.corrcoef(predicted, rows.time_s)[0, 1] > 0.6


def test_a_job_that_it_knows_is_corrected_by_one_and_a_stranger_by_the_other():
    rows = examples(3)
    trained = train_physical(Objective.TIME, rows, 0)
    of_strangers = Correction(Corrector.NONE, 1.0, np.zeros(len(trained.encoder.columns)))
    model = replace(trained, correction=of_strangers)
    np.testing.assert_array_equal(model.predict(rows), trained.predict(rows))
    strangers = replace(rows, jobs=tuple(replace(job, name=f"new-{job.name}") for job in rows.jobs))
    np.testing.assert_allclose(model.predict(strangers), np.e * rows.prior_time_s)
