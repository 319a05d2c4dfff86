import numpy as np
import pytest

from control.jobs import Configuration, InstanceType, Job, Objective, candidates
from control.predictor.examples import best, folds_of_jobs, folds_of_rows, of_one_job
from control.predictor.features import POINTS, SCALING, Encoder
from tests.made_up_jobs import PRICES, TYPES, examples
from twinbed import ScenarioError


def test_the_best_are_few_and_near_the_lowest():
    value = np.array([10.0, 11, 12, 14, 16, 17, 100, 110, 170])
    job = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1])
    # 16 is beyond 1.5 × 10; so is 170 beyond 150.
    assert best(value, job).tolist() == [True] * 4 + [False] * 2 + [True, True, False]
    assert best(np.ones(8), np.zeros(8, int)).all()
    assert best(np.linspace(1, 1.4, 9), np.zeros(9, int)).sum() == 5


def test_folds_hold_every_row_once():
    folds = folds_of_rows(23, 5, np.random.default_rng(0))
    assert np.array_equal(np.sort(np.concatenate(folds)), np.arange(23))
    assert [rows.tolist() for rows in folds_of_jobs(np.array([2, 7, 2]))] == [[0, 2], [1]]
    with pytest.raises(ScenarioError, match="at least two"):
        folds_of_jobs(np.zeros(3, int))
    with pytest.raises(ScenarioError, match="6 folds of 5 rows"):
        folds_of_rows(5, 6, np.random.default_rng(0))


def test_columns_are_standardised_by_the_rows_that_were_learned_from():
    rows = examples()
    encoder = Encoder.fit(rows)
    encoded = encoder.encode(rows)
    assert encoded.static.shape == (len(rows), len(encoder.columns))
    assert encoded.series.shape == (5, POINTS, 4)
    assert np.abs(encoded.static.mean(axis=0)).max() < 1e-9
    spread = encoded.static.std(axis=0)
    assert set(np.round(spread, 9)) <= {0.0, 1.0}
    alone = encoder.encode(rows.take(np.array([3])))
    np.testing.assert_array_equal(alone.static[0], encoded.static[3])


def test_a_job_and_a_type_that_were_never_seen_can_be_asked_about():
    encoder = Encoder.fit(examples())
    types = {**TYPES, "new": InstanceType("new", "test", 64, 128)}
    asked = of_one_job(Job("bare"), candidates(types, {**PRICES, "new": 3.0}, [Configuration("new", 2)]))
    encoded = encoder.encode(asked)
    assert np.isfinite(encoded.static).all()
    one_hots = [index for index, name in enumerate(encoder.columns) if name.startswith("is ")]
    assert len(set(encoded.static[0, one_hots])) == 1  # each is "not this one"


def test_rows_without_an_outcome_are_refused():
    rows = examples()
    rows.time_s[3] = np.nan
    with pytest.raises(ScenarioError, match=r"row 3 \(job job-0\): time is nan"):
        rows.check_known(Objective.TIME)


def test_what_a_step_costs_per_parameter_is_told_by_batch_and_by_being_alone():
    rows = examples(3)
    encoder = Encoder.fit(rows)
    assert set(SCALING) <= set(encoder.columns)
    table = encoder.encode(rows).static * encoder.scale + encoder.mean
    column = {name: table[:, place] for place, name in enumerate(encoder.columns)}
    run = rows.jobs[1].local_run
    expected = run.parameters / (1e6 * np.median(run.step_s) * run.cpu_cores.mean())
    here = rows.job == 1
    np.testing.assert_allclose(column["parameters per CPU time"][here], expected)
    alone = rows.candidates.count == 1
    np.testing.assert_allclose(column["parameters alone"][here & alone], expected)
    np.testing.assert_allclose(column["parameters alone"][~alone], 0.0, atol=1e-12)
    np.testing.assert_allclose(column["parameters × log batch"], 0.0, atol=1e-12)  # the local run's own batch
