"""The page Validation: what it says with nothing to show, and what it shows of validated runs."""

from functools import partial

import pandas as pd
import pytest

from lab.explorer.shipped_validation import comparisons, of_page
from lab.runs.store import RunStore
from tests.lab.explorer.journey import ROOT
from tests.lab.explorer.test_pages import charts
from tests.lab.explorer.test_pages import html as shown_html


@pytest.fixture
def open_page(open_stored):
    def page():
        from lab.explorer import validation_page

        validation_page.page()

    return partial(open_stored, page)


def test_with_nothing_validated_it_says_what_to_run(open_page, tmp_path):
    app = open_page(RunStore(tmp_path))
    assert not app.exception
    assert "run on both backends yet" in app.markdown[2].value
    assert "twinbed validate" in app.code[0].value


def test_the_comparisons_that_ship_are_shown_at_once(open_page, tmp_path):
    app = open_page(RunStore(tmp_path))
    shipped = comparisons()
    agree = int(shipped["verdict"].isin(["inside limit", "inside spread"]).sum())
    assert f"{agree} of {len(shipped)} comparisons agree" in app.markdown[1].value
    assert len(charts(app)) == 7
    assert len(app.dataframe[0].value) == len(shipped)


def test_the_comparisons_that_ship_are_those_of_the_results_page():
    page = (ROOT / "docs" / "results" / "fidelity-containers.md").read_text(encoding="utf-8")
    pd.testing.assert_frame_equal(of_page(page), comparisons(), check_dtype=False)


def test_runs_of_the_twin_alone_are_not_validated(open_page, stored):
    app = open_page(stored[0])
    assert not app.exception
    assert "twinbed validate" in app.code[0].value


@pytest.mark.slow
def test_a_policy_of_the_address_that_was_not_validated_is_said(open_page, validated):
    app = open_page(validated, policy="magic")
    said = "The address says policy=magic, which this page does not take."
    assert [warning.value for warning in app.warning if "address" in warning.value] == [said]


@pytest.mark.slow
def test_validated_runs_are_laid_over_each_other_with_their_errors(open_page, validated):
    app = open_page(validated)
    assert not app.exception
    assert [each.value for each in app.subheader] == [
        "Error of the twin",
        "Use and limit over time",
        "Latency over time",
        "All cells of this scenario",
        "What ships with this version",
    ]
    # Use and limit, a chart per percentile of the latency, and seven that ship.
    assert len(charts(app)) == 5 + 7
    assert shown_html(app).count("inside limit") >= 12
    assert "Spread of the testbed" in shown_html(app)
    assert "median of 3 runs" in "\n".join(each.value for each in app.caption)
    # Another policy, container, repeat and quantity can be looked at.
    app.segmented_control(key="validated_policy").set_value("static:factor=1.5")
    app.selectbox(key="validated_container").select("webui")
    app.selectbox(key="validated_repeat").select(2)
    app.segmented_control(key="validated_quantity").set_value("Memory").run()
    assert not app.exception
    assert len(charts(app)) == 5 + 7


@pytest.mark.slow
def test_the_address_says_which_cell_is_shown(open_page, validated):
    app = open_page(validated, policy="static:factor=1.5")
    assert app.segmented_control(key="validated_policy").value == "static:factor=1.5"
    assert app.query_params["scenario"] == ["tea"] or app.query_params["scenario"] == "tea"
