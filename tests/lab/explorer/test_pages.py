"""The pages: what they show at an address, and what they make of what is entered."""

import shutil

import pyarrow as pa
import pytest
import streamlit as st
from streamlit.util import calc_hash

from lab.ask.scenario import build
from lab.charts.report import all_charts
from lab.explorer import session
from lab.explorer.job import Job
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from tests.lab.sample_traces import whatif
from tests.patience import PATIENCE_S
from twinbed import StoreError

GOOD = "container,time_s,cpu_cores,memory_bytes\n" + "".join(
    f"web,{second},0.5,1000000\n" for second in range(20)
)


def texts(app) -> str:
    parts = [app.caption, app.markdown, app.info, app.warning, app.error, app.title, app.subheader]
    return "\n".join(str(element.value) for kind in parts for element in kind)


def html(app) -> str:
    return "\n".join(element.proto.body for element in app.get("html"))


def charts(app) -> list[object]:
    return app.get("vega_lite_chart") + app.get("arrow_vega_lite_chart")


def test_an_empty_page_says_in_one_sentence_what_to_do(open_app):
    app = open_app()
    assert not app.exception
    assert not app.error
    assert "press **Run**" in texts(app)
    assert app.selectbox(key="recording").value == "sample"
    assert app.multiselect(key="policies").value == ["escra", "autopilot", "vpa", "static"]
    assert not app.button(key="run").disabled


@pytest.mark.parametrize(
    ("at", "query", "said"),
    [
        ("fabric", {"fabric_hosts": "9999"}, "fabric_hosts=9999, which this page does not take: 4 is used"),
        (
            "fabric",
            {"fabric_silent": "maybe"},
            "fabric_silent=maybe, which this page does not take: True is used",
        ),
        (
            "fabric",
            {"fabric_ask": "[x](y)"},
            "fabric_ask=\\[x\\]\\(y\\), which this page does not take: One fault of a link is used",
        ),
        ("fabric", {"fabric_scheme": "magic"}, "fabric_scheme=magic, which this page does not take: "),
        ("market", {"market_policies": ["x", "y"]}, "market_policies=x, y, which this page does not take: "),
        (
            "cloud",
            {"cloud_region": "mars"},
            "cloud_region=mars, which this page does not take: us-central1 is used",
        ),
    ],
)
def test_a_value_of_the_address_that_its_field_does_not_take_is_said(open_app, at, query, said):
    shown = [warning.value for warning in open_app(at, **query).warning]
    assert len(shown) == 1
    assert said in shown[0]


@pytest.mark.parametrize(
    ("at", "query"),
    [
        ("fabric", {"fabric_hosts": "6", "fabric_silent": "False", "fabric_ask": "One fault of a link"}),
        (
            "fabric",
            {"fabric_hosts": "6.0", "fabric_silent": "true", "fabric_ask": "Fleet", "fabric_gpus": "64"},
        ),
        ("fabric", {"fabric_ask": "Fleet", "fabric_gpus": "1,024", "fabric_fleet_schemes": ["Bond"]}),
        ("cloud", {"cloud_region": "us-central1", "cloud_budget": "", "cloud_deadline": "6h"}),
    ],
)
def test_a_value_of_the_address_that_its_field_takes_needs_no_word(open_app, at, query):
    assert [warning.value for warning in open_app(at, **query).warning] == []


@pytest.mark.slow
def test_a_container_of_the_address_that_the_runs_lack_is_said(open_app, stored):
    app = open_app(runs=[run.id for run in stored[1]], container="c99")
    said = "The address says container=c99, which this page does not take."
    assert [warning.value for warning in app.warning] == [said]
    assert not app.selectbox(key="shown_container").set_value("c2").run().warning


