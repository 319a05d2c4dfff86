"""The page Sweep: sweeps of the store, half done and whole."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from lab.ask.scenario import build
from lab.engine.local import Local
from lab.runs.metric import read
from lab.runs.store import RunStore
from lab.sweep.book import Tuning, course, note_tuning, sweeps
from lab.sweep.plan import SweepPlan
from lab.sweep.points import points
from lab.sweep.sweep import sweep
from tests.lab.cluster.test_cluster_scenario import SMALL
from tests.lab.explorer.test_pages import texts
from tests.patience import PATIENCE_S

VARIED = ["cluster.synthetic.per_hour=6,12", "cluster.servers.v100.count=1,2"]


def plan() -> SweepPlan:
    asked = build(SMALL | {"title": "*Who* waits", "policies": ["fifo", "gavel"]})
    return SweepPlan("small", points(asked, VARIED, None), range(2))


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Four points under two schedulers with two seeds. Not to be changed."""
    store = RunStore(tmp_path_factory.mktemp("swept"))
    sweep(plan(), store, Local(1))
    return store


@pytest.fixture
def open_sweep(monkeypatch):
    def page() -> None:
        from lab.explorer import sweep_page

        sweep_page.page()

    def opened(root: Path, **query: str) -> AppTest:
        monkeypatch.setenv("TWINBED_STORE", str(root))
        app = AppTest.from_function(page, default_timeout=PATIENCE_S)
        for key, value in query.items():
            app.query_params[key] = value
        return app.run()

    return opened


def progress(app: AppTest) -> str:
    return str(app.get("progress")[0].proto.text)


def test_an_empty_store_shows_a_command(open_sweep, tmp_path):
    app = open_sweep(tmp_path)
    assert not app.exception
    assert "No sweep and no tuning is in" in texts(app)


def test_the_chosen_sweep_is_shown_again_after_another_page(open_app, swept, tmp_path, monkeypatch):
    shutil.copytree(swept.root, tmp_path / "runs")
    store = RunStore(tmp_path / "runs")
    sweep(replace(plan(), name="other"), store, Local(1))
    monkeypatch.setenv("TWINBED_STORE", str(store.root))
    app = open_app("sweep")
    first, second = app.selectbox(key="sweep_chosen").options
    app.selectbox(key="sweep_chosen").select(second).run()
    chosen = app.query_params["sweep"]
    for page in ("runs", "sweep"):
        app._page_hash = calc_hash(page)
        app.query_params.clear()
        app.run()
    assert app.query_params["sweep"] == chosen
    assert first != second


def test_the_chosen_figures_of_a_sweep_are_shown_again_after_another_page(open_app, swept, monkeypatch):
    monkeypatch.setenv("TWINBED_STORE", str(swept.root))
    app, widget = open_app("sweep"), f"sweep_figures_{plan().id}"
    assert app.multiselect(key=widget).value != ["cost_usd"]
    app.multiselect(key=widget).set_value(["cost_usd"]).run()
    for page in ("runs", "sweep"):
        app._page_hash = calc_hash(page)
        app.query_params.clear()
        app.run()
    assert app.multiselect(key=widget).value == ["cost_usd"]
    app.multiselect(key=widget).set_value(["jct_mean_s"]).run()
    assert app.multiselect(key=widget).value == ["jct_mean_s"]


def test_a_sweep_has_a_table_lines_heat_maps_and_a_front(open_sweep, swept):
    app = open_sweep(swept.root)
    assert not app.exception
    assert "16 of 16 runs" in progress(app)
    headings = [line.value for line in app.subheader]
    assert "JCT mean over cluster.synthetic.per\\_hour" in headings or any(
        "over" in text for text in headings
    )
    assert any(text.startswith("JCT mean: FIFO") for text in headings)
    assert headings[-1] == "Trade-off between the two figures"
    assert len(app.dataframe[0].value) == 8
    app.multiselect(key=f"sweep_figures_{plan().id}").set_value(["cost_usd"]).run()
    assert not app.exception
    assert "Cost (USD)" in app.dataframe[0].value


def test_a_sweep_that_goes_on_shows_what_it_has(open_sweep, tmp_path):
    store = RunStore(tmp_path / "runs")

    def stop(done: int, _failed: int, _total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(plan(), store, Local(1), told=stop)
    (noted,) = sweeps(store.root)
    now = course(store.root, noted, ["jct_mean_s"])
    assert not now.whole
    assert len(now.frame) == 4
    app = open_sweep(store.root, sweep="gone-*1*")
    assert not app.exception
    assert "4 of 16 runs" in progress(app)
    assert "gone-\\*1\\*" in texts(app)
    sweep(plan(), store, Local(1), resume=True)
    app.run()
    assert "Ended" in progress(app)
    sweep(replace(plan(), seeds=[0]), store, Local(1), resume=True)
    assert "Ended. 16 of 16 runs" in progress(app.run())


def test_a_mean_over_lower_bounds_is_told_as_one(open_sweep, swept, tmp_path, monkeypatch):
    shutil.copytree(swept.root, tmp_path / "runs")
    (file,) = (tmp_path / "runs").glob(".sweeps/*/metrics.parquet")
    pd.read_parquet(file).assign(jct_mean_s_censored=True).to_parquet(file)
    metrics = tuple(
        replace(metric, may_be_bound=metric.key == "jct_mean_s") for metric in read("lab.cluster")
    )
    monkeypatch.setattr("lab.cluster.kind.Cluster.metrics", lambda _: metrics)
    app = open_sweep(tmp_path / "runs")
    app.multiselect(key=f"sweep_figures_{plan().id}").set_value(["jct_mean_s", "cost_usd"]).run()
    assert not app.exception
    table = app.dataframe[0].value
    assert table.filter(like=": a lower bound").sum().to_list() == [8]
    assert table.filter(like="± JCT mean").isna().all(axis=None)


def test_a_tuning_shows_its_best_its_front_and_how_sure_it_is(open_sweep, tmp_path):
    store = RunStore(tmp_path / "runs")
    going = Tuning(
        "ab12", "*Who* waits", "minimise cost, jct <= 5", 8, 16, False,
        ["Trial", "Cost"], [["3", "1.5 ± 0.1"]], ["Kept with its whole *interval*."],
        ["Cost (USD)", "JCT (s)"], [(1.5, 4.0, "a=1", True)],
    )  # fmt: skip
    note_tuning(going, store)
    app = open_sweep(store.root)
    assert not app.exception
    assert "Running, or stopped: the same command continues it. 8 of 16 trials" in progress(app)
    assert app.dataframe[0].value.to_numpy().tolist() == [["3", "1.5 ± 0.1"]]
    assert "whole \\*interval\\*" in texts(app)
    assert app.get("vega_lite_chart")
    ended = replace(
        going, done=10, ended=True, axes=[], points=[],
        keys={"escra.gamma": True, "app": False}, heading="Cost (USD)",
        tried=[([0.1, "web"], 1.5, 0.1, "best"), ([0.2, "shop"], 2.0, None, "beyond a limit")],
    )  # fmt: skip
    note_tuning(ended, store)
    app.run()
    assert "Ended. 10 of 16 trials" in progress(app)
    assert app.get("progress")[0].proto.value == 100
    assert "Best" in texts(app).splitlines()
    assert len(app.get("vega_lite_chart")) == 2
    assert "Trials over escra.gamma" in texts(app)
