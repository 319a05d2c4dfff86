"""What pages say of one thing alone, of nothing, and of values that are no numbers."""

import math
import shutil

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from control.jobs import Configuration, Objective
from control.recommender.ports import Interval, Recommendation
from lab.charts import drawing
from lab.charts.palette import shown
from lab.explorer import cloud_page, results, services_results
from lab.explorer.job import Queue
from lab.explorer.trace_facts import facts
from lab.runs.store import RunStore
from tests.lab.explorer.test_pages import texts
from tests.lab.sample_traces import usage_trace, whatif
from tests.patience import PATIENCE_S
from twinbed import BackendError


def row(cost_usd: float, time_s: float, *, near: float) -> Recommendation:
    """A recommendation whose intervals reach `near` times as far to both sides."""
    time, cost = (Interval(value / near, value * near) for value in (time_s, cost_usd))
    return Recommendation(Configuration("n1-standard-4", 2), time_s, cost_usd, time, cost, 1.0, "why")


def test_the_next_in_a_ranking_is_apart_by_what_it_was_ranked_by():
    # The second costs about the same, and takes twice the time.
    first, second = row(10.0, 3600.0, near=1.1), row(10.5, 7200.0, near=1.1)
    assert "intervals of their costs overlap" in cloud_page._beside(first, second, Objective.COST)
    assert "intervals of their times do not overlap" in cloud_page._beside(first, second, Objective.TIME)
    # A second that is cheaper by far, but less likely to keep the bounds, is apart, too.
    cheap = row(1.0, 3600.0, near=1.1)
    assert "do not overlap" in cloud_page._beside(first, cheap, Objective.COST)


def test_a_full_queue_counts_one_question_as_one():
    queue = Queue(workers=1, length=0)
    queue.enter("first")
    assert queue.take("first", 0.0)
    with pytest.raises(BackendError, match=r"^1 question of other visitors running and 0 waiting are"):
        queue.enter("second")


def test_the_rest_of_a_traces_containers_is_one_other_where_it_is_one():
    assert "1 other" in set(facts(usage_trace(count=13)).demand["container"])


def test_the_demand_is_drawn_from_each_sample_to_the_next_and_to_the_end_of_the_trace():
    trace = usage_trace(count=1)
    demand = facts(trace).demand
    assert demand["at_s"].iloc[0] == 0.0
    assert demand["at_s"].iloc[-1] == trace.duration_s
    assert demand["cpu_cores"].iloc[-1] == demand["cpu_cores"].iloc[-2]
    assert drawing.workload(demand).to_dict()["mark"]["interpolate"] == "step-after"


def test_an_axis_fits_all_runs_also_after_one_that_was_down():
    down = pd.DataFrame({"use": [math.nan], "limit": [math.nan]})
    up = pd.DataFrame({"use": [2.0], "limit": [4.0]})
    assert results._top([down, up]) == pytest.approx(4.24)
    assert results._top([down]) == 1.0


def test_shares_of_containers_that_were_never_up_have_an_end():
    config = services_results._columns(pd.DataFrame({"throttled_share": [math.nan]}))
    assert config["throttled_share"]["type_config"]["max_value"] == 0.01


@pytest.mark.slow
def test_what_has_no_limit_has_no_nan(stored, trace_path, tmp_path):
    (run,) = whatif(trace_path, ["unlimited"], store=RunStore(tmp_path))
    (look,) = shown([run])
    frame = pd.DataFrame({"up": [True], "limit_mib": [np.nan], "memory_mib": [10.0]})
    assert "nan" not in results._heading(look, frame, "memory")
    assert "no memory limit" in results._heading(look, frame, "memory")


def page_of_distributions() -> None:
    from lab.charts.palette import shown
    from lab.explorer import results
    from lab.runs.store import RunStore

    store = RunStore()
    results.distributions(shown([store.open(run_id) for run_id in store.ids()]))


@pytest.mark.slow
def test_slack_without_a_limit_is_not_blamed_on_the_traces_memory(trace_path, tmp_path, monkeypatch):
    whatif(trace_path, ["unlimited"], store=RunStore(tmp_path))
    monkeypatch.setenv("TWINBED_STORE", str(tmp_path))
    said = texts(AppTest.from_function(page_of_distributions, default_timeout=PATIENCE_S).run()).replace(
        "\\", ""
    )
    assert "No container has a CPU limit here, so there is no slack." in said
    assert "The trace has no memory, or no container has a memory limit here" in said


@pytest.mark.slow
def test_stored_questions_skip_runs_that_are_removed_in_the_meantime(stored, tmp_path, monkeypatch):
    shutil.copytree(stored[0].root, tmp_path / "copy")
    store = RunStore(tmp_path / "copy")
    ids = store.ids()
    shutil.rmtree(store.root / ids[0])
    monkeypatch.setattr(RunStore, "names", lambda _self: ids)
    assert [run.id for run in store.runs()] == ids[1:]
