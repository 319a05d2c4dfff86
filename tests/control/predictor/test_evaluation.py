import numpy as np
import pytest
from sklearn.metrics import r2_score, roc_auc_score

from control.jobs import Objective
from control.predictor.evaluation import Selection, accuracy, auc, cross_validated, picks, selection
from control.predictor.examples import folds_of_jobs
from tests.made_up_jobs import examples
from twinbed import ScenarioError


def test_figures_are_the_libraries_own():
    rng = np.random.default_rng(0)
    true, score = rng.uniform(1, 2, 50), rng.integers(0, 9, 50).astype(float)
    judged = accuracy(true + 0.1, true)
    assert judged.rmse == pytest.approx(0.1)
    assert judged.r2 == pytest.approx(r2_score(true, true + 0.1))
    good = true < 1.3
    assert auc(score, good) == pytest.approx(roc_auc_score(good, score))
    assert np.isnan(auc(score, np.ones(50, bool)))


def test_what_is_predicted_to_be_within_half_as_much_again_is_picked_six_at_most():
    true = np.array([10.0, 10.5, 11, 12, 13, 14, 14.5, 30])
    perfect = selection(true, true)
    assert (perfect.auc, perfect.best, perfect.hits, perfect.false_positives) == (1.0, 5, 5, 1)
    worst = selection(40 - true, true)
    assert (worst.auc, worst.hits, worst.false_positives) == (0.0, 0, 1)  # 10; the next is 25.5
    assert perfect.good
    assert not worst.good


def test_of_likelihoods_what_is_likely_is_picked():
    true = np.array([10.0, 11, 12, 30, 40])
    judged = selection(np.array([0.9, 0.6, 0.4, 0.7, 0.1]), true, likelihoods=True)
    assert (judged.best, judged.hits, judged.false_positives) == (3, 2, 1)
    assert judged.auc == pytest.approx(4 / 6)  # 0.9 is above both others, 0.6 and 0.4 above one


def test_no_row_is_predicted_by_what_has_seen_it():
    rows = examples(4)
    seen = []

    class Told:
        def __init__(self, learned):
            self.jobs = set(learned.job.tolist())

        def predict(self, asked):
            assert not self.jobs & set(asked.job.tolist())
            return np.full(len(asked), float(asked.job[0]))

    judged = cross_validated(Told, rows, folds_of_jobs(rows.job), lambda done, of: seen.append((done, of)))
    np.testing.assert_array_equal(judged, rows.job)
    assert seen == [(index, 4) for index in range(1, 5)]
    assert np.isfinite(rows.objective(Objective.COST)).all()


def test_one_row_is_no_evidence():
    with pytest.raises(ScenarioError, match="at least two"):
        accuracy(np.ones(1), np.ones(1))


def test_errors_by_hand():
    judged = accuracy(np.array([2.0, 2.0]), np.array([1.0, 2.0]))
    # Errors 1 and 0, relative 1 and 0; the values' squares around their mean sum to 0.5.
    assert (judged.rmse, judged.r2, judged.median_error) == (np.sqrt(0.5), -1.0, 0.5)
    assert np.isnan(accuracy(np.array([1.0, 2.0]), np.ones(2)).r2)


def test_a_row_in_no_fold_has_no_prediction():
    rows = examples(1)

    class One:
        def predict(self, asked):
            return np.ones(len(asked))

    judged = cross_validated(lambda _: One(), rows, [np.array([3]), np.array([5, 4])])
    assert np.flatnonzero(~np.isnan(judged)).tolist() == [3, 4, 5]


@pytest.mark.parametrize(
    ("said", "picked"),
    [
        ([0.9, 0.8, 0.7, 0.65, 0.6, 0.55, 0.52], 6),
        ([0.9, 0.8, 0.7, 0.65, 0.6, 0.55, 0.55], 7),  # the last two tie
        ([0.5, 0.49, 0.1, 0.1, 0.1, 0.1, 0.1], 1),
    ],
)
def test_the_six_likeliest_are_picked_and_ties_if_they_are_as_likely_as_not(said, picked):
    assert np.flatnonzero(picks(np.array(said), likelihoods=True)).tolist() == list(range(picked))


@pytest.mark.parametrize(
    ("hits", "wrong", "good"), [(5, 2, True), (4, 2, True), (3, 2, False), (4, 3, False), (5, 3, False)]
)
def test_a_good_selection_misses_one_of_the_best_at_most_and_has_two_others_at_most(hits, wrong, good):
    assert Selection(1.0, 5, hits, wrong).good == good


@pytest.mark.parametrize("same", [True, False])
def test_one_class_alone_has_no_auc(same):
    with np.errstate(all="raise"):
        assert np.isnan(auc(np.arange(3.0), np.full(3, same)))
