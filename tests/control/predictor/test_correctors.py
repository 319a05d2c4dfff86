"""The physical predictor's correctors, against their formulas, and how one of them is chosen."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from xgboost import XGBRegressor

from control.jobs import Objective
from control.predictor import physical
from control.predictor.baselines import Baseline, fit
from control.predictor.features import SCALING, Encoder
from control.predictor.physical import Correction, Corrector, train_physical
from tests.made_up_jobs import examples
from twinbed import ScenarioError


def alike(*errors):
    """Rows on one cluster, which differ in nothing that a column shows. A list of log errors is a job."""
    rows = examples(1)
    jobs = tuple(replace(rows.jobs[0], name=f"job-{place}") for place in range(len(errors)))
    job = np.repeat(np.arange(len(errors)), [len(part) for part in errors])
    rows = replace(rows.take(np.zeros(len(job), int)), jobs=jobs, job=job)
    rows.time_s[:] = rows.prior_time_s * np.exp(np.concatenate(errors))
    rows.cost_usd[:] = rows.time_s / 3600 * rows.candidates.price_usd_h
    return rows


@pytest.fixture
def means_only(monkeypatch):
    """The mean is the only corrector that is tried."""
    none = Correction(Corrector.NONE, 0.0, np.zeros(1))
    monkeypatch.setattr(physical._Learner, "_untrained", lambda self: iter([none]))


@pytest.mark.usefixtures("means_only")
@pytest.mark.parametrize("by", list(Objective))
def test_errors_of_jobs_that_were_left_out_are_those_from_the_others_mean(by):
    model = train_physical(by, alike([0.0] * 4, [0.3] * 4, [0.9] * 4), 0)
    # 0 from 0.6, 0.3 from 0.45, and 0.9 from 0.15.
    expected = np.repeat([0.15, 0.6, 0.75], 4)
    np.testing.assert_allclose(model.job_errors, expected, atol=1e-6)
    assert (model.correction.offset, model.known.offset) == (pytest.approx(0.4), pytest.approx(0.4))
    assert model.level == 0.0


@pytest.mark.usefixtures("means_only")
@pytest.mark.parametrize("by", list(Objective))
def test_without_a_prior_the_mean_logarithm_of_the_outcomes_stands_for_it(by):
    rows = examples(2, prior=False)
    model = train_physical(by, rows, 0)
    assert model.level == pytest.approx(np.log(rows.objective(by)).mean())
    assert model.known.offset == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(model.predict(rows), np.exp(model.level))


@pytest.mark.usefixtures("means_only")
def test_errors_of_rows_that_were_left_out_are_those_from_the_others_mean():
    errors = np.arange(10) / 10
    model = train_physical(Objective.TIME, alike(errors[:5], errors[5:]), 0)
    # Tenths of ten rows are single rows. A row is 10/9 as far from the others' mean as from that of all.
    np.testing.assert_allclose(model.row_errors, np.sort(np.abs(errors - 0.45)) * 10 / 9, atol=1e-6)
    np.testing.assert_allclose(
        model.job_errors, np.sort([*np.abs(errors[:5] - 0.7), *np.abs(errors[5:] - 0.2)]), atol=1e-6
    )


class Told(physical._Learner):
    """A learner whose errors on left-out folds are those of a table, one line for each corrector."""

    def _untrained(self):
        for place in range(len(self.static)):
            yield Correction(Corrector.NONE, float(place), np.zeros(1))

    def _left_out(self, kind, folds):
        return [self.static[int(kind.offset), rows] for rows in folds]


@pytest.mark.parametrize(
    ("table", "chosen", "nested"),
    [
        # Without the first fold the second line is better, and without the second fold the first one.
        ([[0.1, 0.9], [0.5, 0.2]], 1, [0.5, 0.9]),
        ([[0.1, 0.9], [0.1, 0.9]], 0, [0.1, 0.9]),  # the earlier corrector where they are alike
        ([[0.4, 0.4, 0.4], [0.3, 0.3, 0.51], [0.0, 0.5, 0.5]], 2, [0.4, 0.5, 0.5]),
    ],
)
def test_a_corrector_is_chosen_on_all_folds_and_judged_on_each_by_the_others(table, chosen, nested):
    learner = Told(np.array(table), np.zeros(len(table[0])), np.zeros(1, bool), 0)
    kind, errors = learner.choose([np.array([place]) for place in range(len(table[0]))])
    assert kind.offset == chosen
    assert errors.tolist() == nested


def test_folds_count_by_their_median_and_alike():
    # Of the first fold the medians are 0.1 and 0.2, of the second 0.5 and 0.3: on average 0.3 and 0.25.
    table = np.array([[0.1, 0.1, 9.0, 0.1, 0.1, 0.5], [0.2, 0.2, 0.2, 0.2, 0.2, 0.3]])
    learner = Told(table, np.zeros(6), np.zeros(1, bool), 0)
    kind, errors = learner.choose([np.arange(5), np.array([5])])
    assert kind.offset == 1
    assert errors.tolist() == [0.2] * 5 + [0.5]


def learner(seed=0):
    rng = np.random.default_rng(1)
    static = rng.standard_normal((60, 5)) + 3.0
    error = static @ np.array([1.0, -2.0, 0.5, 0.0, 0.3]) + 0.1 * rng.standard_normal(60) + 7.0
    return physical._Learner(static, error, np.array([True, True, False, True, False]), seed)


def test_the_correctors_that_are_tried():
    kinds = list(learner()._untrained())
    assert [(kind.corrector, kind.penalty) for kind in kinds] == [
        (Corrector.NONE, 0.0),
        *((Corrector.SCALING, penalty) for penalty in (0.1, 1.0, 10.0, 100.0, 1000.0)),
        *((Corrector.RIDGE, penalty) for penalty in (0.1, 1.0, 10.0, 100.0, 1000.0)),
        (Corrector.TREES, 0.0),
    ]


@pytest.mark.parametrize(
    "kind", list(learner()._untrained()), ids=lambda kind: f"{kind.corrector}-{kind.penalty}"
)
def test_correctors_are_the_libraries_own(kind):
    ours = learner()
    rng = np.random.default_rng(2)
    asked = rng.standard_normal((9, 5)) + 3.0
    offset = ours.error.mean()
    match kind.corrector:
        case Corrector.NONE:
            expected = np.full(9, offset)
        case Corrector.TREES:
            trees = XGBRegressor(random_state=0, n_jobs=1, base_score=0.0, **physical._TREES)
            expected = offset + trees.fit(ours.static, ours.error - offset).predict(asked)
        case _:
            used = ours.scaling if kind.corrector is Corrector.SCALING else np.ones(5, bool)
            ridge = Ridge(alpha=kind.penalty).fit(ours.static[:, used], ours.error)
            expected = ridge.predict(asked[:, used])
    np.testing.assert_allclose(ours.fit(kind).of(asked), expected, atol=1e-5)


def test_trees_are_those_of_their_seed():
    static = learner().static
    (*_, trees) = learner()._untrained()
    first, again, other = (learner(seed).fit(trees).of(static) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_trees_are_learned_in_one_thread(monkeypatch):
    threads = []

    class Watched(XGBRegressor):
        def fit(self, *args):
            threads.append(self.n_jobs)
            return super().fit(*args)

    monkeypatch.setattr("xgboost.XGBRegressor", Watched)
    (*_, trees) = learner()._untrained()
    assert learner().fit(trees).trees is not None
    assert threads == [1]


def test_the_columns_of_scaling_are_the_ones_that_are_named(monkeypatch):
    seen = []

    class Watched(physical._Learner):
        def choose(self, folds):
            seen.append((self.seed, self.scaling, [rows.tolist() for rows in folds]))
            return Correction(Corrector.NONE, float(len(seen)), np.zeros(self.static.shape[1])), np.array(
                [2.0, 1.0]
            )

        def fit(self, kind):
            return replace(kind, offset=kind.offset * 10)

    monkeypatch.setattr(physical, "_Learner", Watched)
    rows = examples(3)
    model = train_physical(Objective.TIME, rows, 5)
    train_physical(Objective.TIME, rows, 5)
    train_physical(Objective.TIME, rows, 6)
    assert np.array(model.encoder.columns)[seen[0][1]].tolist() == [
        name for name in model.encoder.columns if name in SCALING
    ]
    assert [seed for seed, _, _ in seen] == [5] * 4 + [6] * 2
    assert seen[0][2] == [
        list(range(first, first + 24)) for first in (0, 24, 48)
    ]  # jobs for unknown applications
    assert sorted(map(len, seen[1][2])) == [7] * 8 + [8] * 2  # tenths of the rows for known ones
    assert seen[1][2] == seen[3][2] != seen[5][2]
    assert (model.correction.offset, model.known.offset) == (10.0, 20.0)
    assert model.job_errors.tolist() == model.row_errors.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("by", list(Objective))
def test_the_offset_is_the_logarithm_of_outcome_over_prior(by):
    rows = examples(2)
    rows.prior_time_s[:] = rows.time_s * 2
    model = train_physical(by, rows, 0)
    assert model.correction.corrector is Corrector.NONE
    assert np.exp(model.correction.offset) == pytest.approx(0.5)
    # The offset alone is no time: half a second for every job.
    with pytest.raises(ScenarioError, match=r"row 2 \(job job-0\)"):
        model.predict(replace(rows, prior_time_s=np.full(48, np.nan)))


def test_the_physical_predictor_takes_ten_rows():
    model = train_physical(Objective.TIME, examples(1).take(np.arange(10)), 0)
    assert len(model.row_errors) == 10


@pytest.mark.parametrize("name", list(Baseline))
def test_a_baseline_refuses_rows_without_the_outcome_that_it_learns(name):
    rows = examples(1)
    rows.cost_usd[2] = np.nan
    with pytest.raises(ScenarioError, match=r"row 4 .*cost is nan"):
        fit(name, Objective.COST, rows, 0)


def test_a_baseline_learns_the_outcome_that_it_is_asked_for():
    rows = examples(1)
    rows.cost_usd[:] = 7.0
    assert fit(Baseline.LINEAR, Objective.COST, rows, 0).predict(rows) == pytest.approx(7.0)
    assert fit(Baseline.LINEAR, Objective.TIME, rows, 0).predict(rows).min() > 7.0


def test_a_poisson_regression_finds_a_law_of_powers():
    rows = examples(1)
    rows.time_s[:] = 50.0 * rows.candidates.count**-0.7 * rows.candidates.vcpus**-0.4
    predicted = fit(Baseline.POISSON, Objective.TIME, rows, 0).predict(rows)
    np.testing.assert_allclose(predicted, rows.time_s, rtol=0.02)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", list(Baseline))
def test_no_baseline_stops_before_it_has_converged(name):
    rows = examples(3)
    encoded = Encoder.fit(rows).encode(rows)
    fitted = fit(name, Objective.COST, rows, 0)
    assert fitted.predict_encoded(encoded).dtype == np.float64


def test_a_forest_is_another_for_another_seed_and_boosted_trees_use_one_thread():
    rows = examples(2)
    for name in (Baseline.FOREST, Baseline.FOREST_CLASSIFIER):
        one, other = (fit(name, Objective.TIME, rows, seed).predict(rows) for seed in (1, 2))
        assert not np.array_equal(one, other)
    assert fit(Baseline.XGBOOST, Objective.TIME, rows, 0).model.n_jobs == 1


def test_a_likelihood_is_that_of_being_among_the_best():
    rows = examples(1)
    rows.time_s[:] = 100.0
    rows.time_s[[3, 8]] = 10.0
    likely = fit(Baseline.FOREST_CLASSIFIER, Objective.TIME, rows, 0).predict(rows)
    assert np.flatnonzero(likely > 0.5).tolist() == [3, 8]


def test_a_job_whose_time_the_analytic_model_does_not_know_is_refused_by_name() -> None:
    rows = examples(2)
    model = train_physical(Objective.TIME, rows, 0)
    rows.prior_time_s[30] = np.nan
    with pytest.raises(ScenarioError, match=r"row 32 \(job job-1\): the analytic model, .* knows no time"):
        model.predict(rows)


def test_a_model_that_learned_without_priors_does_not_use_one() -> None:
    model = train_physical(Objective.TIME, examples(2, prior=False), 0)
    np.testing.assert_array_equal(model.predict(examples(2)), model.predict(examples(2, prior=False)))
