"""The page Validation: what it says with nothing to show, and what it shows of validated runs."""

import pytest
from streamlit.testing.v1 import AppTest

from lab.runs.store import RunStore


@pytest.fixture
def open_page(monkeypatch):
    def page() -> None:
        from lab.explorer import validation_page

        validation_page.page()

    def opened(store: RunStore, **query: str) -> AppTest:
        monkeypatch.setenv("TWINBED_STORE", str(store.root))
        app = AppTest.from_function(page, default_timeout=60)
        for key, value in query.items():
            app.query_params[key] = value
        return app.run()

    return opened


def shown_html(app: AppTest) -> str:
    return "\n".join(element.proto.body for element in app.get("html"))


def charts(app: AppTest) -> list[object]:
    return app.get("vega_lite_chart") + app.get("arrow_vega_lite_chart")


def test_with_nothing_validated_it_says_what_to_run(open_page, tmp_path):
    app = open_page(RunStore(tmp_path))
    assert not app.exception
    assert "run on both backends yet" in app.markdown[0].value
    assert "twinbed validate" in app.code[0].value
    assert not charts(app)


def test_runs_of_the_twin_alone_are_not_validated(open_page, stored):
    app = open_page(stored[0])
    assert not app.exception
    assert "twinbed validate" in app.code[0].value


@pytest.mark.slow
def test_validated_runs_are_laid_over_each_other_with_their_errors(open_page, validated):
    app = open_page(validated)
    assert not app.exception
    assert [each.value for each in app.subheader] == [
        "Error of the twin",
        "Use and limit over time",
        "Latency over time",
        "All cells of this scenario",
    ]
    # Use and limit, and a chart per percentile of the latency.
    assert len(charts(app)) == 5
    assert shown_html(app).count("inside limit") >= 12
    assert "Spread of the testbed" in shown_html(app)
    assert "median of 3 runs" in "\n".join(each.value for each in app.caption)


@pytest.mark.slow
def test_another_policy_container_repeat_and_quantity_can_be_looked_at(open_page, validated):
    app = open_page(validated)
    app.segmented_control(key="validated_policy").set_value("static:factor=1.5").run()
    app.selectbox(key="validated_container").select("webui").run()
    app.selectbox(key="validated_repeat").select(2).run()
    app.segmented_control(key="validated_quantity").set_value("Memory").run()
    assert not app.exception
    assert len(charts(app)) == 5


@pytest.mark.slow
def test_the_address_says_which_cell_is_shown(open_page, validated):
    app = open_page(validated, policy="static:factor=1.5")
    assert app.segmented_control(key="validated_policy").value == "static:factor=1.5"
    assert app.query_params["scenario"] == ["tea"] or app.query_params["scenario"] == "tea"