@pytest.mark.slow
def test_an_address_with_stored_runs_shows_their_results_and_takes_another_container(open_app, stored):
    app = open_app(runs=[run.id for run in stored[1]], container="c2")
    assert not app.warning
    assert not app.exception
    assert not app.error
    assert app.selectbox(key="shown_container").value == "c2"
    assert "On this page: [Limit and use over time](#limit-and-use-over-time) · [Slack" in texts(app)
    assert "CPU slack p50 (cores)" in html(app)
    assert html(app).count('tb-card"') == 4
    assert len(charts(app)) >= 7
    assert "MiB unused" not in html(app)
    app.selectbox(key="shown_container").select("c1")
    app.segmented_control(key="shown_quantity").set_value("Memory").run()
    assert not app.exception
    assert app.query_params["container"] == "c1"
    assert "MiB unused" in html(app)


def test_a_chart_of_a_container_begins_with_the_first_row_of_its_series(open_app, stored):
    app = open_app(runs=[stored[1][0].id])
    rows = charts(app)[0].proto.datasets[0].data.data
    assert pa.ipc.open_stream(rows).read_pandas()["at_s"].min() == pytest.approx(0.0, abs=1e-9)


def test_charts_of_a_coarse_series_say_that_they_are_of_means(
    open_app, stored, trace_path, monkeypatch, tmp_path
):
    store = RunStore(tmp_path)
    (run,) = whatif(trace_path, ["escra"], store=store, overrides=["series_interval_s=2"])
    monkeypatch.setenv("TWINBED_STORE", str(tmp_path))
    said = texts(open_app(runs=[run.id]))
    assert "The CPU limit is a mean over 2 s here" in said
    assert "Slack is a mean over 2 s here" in said
    (about,) = [figure.caption for figure in all_charts([run]) if "slack" in figure.title]
    assert "Slack is a mean over 2 s here" in about
    monkeypatch.setenv("TWINBED_STORE", str(stored[0].root))
    assert "is a mean over" not in texts(open_app(runs=[stored[1][0].id]))


@pytest.mark.slow
def test_runs_that_are_not_here_are_announced_and_the_rest_is_shown(open_app, stored):
    app = open_app(runs=[stored[1][0].id, "sample-escra-0000000000"])
    assert "1 of the runs in the address" in texts(app)
    assert html(app).count('tb-card"') == 1


def test_an_address_that_nobody_could_mean_still_gives_a_page(open_app):
    app = open_app(budget="lots", policies=["escrow", "vpa"], recording="gone", seed="-3")
    assert not app.exception
    said = texts(app)
    assert all(word in said for word in ("escrow", "budget=lots", "seed=-3", "gone"))
    assert app.multiselect(key="policies").value == ["vpa"]


def test_an_address_that_names_a_file_of_code_does_not_run_it(open_app, tmp_path):
    (tmp_path / "mine.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")
    app = open_app(policies=[f"{tmp_path}/mine.py:Mine(alpha=0.3)", "vpa"])
    assert not app.exception
    assert "your own code runs from the command line" in texts(app)
    assert app.multiselect(key="policies").value == ["vpa"]
    assert not (tmp_path / "ran").exists()


def test_the_choices_go_into_the_address(open_app):
    app = open_app()
    app.multiselect(key="policies").set_value(["escra", "static"])
    app.number_input(key="budget").set_value(2.0)
    app.number_input(key="seed").set_value(7).run()
    assert app.query_params["policies"] == ["escra", "static"]
    assert app.query_params["budget"] == "2.0"
    assert app.query_params["seed"] == "7"


def test_the_address_fills_the_fields(open_app):
    app = open_app(policies=["static:factor=2", "escra"], budget="3.0", seed="4", cpu_price="0.5")
    assert app.number_input(key="parameter-0-static-factor").value == 2.0
    assert app.number_input(key="budget").value == 3.0
    assert app.number_input(key="seed").value == 4
    assert app.number_input(key="cpu_price").value == 0.5


def test_a_policys_setting_becomes_part_of_its_text(open_app):
    app = open_app(policies=["static", "escra"])
    app.number_input(key="parameter-0-static-factor").set_value(1.25).run()
    assert app.query_params["policies"] == ["static:factor=1.25", "escra"]
    app.number_input(key="parameter-0-static-factor").set_value(1.5).run()
    assert app.query_params["policies"] == ["static", "escra"]


