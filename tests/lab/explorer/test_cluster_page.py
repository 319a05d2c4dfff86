"""The page Cluster: stored questions side by side, and the shipped one at a click."""

from __future__ import annotations

import copy
import re
from functools import partial

import pytest

from lab.ask.scenario import build
from lab.charts.palette import shown
from lab.explorer import cluster_page, html, questions
from lab.explorer.worker import Request
from lab.runs.metric import read
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from tests.lab.cluster.test_cluster_scenario import SMALL
from tests.lab.explorer.test_pages import charts, texts
from tests.lab.explorer.test_pages import html as markup


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """Twelve jobs under three schedulers, with and without a second server. Not to be changed."""
    store = RunStore(tmp_path_factory.mktemp("clusters"))
    runs = []
    for count in (1, 2):
        raw = copy.deepcopy(SMALL)
        raw["cluster"]["servers"]["v100"]["count"] = count
        runs += run_scenario(build(raw), store)
    return store, runs


@pytest.fixture
def open_cluster(open_stored):
    def page():
        from lab.explorer import cluster_page

        cluster_page.page()

    return partial(open_stored, page)


def test_an_empty_store_says_what_to_press(open_cluster, tmp_path):
    app = open_cluster(RunStore(tmp_path / "none"))
    assert not app.exception
    assert "Press **Run**" in texts(app)
    assert not app.button(key="run").disabled


def test_a_question_shows_its_policies_side_by_side(open_cluster, clusters):
    app = open_cluster(clusters[0])
    assert not app.exception
    assert re.search(r"JCT mean \((min|h)\)", markup(app))
    assert markup(app).count('<th scope="col">') == 3
    assert [line.value for line in app.subheader][:4] == [
        "Side by side",
        "The queue over time",
        "How long jobs take",
        "Fairness",
    ]
    assert len(charts(app)) == 4
    app.segmented_control(key="cluster_measured").set_value("busy_gpus").run()
    app.selectbox(key="cluster_gantt").select("Gavel").run()
    assert not app.exception
    assert "Who ran where: Gavel" in texts(app)


def test_two_questions_stand_beside_each_other_and_in_the_address(open_cluster, clusters):
    app = open_cluster(clusters[0])
    first = app.selectbox(key="cluster_question").value
    other = next(
        found.key for found in questions.stored(str(clusters[0].root), "cluster", ()) if found.key != first
    )
    app.selectbox(key="cluster_beside").set_value(other).run()
    assert not app.exception
    assert markup(app).count('<th scope="col">') == 6
    assert "count=2" in markup(app)
    assert app.query_params == {"question": first, "beside": other}
    again = open_cluster(clusters[0], question=other, beside=first)
    assert again.selectbox(key="cluster_question").value == other
    assert again.selectbox(key="cluster_beside").value == first
    again.pills[0].set_value(["gavel"]).run()
    assert markup(again).count('<th scope="col">') == 2


def test_a_question_that_is_not_here_is_named_literally(open_cluster, clusters):
    app = open_cluster(clusters[0], question="gone-*1*")
    assert not app.exception
    assert "gone-\\*1\\*" in texts(app)
    assert len(charts(app)) == 4


def test_the_shipped_scenario_is_asked_with_other_servers(open_cluster, clusters, monkeypatch):
    asked: list[Request] = []
    monkeypatch.setattr(cluster_page.running, "start", lambda _owner, request: asked.append(request()))
    app = open_cluster(clusters[0])
    app.number_input(key="cluster_servers_v100").set_value(4).run()
    app.multiselect(key="cluster_policies").set_value(["fifo", "gavel"]).run()
    app.button(key="run").click().run()
    (request,) = asked
    assert request.store == str(clusters[0].root)
    assert request.scenario["cluster"]["servers"]["v100"]["count"] == 4
    assert request.scenario["policies"] == ["fifo", "gavel"]


def test_the_whole_question_stands_in_the_address(open_cluster, clusters, monkeypatch):
    asked: list[Request] = []
    monkeypatch.setattr(cluster_page.running, "start", lambda _owner, request: asked.append(request()))
    app = open_cluster(clusters[0], cluster_servers_v100="4", cluster_policies=["FIFO", "Gavel"])
    assert not app.exception
    app.button(key="run").click().run()
    (request,) = asked
    assert request.scenario["cluster"]["servers"]["v100"]["count"] == 4
    assert request.scenario["policies"] == ["fifo", "gavel"]
    assert {"question", "cluster_servers_v100", "cluster_policies"} <= set(app.query_params)


def test_schedulers_have_colours_of_their_own(clusters):
    looks = shown(clusters[1])
    assert len({look.color for look in looks}) == len(looks) == 6
    table = html.table(looks, read("lab.cluster"))
    assert "Makespan (h)" in table
    assert "Cost" not in table  # These servers have no price.
