"""Pictures of a sweep: the Pareto front, and the axes."""

import time

import numpy as np
import pandas as pd

from lab.runs.metric import Metric
from lab.sweep.page import figures
from lab.sweep.rules import unbeaten


def test_the_front_has_no_lower_bound_and_no_figure_that_judges_nothing():
    cost, wait, size = (
        Metric(key, key, "1", 1, better, "", may_be_bound=key == "wait")
        for key, better in (("cost", "lower"), ("wait", "lower"), ("size", "neither"))
    )
    runs = pd.DataFrame(
        {"k": [1, 2], "policy": "a", "seed": 0, "size": [1.0, 2.0], "cost": [1.0, 2.0], "wait": [0.1, 5.0]}
    ).assign(wait_censored=[True, False])
    *_, (heading, front) = figures(runs, ["k"], [size, cost, wait])
    (rows,) = front.chart.to_dict()["datasets"].values()
    assert heading == "Trade-off between the two figures"
    assert {row["label"]: row["best"] for row in rows} == {"k=1 a": False, "k=2 a": True}
    assert [title for title, _ in figures(runs, ["k"], [size, cost])] == ["size over k", "cost over k"]
    assert "lower bounds" in dict(figures(runs, ["k"], [wait]))["wait over k"].caption


def test_a_switch_is_no_axis_of_numbers():
    cost = Metric("cost", "cost", "1", 1, "lower", "")
    runs = pd.DataFrame({"k": [True, False], "policy": "a", "seed": 0, "cost": [1.0, 2.0]})
    ((_, drawn),) = figures(runs, ["k"], [cost])
    assert [layer["encoding"]["x"]["type"] for layer in drawn.chart.to_dict()["layer"]] == ["nominal"] * 2


def test_the_front_has_what_none_beats():
    costs = np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 3.0], [3.0, 1.0], [0.0, np.nan]])
    assert unbeaten(costs).tolist() == [True, True, False, True, False]
    assert unbeaten(np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0]])).tolist() == [True, True, False]
    assert unbeaten(np.empty((0, 2))).tolist() == []


def test_the_front_of_many_points_takes_no_comparison_of_all_with_all():
    costs = np.random.default_rng(0).random((100_000, 2))
    began = time.process_time()
    assert 1 <= unbeaten(costs).sum() < 100
    assert time.process_time() - began < 10.0