def test_every_field_says_unit_default_and_reason(open_app):
    field = open_app(policies=["static"]).number_input(key="parameter-0-static-factor")
    assert "times the profiled peak" in field.label
    assert field.help.startswith("Default 1.5: ")
    assert "0.01 to 100" in field.help


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["escrow", "static:factor=0", "static:facter=1", "static:factor"])
def test_a_policy_that_cannot_be_is_one_line_and_nothing_can_be_run(open_app, typed):
    app = open_app()
    app.multiselect(key="policies").set_value([typed]).run()
    assert len(app.error) == 1
    assert "\n" not in app.error[0].value
    assert app.button(key="run").disabled
    assert not app.exception


def test_the_same_policy_twice_cannot_be_run(open_app):
    app = open_app(policies=["static", "static:factor=2"])
    app.number_input(key="parameter-1-static-factor").set_value(1.5).run()
    assert "the same" in app.error[0].value
    assert app.button(key="run").disabled


def test_no_policy_cannot_be_run(open_app):
    app = open_app()
    app.multiselect(key="policies").set_value([]).run()
    assert app.button(key="run").disabled


@pytest.mark.slow
def test_results_of_other_choices_are_said_to_be_so(open_app, stored):
    app = open_app(recording="sample", policies=["escra"], runs=[stored[1][0].id])
    app.number_input(key="seed").set_value(3).run()
    assert "are of other choices" in texts(app)


def upload(app, name: str, content: bytes):
    app.selectbox(key="recording").select("upload").run()
    return app.file_uploader(key="uploaded").set_value((name, content, "text/csv")).run()


def test_a_good_upload_can_be_run(open_app):
    app = upload(open_app(), "mine.csv", GOOD.encode())
    assert not app.error
    assert not app.button(key="run").disabled
    assert "1 container, 20 s" in texts(app)


def test_a_bad_upload_is_one_line_that_names_file_and_row(open_app):
    app = upload(open_app(), "mine.csv", GOOD.replace("web,7,0.5", "web,7,-0.5").encode())
    assert len(app.error) == 1
    assert app.error[0].value.startswith("mine.csv: ")
    assert "\n" not in app.error[0].value
    assert app.button(key="run").disabled
    assert not app.exception


@pytest.mark.slow
def test_run_makes_the_runs_and_puts_them_into_the_address(open_app, monkeypatch, tmp_path):
    app = open_app()
    monkeypatch.setenv("TWINBED_STORE", str(tmp_path))
    upload(app, "mine.csv", GOOD.encode())
    app.multiselect(key="policies").set_value(["static", "escra"]).run()
    app.button(key="run").click().run()
    assert app.button(key="run").disabled
    job: Job = app.session_state[session._KEPT_JOB][1].job
    assert job.wait(PATIENCE_S).phase == "done"
    app.run()
    assert not app.error
    assert [text.rsplit("-", 1)[0] for text in app.query_params["runs"]] == ["mine-static", "mine-escra"]
    assert "tb-card" in html(app)


@pytest.fixture
def open_runs(open_app, monkeypatch):
    def opened():
        from streamlit.testing.v1 import AppTest

        def page():
            from lab.explorer import runs_page

            runs_page.page()

        return AppTest.from_function(page, default_timeout=PATIENCE_S).run()

    return opened


def test_the_runs_page_lists_what_is_stored(open_runs):
    app = open_runs()
    assert not app.exception
    assert "4 of 4 runs" in texts(app)
    assert list(app.dataframe[0].value["policy"]) != []


def test_the_runs_page_names_the_currency_of_costs(open_runs, monkeypatch):
    (table,) = open_runs().dataframe
    assert '"Cost (USD)"' in table.proto.columns
    assert "currency" not in table.value
    stored = RunStore.list
    currencies = ["EUR", "USD", "USD", "USD"]
    monkeypatch.setattr(RunStore, "list", lambda store: stored(store).assign(currency=currencies))
    (table,) = open_runs().dataframe
    assert '"Cost (EUR/USD)"' in table.proto.columns
    assert sorted(table.value["currency"]) == currencies


