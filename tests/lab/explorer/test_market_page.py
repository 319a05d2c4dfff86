"""The page Market: stored questions with their policies side by side, and the shipped one at a click."""

from __future__ import annotations

import re
from functools import partial

import pytest
from streamlit.util import calc_hash

from lab.ask.scenario import with_overrides
from lab.charts.market import over_all
from lab.charts.palette import shown
from lab.explorer import market_page, questions
from lab.explorer.worker import Request
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from tests.lab.cloud.test_market_scenario import small
from tests.lab.explorer.journey import MARKS, no_traceback, press_run
from tests.lab.explorer.test_pages import charts, texts
from tests.lab.explorer.test_pages import html as markup


@pytest.fixture(scope="module")
def markets(tmp_path_factory):
    """Two seeds under two policies. Not to be changed."""
    store = RunStore(tmp_path_factory.mktemp("markets"))
    run_scenario(small(seeds=[0, 1], policies=["greedy", "on-demand"]), store)
    return store


@pytest.fixture
def open_market(open_stored):
    def page():
        from lab.explorer import market_page

        market_page.page()

    return partial(open_stored, page)


def test_a_question_shows_its_policies_side_by_side_and_stands_in_the_address(open_market, markets):
    app = open_market(markets)
    assert not app.exception
    assert markup(app).count('<th scope="col">') == 2
    assert "Times the optimum" in markup(app)
    assert len(charts(app)) == 3
    first, second = (found.key for found in questions.stored(str(markets.root), "cloud", ()))
    assert app.query_params == {"question": first}
    assert open_market(markets, question=second).selectbox(key="market_question").value == second
    assert "gone-\\*1\\*" in texts(open_market(markets, question="gone-*1*"))


def test_the_chosen_question_is_shown_again_after_another_page(open_app, markets, monkeypatch):
    monkeypatch.setenv("TWINBED_STORE", str(markets.root))
    questions.stored.clear()
    _, second = (found.key for found in questions.stored(str(markets.root), "cloud", ()))
    app = open_app("market", question=second)
    for page in ("runs", "market"):
        app._page_hash = calc_hash(page)
        app.query_params.clear()
        app.run()
    assert app.query_params["question"] == second


def test_the_shipped_scenario_is_asked_with_another_deadline(open_market, tmp_path, monkeypatch):
    asked: list[Request] = []
    monkeypatch.setattr(market_page.running, "start", lambda _owner, request: asked.append(request()))
    app = open_market(RunStore(tmp_path / "none"))
    assert "Press **Run**" in texts(app)
    app.number_input(key="market_deadline").set_value(48.0).run()
    app.multiselect(key="market_policies").set_value(["greedy"]).run()
    app.button(key="run").click().run()
    (request,) = asked
    assert request.scenario["cloud"]["job"]["deadline_hours"] == 48.0
    assert (request.scenario["policies"], request.scenario["seeds"]) == (["greedy"], [0])


def test_the_whole_question_stands_in_the_address(open_market, markets, monkeypatch):
    asked: list[Request] = []
    monkeypatch.setattr(market_page.running, "start", lambda _owner, request: asked.append(request()))
    told = {
        "market_deadline": "48",
        "market_seed": "7",
        "market_hours": "1e400",
        "market_policies": ["Greedy"],
    }
    app = open_market(markets, **told)
    assert not app.exception
    app.button(key="run").click().run()
    (request,) = asked
    assert request.scenario["cloud"]["job"]["deadline_hours"] == 48.0
    assert (request.scenario["policies"], request.scenario["seeds"]) == (["greedy"], [7])
    assert {"question", "market_deadline", "market_seed", "market_policies"} <= set(app.query_params)


def test_a_policy_has_one_name_in_every_chart(markets):
    looks = shown([markets.open(run_id) for run_id in markets.ids()])
    *_, costs = over_all(looks)
    named = costs.chart.to_dict()["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert sorted(named) == ["Greedy", "On-demand"]


def test_the_chart_of_costs_says_of_which_seed_it_is_unless_it_has_all(markets):
    looks = shown([markets.open(run_id) for run_id in markets.ids()])
    assert [*over_all(looks)][-1].title == "Cost"
    assert [*over_all([look for look in looks if look.run.seed == 1])][-1].title == "Cost (seed 1)"


def test_every_different_market_is_drawn_and_says_whose_it_is(tmp_path):
    store = RunStore(tmp_path)
    asked = small(policies=["greedy"], seeds=[0])
    for change in ("cloud.drawn.up_h=2", "cloud.drawn.up_h=9", "cloud.job.deadline_hours=40"):
        run_scenario(with_overrides(asked, [change]), store)
    looks = shown([store.open(run_id) for run_id in store.ids()])
    titles = [figure.title for figure in over_all(looks) if figure.title.startswith("What the zones offer")]
    assert len(titles) == 3
    assert sum("up_h=2" in title for title in titles) == 1
    # A later deadline shows more of the same market.
    later = [with_overrides(asked, [f"cloud.job.deadline_hours={hours}"]) for hours in (36, 40)]
    for scenario in later:
        run_scenario(scenario, other := RunStore(tmp_path / "later"))
    looks = shown([other.open(run_id) for run_id in other.ids()])
    assert [figure.title for figure in over_all(looks)][:2] == [
        "What the zones offer (seed 0)",
        "What the job holds and does (seed 0)",
    ]


def test_a_tooltip_names_its_values_in_words_with_units(markets):
    for figure in over_all(shown([markets.open(run_id) for run_id in markets.ids()])):
        drawn = figure.chart.to_dict()
        for layer in drawn.get("layer", [drawn]):
            for line in layer["encoding"]["tooltip"]:
                assert "_" not in line["title"]
                assert line["type"] != "quantitative" or "format" in line or line["field"] == "available"


class TestWithABrowser:
    """A journey with a real browser."""

    pytestmark = MARKS

    def test_from_one_click_to_courses_and_costs(self, page):
        playwright = pytest.importorskip(
            "playwright.sync_api", reason="no browser tests: playwright is missing"
        )
        expect = playwright.expect
        page.get_by_role("link", name="Market").click()
        expect(page.get_by_text("No run on a market is stored yet")).to_be_visible()
        press_run(page)
        table = page.locator("table.tb-table")
        expect(table.get_by_role("columnheader", name="Uniform-progress")).to_be_visible()
        expect(page.get_by_role("heading", name="What the job holds and does")).to_be_visible()
        expect(page.get_by_test_id("stVegaLiteChart")).to_have_count(3)
        expect(page.get_by_test_id("stVegaLiteChart").last.locator("svg, canvas").first).to_be_visible()
        expect(page).to_have_url(re.compile(r"question=market-"))
        no_traceback(page)
