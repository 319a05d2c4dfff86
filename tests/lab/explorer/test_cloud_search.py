"""The page Cloud's search: its child tells each trial, and the page shows them, then and after a reload."""

from __future__ import annotations

import json
from math import inf
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from control.jobs import Job, Objective
from lab.charts import cloud as cloud_charts
from lab.cloud.run.recommending import Market, Question
from lab.explorer import cloud_question, cloud_search, search_job, session
from lab.explorer.job import Status
from lab.explorer.search_job import SearchRequest
from tests.lab.explorer.test_pages import charts, texts
from tests.patience import PATIENCE_S
from twinbed import ScenarioError

MARKET = Market("us-central1", types=("n1-standard-4", "n1-standard-8"), workers=(1, 2))
ROW = {
    "trial": 1, "configuration": "2 × n1-standard-4", "step_ms": 120.0, "job_h": 1.5, "job_usd": 0.6,
    "held_s": 3.0, "spent_usd": 0.0004, "price_usd_h": 0.38, "why": "the *cheapest*", "problem": "",
}  # fmt: skip


class _Heard:
    """A channel that remembers."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, **message: Any) -> None:
        self.messages.append(json.loads(json.dumps(message)))


@pytest.fixture(autouse=True)
def _no_past(monkeypatch, tmp_path):
    monkeypatch.setenv("TWINBED_MEASUREMENTS", str(tmp_path / "m.duckdb"))


def test_the_child_tells_each_trial_and_runs_no_command():
    job = cloud_question.load("images_vgg", None, None)
    question = Question(job, MARKET, Objective.COST, method="exhaustive", shipped=False)
    request = SearchRequest.from_json(SearchRequest.of(question, 3, None, 7).to_json())
    heard = _Heard()
    answer = search_job._work(request, heard)["answer"]
    rows = [message["row"] for message in heard.messages if "row" in message]
    assert [row["trial"] for row in rows] == [1, 2, 3]
    assert [dict(row) for row in answer["rows"]] == rows
    assert answer["take"] in {row["configuration"] for row in rows}
    assert answer["asked"] == 7
    assert heard.messages[-1]["fraction"] == 1.0
    assert any("Nothing is stored" in note for note in answer["notes"])


def test_a_job_without_a_local_run_is_refused_in_a_line():
    question = Question(Job("mine", batch=64, samples=6e7), MARKET, method="exhaustive", shipped=False)
    with pytest.raises(ScenarioError, match="mine: a search on the twin needs a local run"):
        search_job._work(SearchRequest.of(question, 3, None, 0), _Heard())


def cloud() -> None:
    from lab.explorer import cloud_page

    cloud_page.page()


def opened(**query: str) -> AppTest:
    app = AppTest.from_function(cloud, default_timeout=PATIENCE_S)
    app.query_params.update({"cloud_ask": "Search"} | query)
    return app.run()


def test_it_asks_with_its_bounds_which_stand_in_the_address(monkeypatch):
    asked: list[SearchRequest] = []
    monkeypatch.setattr(cloud_search.running, "start", lambda _owner, request: asked.append(request()))
    app = opened(cloud_trials="5", cloud_cap="0.5")
    assert not app.exception
    assert "press **Search**" in texts(app)
    app.button(key="cloud_search").click().run()
    (request,) = asked
    assert (request.trials, request.cap_usd) == (5, 0.5)


def test_trials_are_shown_as_they_come(monkeypatch):
    class Running:
        def status(self) -> Status:
            return Status(phase="running", label="trial 1 of at most 5", fraction=0.2, rows=(ROW,))

    name = session._JOBS.put(session._KeptJob(Running(), cloud_search._ANSWERS, session.Presence()))  # type: ignore[arg-type]
    app = opened(job=name)
    assert not app.exception
    assert list(app.table[0].value["configuration"]) == ["2 × n1-standard-4"]
    assert app.button(key="cloud_search").disabled
    session._JOBS.drop(name)


def test_a_reload_finds_the_search_again_and_says_if_it_is_of_before():
    rows = [ROW, {**ROW, "trial": 2, "job_usd": 0.5}]
    answer = {"asked": -1, "by": "cost", "job": "mine", "rows": rows, "take": "x", "notes": ["Take: *it*."]}
    answer |= {"deadline_h": inf, "budget_usd": inf}
    name = cloud_search._ANSWERS._shelf.put(answer)
    app = opened(answer=name)
    assert not app.exception
    assert [each.value for each in app.subheader] == ["What the search found", "Trial by trial"]
    assert "Take: \\*it\\*" in texts(app)
    assert "press Search to bring it up to date" in texts(app)
    assert charts(app)


def test_the_best_so_far_keeps_the_deadline_and_the_budget():
    jobs = [(3.0, 0.1), (1.5, 0.6), (1.0, 0.7), (1.2, 0.5), (0.5, 0.9)]
    rows = pd.DataFrame([{**ROW, "job_h": job_h, "job_usd": job_usd} for job_h, job_usd in jobs])
    cheapest = cloud_charts.trials(rows, Objective.COST, "x", 2.0, inf)
    assert cheapest.data["best"].fillna(0).tolist() == [0, 0.6, 0.6, 0.5, 0.5]
    fastest = cloud_charts.trials(rows, Objective.TIME, "x", inf, 0.8)
    assert fastest.data["best"].tolist() == [3.0, 1.5, 1.0, 1.0, 1.0]