def test_results_of_an_address_with_runs_alone_are_not_said_to_be_of_changed_choices(open_app, stored):
    said = texts(open_app(runs=[run.id for run in stored[1]][:1]))
    assert "These results are of other choices than those on the left" in said
    assert "changed" not in said


def test_runs_of_the_address_that_are_gone_are_said(open_app):
    said = [warning.value for warning in open_app("runs", runs=["gone"]).warning]
    assert said == ["The address names 1 run that this store does not have."]


def test_the_runs_can_be_filtered_by_text_and_policy(open_runs):
    app = open_runs()
    app.text_input(key="runs_text").set_value("-ESCRA-").run()
    assert "1 of 4 runs" in texts(app)
    app.text_input(key="runs_text").set_value("").run()
    app.multiselect(key="runs_policies").set_value(["vpa", "static"]).run()
    assert "2 of 4 runs" in texts(app)


def test_runs_of_one_kind_have_its_figures(open_runs, stored, monkeypatch, tmp_path):
    shutil.copytree(stored[0].root, tmp_path / "store")
    fleet = {"fleet": {"gpus": 64, "days": 2.0}}
    asked = build({"name": "fleet", "fabric": fleet, "policies": ["thorn"], "seeds": [0]})
    run_scenario(asked, RunStore(tmp_path / "store"))
    monkeypatch.setenv("TWINBED_STORE", str(tmp_path / "store"))
    app = open_runs()
    assert "Choose one kind to see its figures" in texts(app)
    assert set(app.dataframe[0].value["kind"]) == {"Containers", "Fabric"}
    assert "mean_reserved_cores" not in app.dataframe[0].value
    app.multiselect(key="runs_kinds").set_value(["fabric"]).run()
    assert not app.exception
    assert "1 of 5 runs" in texts(app)
    assert "effective_share" in app.dataframe[0].value
    assert app.multiselect(key="runs_policies").options == ["Thorn"]


def test_ticked_runs_stay_ticked_under_another_filter_and_behind_another_page(open_app, stored):
    escra = next(run.id for run in stored[1] if "-escra-" in run.id)
    app = open_app("runs", runs=[escra])
    app.text_input(key="runs_text").set_value("-static-").run()
    assert app.query_params["runs"] == escra
    assert "1 of 4 runs" in texts(app)
    assert "Not listed: 1 ticked run." in texts(app)
    for page in ("sweep", "runs"):
        app._page_hash = calc_hash(page)
        app.query_params.clear()
        app.run()
    assert app.query_params["runs"] == escra


def test_an_empty_store_says_how_to_fill_it(open_runs, monkeypatch, tmp_path):
    monkeypatch.setenv("TWINBED_STORE", str(tmp_path / "none"))
    app = open_runs()
    assert not app.exception
    assert "Nothing is stored yet" in texts(app)


def test_a_damaged_run_is_named_and_does_not_hide_the_others(open_runs, stored, monkeypatch, tmp_path):
    shutil.copytree(stored[0].root, tmp_path / "store")
    (tmp_path / "store" / stored[1][0].id / "manifest.json").write_text("{")
    monkeypatch.setenv("TWINBED_STORE", str(tmp_path / "store"))
    app = open_runs()
    assert stored[1][0].id in app.warning[0].value
    assert "3 of 3 runs" in texts(app)


def test_a_table_that_cannot_be_read_is_said_in_one_line_and_is_no_bug(open_app, stored, monkeypatch):
    run = stored[1][0]
    st.cache_data.clear()  # Another test may have read the table.
    monkeypatch.setattr("lab.charts.series.query", refuse)
    app = open_app("runs", runs=[run.id])
    assert {error.value for error in app.error} == {"its periods cannot be read"}
    assert not app.exception


def refuse(*_: object, **__: object) -> None:
    raise StoreError("its periods cannot be read")
