"""Boosted trees as arrays, checked and evaluated by a few vector operations.

For: predictors that are stored, and read again without trusting the file. Not for: learning (XGBoost does
that). Each tree is a padded row of the arrays. A child's position is greater than its parent's, so every walk
ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.jobs import Real, Whole
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class Trees:
    """T trees of up to N nodes.

    left, right: positions of the children, int64[T, N]; a leaf's children are itself.
    feature: column that a node compares, int64[T, N].
    threshold: values below it, and unknown ones, go left, float32[T, N].
    value: value of each leaf, float64[T, N]; those of other nodes are not used.

    Raises ScenarioError for arrays of different shapes, values that are not numbers, or a child above its
    parent.
    """

    left: Whole
    right: Whole
    feature: Whole
    threshold: NDArray[np.float32]
    value: Real

    def __post_init__(self) -> None:
        shapes = {getattr(self, column.name).shape for column in fields(self)}
        if len(shapes) != 1 or self.left.ndim != 2 or not self.left.shape[1]:
            raise ScenarioError(f"trees: arrays of shapes {sorted(shapes)}; expected one, with nodes")
        place = np.arange(self.left.shape[1])
        for child in (self.left, self.right):
            if ((child < place) | (child >= self.left.shape[1])).any():
                raise ScenarioError("trees: a child lies above its parent, or nowhere")
        if not (np.isfinite(self.threshold).all() and np.isfinite(self.value).all()):
            raise ScenarioError("trees: a value is not a number")
        if (self.feature < 0).any():
            raise ScenarioError("trees: a feature's position is negative")

    def of(self, static: Real) -> Real:
        """Return the sum over the trees by row, float64[n]. Raises ScenarioError for too few columns."""
        if self.feature.size and static.shape[1] <= self.feature.max():
            raise ScenarioError(f"trees: they use more than the {static.shape[1]} features of the rows")
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
    """Return the trees of an XGBRegressor, whose base score must be 0."""
    learned = json.loads(bytes(model.get_booster().save_raw("json")))
    trees = learned["learner"]["gradient_booster"]["model"]["trees"]
    longest = max(len(tree["left_children"]) for tree in trees)
    columns = [_tree(tree, longest) for tree in trees]
    left, right, feature, threshold, value = (np.array(column) for column in zip(*columns, strict=True))
    return Trees(left, right, feature, threshold.astype(np.float32), value)


def _tree(tree: Mapping[str, Any], longest: int) -> tuple[Whole, Whole, Whole, Real, Real]:
    """Return one tree's rows of the arrays, padded to `longest` with leaves of value 0."""
    nodes = len(tree["left_children"])
    place = np.arange(longest)

    def padded(values: Any, dtype: type) -> Any:
        return np.append(np.asarray(values, dtype), np.zeros(longest - nodes, dtype))

    left, right = (padded(tree[f"{side}_children"], np.int64) for side in ("left", "right"))
    leaf = left <= 0  # a leaf's child is -1, and the padding's 0; the root is nobody's child
    conditions = padded(tree["split_conditions"], np.float64)
    # XGBoost stores a leaf's value as its condition (RegTree).
    return (
        np.where(leaf, place, left),
        np.where(leaf, place, right),
        padded(tree["split_indices"], np.int64),
        conditions,
        conditions,
    )
