"""Boosted trees as arrays: what XGBoost has learned, evaluated and checked by a few vector operations.

For: predictors that are stored and read again without trusting the file. Not for: learning (xgboost does
that). Each tree is a row of arrays, padded; a child's position is greater than its parent's, so every walk
ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.recommender.model import Real, Whole
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class Trees:
    """T trees of up to N nodes. left, right: int64[T, N], positions of the children (a leaf's are itself);
    feature: int64[T, N]; threshold: float32[T, N], below it (or where nothing is known) to the left; value:
    float64[T, N], of the leaves.

    Raises ScenarioError for arrays of different shapes, values that are no numbers, or children that are not
    below their parents.
    """

    left: Whole
    right: Whole
    feature: Whole
    threshold: NDArray[np.float32]
    value: Real

    def __post_init__(self) -> None:
        shapes = {getattr(self, each.name).shape for each in fields(self)}
        if len(shapes) != 1 or self.left.ndim != 2:
            raise ScenarioError(f"trees: arrays of shapes {sorted(shapes)}; expected one")
        place = np.arange(self.left.shape[1])
        for child in (self.left, self.right):
            if ((child < place) | (child >= self.left.shape[1])).any():
                raise ScenarioError("trees: a child lies above its parent, or nowhere")
        if not (np.isfinite(self.threshold).all() and np.isfinite(self.value).all()):
            raise ScenarioError("trees: a value is no number")
        if (self.feature < 0).any():
            raise ScenarioError("trees: a feature's position is negative")

    def of(self, static: Real) -> Real:
        """float64[n]: the sum over the trees. static: float64[n, f], f beyond every feature of theirs.

        Raises ScenarioError for too few columns.
        """
        if self.feature.size and static.shape[1] <= self.feature.max():
            raise ScenarioError(
                f"trees: they ask for more than the {static.shape[1]} features that there are"
            )
        near = static.astype(np.float32)
        rows = np.arange(len(near))[:, None]
        trees = np.arange(len(self.left))
        at = np.zeros((len(near), len(trees)), dtype=np.int64)
        while True:
            left, right = self.left[trees, at], self.right[trees, at]
            right_of = near[rows, self.feature[trees, at]] >= self.threshold[trees, at]
            below = np.where(right_of, right, left)
            if np.array_equal(below, at):
                break
            at = below
        total: Real = self.value[trees, at].sum(axis=1)
        return total


def of_xgboost(model: Any) -> Trees:
    """What an XGBRegressor has learned (its base score must be 0)."""
    learned = json.loads(bytes(model.get_booster().save_raw("json")))
    found = learned["learner"]["gradient_booster"]["model"]["trees"]
    longest = max(len(tree["left_children"]) for tree in found)
    columns = [_tree(tree, longest) for tree in found]
    left, right, feature, threshold, value = (np.array(each) for each in zip(*columns, strict=True))
    return Trees(left, right, feature, threshold.astype(np.float32), value)


def _tree(tree: Mapping[str, Any], longest: int) -> tuple[Whole, Whole, Whole, Real, Real]:
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
    leaf = left < 0
    place = np.arange(longest)
    padding = longest - len(left)

    def padded(values: Any) -> Any:
        return np.concatenate((values, np.zeros(padding, dtype=np.asarray(values).dtype)))

    children = [
        np.concatenate((np.where(leaf, place[: len(left)], each), place[len(left) :]))
        for each in (left, right)
    ]
    conditions = np.array(tree["split_conditions"], dtype=np.float64)
    # A leaf's condition is its value (XGBoost, RegTree).
    return (
        children[0].astype(np.int64),
        children[1].astype(np.int64),
        padded(np.where(leaf, 0, np.array(tree["split_indices"]))).astype(np.int64),
        padded(np.where(leaf, 0.0, conditions)),
        padded(np.where(leaf, conditions, 0.0)),
    )
