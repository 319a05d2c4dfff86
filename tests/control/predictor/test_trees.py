from dataclasses import replace

import numpy as np
import pytest
from xgboost import XGBRegressor

from control.predictor.trees import Trees, of_xgboost
from twinbed import ScenarioError


@pytest.fixture(scope="module")
def learned():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 6))
    target = rows[:, 0] * rows[:, 1] + np.abs(rows[:, 2])
    model = XGBRegressor(n_estimators=40, max_depth=4, n_jobs=1, base_score=0.0).fit(rows, target)
    return model, of_xgboost(model), rng.standard_normal((1000, 6))


def test_they_say_what_xgboost_says(learned):
    model, trees, rows = learned
    np.testing.assert_allclose(trees.of(rows), model.predict(rows), atol=1e-5)


def test_hostile_arrays_are_refused(learned):
    _, trees, rows = learned
    up = trees.left.copy()
    up[0, 1] = 0
    wild = trees.value.copy()
    wild[0, 0] = np.inf
    for changed, message in (
        ({"left": up}, "above its parent"),
        ({"right": trees.right + 1000}, "or nowhere"),
        ({"value": wild}, "not a number"),
        ({"feature": trees.feature - 1000}, "negative"),
        ({"value": trees.value[:, 1:]}, "expected one"),
    ):
        with pytest.raises(ScenarioError, match=message):
            replace(trees, **changed)
    with pytest.raises(ScenarioError, match="more than the 2 features"):
        trees.of(rows[:, :2])


def test_a_tree_that_is_a_leaf():
    leaf = np.zeros((1, 1), np.int64)
    trees = Trees(leaf, leaf, leaf, leaf.astype(np.float32), np.array([[2.5]]))
    assert trees.of(np.zeros((3, 1))).tolist() == [2.5] * 3


def stump(**changed):
    """A tree that says 10 left of 1.5, and 20 right of it."""
    columns = {
        "left": np.array([[1, 1, 2]]),
        "right": np.array([[2, 1, 2]]),
        "feature": np.array([[1, 0, 0]]),
        "threshold": np.array([[1.5, 0, 0]], np.float32),
        "value": np.array([[0.0, 10, 20]]),
    }
    return Trees(**(columns | changed))


def test_the_threshold_itself_goes_right_and_unknown_values_go_left():
    rows = np.column_stack((np.full(4, 9.0), [1.4, 1.5, 1.6, np.nan]))
    assert stump().of(rows).tolist() == [10, 20, 20, 10]


def test_the_sum_of_no_tree_is_zero():
    trees = stump(**{name: getattr(stump(), name)[:0] for name in Trees.__slots__})
    assert trees.of(np.ones((2, 1))).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"right": np.array([[3, 1, 2]])}, "or nowhere"),
        ({"threshold": np.array([[np.inf, 0, 0]], np.float32)}, "not a number"),
        ({"feature": np.array([[-1, 0, 0]])}, "negative"),
        ({name: getattr(stump(), name)[0] for name in Trees.__slots__}, "expected one"),
        ({name: getattr(stump(), name)[:, :0] for name in Trees.__slots__}, "with nodes"),
    ],
)
def test_a_stump_that_is_no_tree_is_refused(changed, message):
    with pytest.raises(ScenarioError, match=message):
        stump(**changed)


def test_rows_of_as_many_columns_as_the_highest_feature_are_too_narrow():
    with pytest.raises(ScenarioError, match="more than the 1 features"):
        stump().of(np.ones((2, 1)))
