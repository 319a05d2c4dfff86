"""Charts of a fabric: which fault the steps are of, and the shares that fleets lost."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from lab.charts.fabric import _first_felt, _steps, lost_shares
from lab.fabric.metrics import LOST


@pytest.mark.parametrize(("held_up_s", "begin_s"), [(1.0, 20.0), (3.0, 60.0)])
def test_the_steps_are_of_the_first_fault_that_something_waited_for(held_up_s, begin_s):
    took = pd.Series([1.0] * 60 + [held_up_s] + [1.0] * 20)
    series = pd.DataFrame({"at_s": took.cumsum().shift(fill_value=0.0), "duration_s": took})
    assert _first_felt(pd.Series([60.0, 20.0, 20.0]), series) == begin_s


def test_a_fleet_s_causes_add_up_to_what_it_lost():
    planned = dict.fromkeys(LOST, 0.0) | {"rework_gpu_h": 30.0, "queue_gpu_h": 20.0}
    planned |= {"productive_gpu_h": 150.0, "lost_gpu_h": 50.0}
    whole = dict.fromkeys(LOST, math.nan) | {"productive_gpu_h": 40.0, "lost_gpu_h": 10.0}
    whole["idle_spare_gpu_h"] = 4.0
    perfect = whole | {"lost_gpu_h": 0.0, "idle_spare_gpu_h": 0.0}
    looks = [
        SimpleNamespace(title=title, run=SimpleNamespace(metrics=metrics))
        for title, metrics in (("planned", planned), ("whole", whole), ("perfect", perfect))
    ]
    (figure,) = lost_shares(looks, LOST)
    shares = figure.chart.data.groupby(["title", "cause"])["share"].sum()
    assert shares[shares > 0].round(9).to_dict() == {
        ("planned", LOST["rework_gpu_h"]): 0.15,
        ("planned", LOST["queue_gpu_h"]): 0.1,
        ("whole", LOST["idle_spare_gpu_h"]): 0.08,
        ("whole", "saves, stalls, restarts and work that was lost"): 0.12,
    }


def test_an_exchange_that_ended_as_the_fault_began_is_not_the_one_it_held_up():
    # 0.2 + 0.1 is a little above 0.3, the begin of the fault, in which an exchange takes a second.
    series = pd.DataFrame({"at_s": [0.0, 0.1, 0.2, 0.3, 1.3], "duration_s": [0.1, 0.1, 0.1, 1.0, 0.1]})
    outages = pd.DataFrame({"begin_s": [0.3], "end_s": [0.9], "detected_s": [0.5]})
    tables = {"series": series, "outages": outages}
    run = SimpleNamespace(tables=tables, frame=lambda name, columns=None: tables[name])
    steps = _steps(SimpleNamespace(title="Thorn", run=run)).set_index("step")["after_s"]
    assert steps["what it held up is done"] == pytest.approx(1.0)
