"""The page Services: what it shows at an address, and what it makes of what is entered."""

import io
import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter

from lab.ask import shipped
from lab.charts import services
from lab.charts.palette import Shown, shown
from lab.containers.input.services.arrivals import PRESETS, ArrivalSpec, generate
from lab.explorer import downloads, html, services_chooser, session
from lab.explorer.job import Job
from lab.explorer.selection import limits
from tests.lab.explorer.test_pages import charts, texts
from tests.lab.explorer.test_pages import html as shown_html
from tests.patience import PATIENCE_S


def test_an_empty_page_says_what_to_do_and_shows_load_and_calls(open_services):
    app = open_services()
    assert not app.exception
    assert not app.error
    assert "press **Run**" in texts(app)
    assert not app.button(key="run").disabled
    assert len(charts(app)) == 1
    assert '"webui" -> "persistence"' in app.get("graphviz_chart")[0].proto.spec


@pytest.mark.slow
def test_every_shipped_application_can_be_chosen_and_says_how_many_containers_it_has(open_services):
    picker = open_services().selectbox(key="services-app")
    assert len(picker.options) == len(shipped.names("application"))
    assert "TeaStore · 7 containers" in picker.options
    assert any("· 68 containers" in option for option in picker.options)


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped.names("application"))
def test_every_shipped_application_is_drawn(open_services, name):
    app = open_services(app=name)
    assert not app.exception
    assert app.get("graphviz_chart")[0].proto.spec.count("->") >= 6


@pytest.mark.slow
def test_an_address_with_stored_runs_shows_their_results(open_services, asked):
    app = open_services(runs=[run.id for run in asked[1]], container="persistence")
    assert not app.exception
    assert not app.error
    assert app.selectbox(key="shown_container").value == "persistence"
    assert shown_html(app).count('tb-card"') == 2
    assert "latency p99" in shown_html(app)
    titles = [each.value for each in app.subheader]
    assert titles == [
        "Latency over time", "Throughput and failures", "All latencies", "Cost", "Limit and use over time",
        "Where the slowest 1 % of requests wait", "Service by service",
        "Slack and throttling, all containers", "All figures",
    ]  # fmt: skip
    assert "The slowest 1 % take" in texts(app)
    assert "Why did the limit change here?" in texts(app)
    assert "throttled in the last period: raised" in shown_html(app)
    assert sum(len(chart.proto.SerializeToString()) for chart in charts(app)) < 1 << 20
    # Kinds of requests are sorted by latency as by a number.
    kinds = app.dataframe[1]
    assert kinds.value["p99"].dtype == float
    assert " ms" in str(kinds.proto.arrow_data.styler.display_values)


@pytest.mark.slow
def test_another_percentile_and_policy_are_shown_and_the_percentile_stands_in_the_address(
    open_services, asked
):
    app = open_services(runs=[run.id for run in asked[1]])
    first = app.dataframe[0].value
    assert "50 % of the requests that came" not in texts(app)
    app.segmented_control(key="shown_percentile").set_value("p50")
    app.segmented_control(key="shown_policy").set_value("Static · factor=0.9").run()
    assert not app.exception
    assert not app.dataframe[0].value.equals(first)
    assert "50 % of the requests that came" in texts(app)
    assert app.query_params["percentile"] == "p50"
    again = open_services(runs=[run.id for run in asked[1]], percentile="p50")
    assert again.segmented_control(key="shown_percentile").value == "p50"


@pytest.mark.slow
def test_results_of_the_choices_on_the_left_are_not_called_outdated(open_services, asked):
    chosen = {
        "app": "teastore", "arrivals": "burst", "duration_s": "12.0",
        "policies": ["escra", "static:factor=0.9"], "runs": [run.id for run in asked[1]],
    }  # fmt: skip
    assert "are of other choices than those on the left" not in texts(open_services(**chosen))
    assert "are of other choices than those on the left" in texts(open_services(**{**chosen, "scale": "2"}))


@pytest.mark.slow
def test_the_choices_go_into_the_address(open_services):
    app = open_services()
    app.selectbox(key="services-app").select("hipster_shop")
    app.selectbox(key="services-arrivals").select("burst")
    app.number_input(key="services-scale").set_value(0.5)
    app.number_input(key="services-seed").set_value(3).run()
    assert app.query_params["app"] == "hipster_shop"
    assert app.query_params["arrivals"] == "burst"
    assert app.query_params["scale"] == "0.5"
    assert app.query_params["seed"] == "3"


def test_an_address_that_nobody_could_mean_still_gives_a_page(open_services):
    app = open_services(app="gone", arrivals="never", scale="-1", duration_s="long", percentile="p101")
    assert not app.exception
    said = texts(app)
    assert all(word in said for word in ("gone", "never", "scale=-1", "duration_s=long", "percentile=p101"))


def test_runs_of_traces_are_sent_to_the_page_runs(open_services, stored, monkeypatch):
    monkeypatch.setenv("TWINBED_STORE", str(stored[0].root))
    app = open_services(runs=[stored[1][0].id])
    assert not app.exception
    assert "The page Runs shows those runs of the address that have no clients." in texts(app)


@pytest.mark.slow
def test_run_makes_the_runs_and_puts_them_into_the_address(open_services, monkeypatch, tmp_path):
    app = open_services(policies=["static", "escra"], duration_s="2")
    monkeypatch.setenv("TWINBED_STORE", str(tmp_path))
    app.button(key="run").click().run()
    assert app.button(key="run").disabled
    job: Job = app.session_state[session._KEPT_JOB][1].job
    assert job.wait(PATIENCE_S).phase == "done", job.status().message
    app.run()
    assert not app.error
    names = [text.rsplit("-", 1)[0] for text in app.query_params["runs"]]
    assert names == ["teastore-static", "teastore-escra"]
    assert "tb-card" in shown_html(app)


@pytest.mark.slow
def test_a_load_that_asks_nothing_is_one_line(open_services, monkeypatch, tmp_path):
    app = open_services(arrivals="alibaba_like", scale="0.01", duration_s="1", policies=["static"], seed="10")
    monkeypatch.setenv("TWINBED_STORE", str(tmp_path))
    app.button(key="run").click().run()
    app.session_state[session._KEPT_JOB][1].job.wait(PATIENCE_S)
    app.run()
    assert len(app.error) == 1
    assert "no request arrives" in app.error[0].value
    assert "\n" not in app.error[0].value
    assert not app.exception


@pytest.mark.slow
def test_the_runs_page_shows_what_clients_saw(asked, monkeypatch):
    from streamlit.testing.v1 import AppTest

    monkeypatch.setenv("TWINBED_STORE", str(asked[0].root))

    def page() -> None:
        from lab.explorer import runs_page

        runs_page.page()

    app = AppTest.from_function(page, default_timeout=PATIENCE_S)
    app.query_params["runs"] = [run.id for run in asked[1]]
    app.run()
    assert not app.exception
    assert "2 of 2 runs" in texts(app)
    assert "Latency over time" in [each.value for each in app.subheader]


def test_what_clients_saw_can_be_taken_away(asked):
    runs = shown(asked[1])
    frames = {each.title: services.over_time(each.run, 300) for each in runs}
    table = pd.read_csv(io.StringIO(downloads.clients_csv(runs, frames)))
    assert len(table) == 2 * 12
    assert list(table.columns[:4]) == ["run", "policy", "at_s", "to_s"]
    assert set(table["policy"]) == {"escra", "static:factor=0.9"}


def test_the_cards_say_latency_answers_and_what_was_reserved(asked):
    text = html.service_cards(shown(asked[1]))
    assert text.count('tb-card"') == 2
    assert text.count("not answered") == 2
    assert "CPU reserved" in text


def test_why_a_limit_changed_is_counted_by_reason_and_run(asked):
    runs = shown(asked[1])
    changes = [
        pd.DataFrame({"reason": ["<b>a</b>", "b"], "times": [1, 5], "raised": [1, 2], "lowered": [0, 3]}),
        pd.DataFrame({"reason": ["b"], "times": [7], "raised": [7], "lowered": [0]}),
    ]
    text = html.why(runs, changes)
    assert text.index(">b<") < text.index("&lt;b&gt;a")
    assert "↑ 2 \N{NO-BREAK SPACE} ↓ 3" in text
    assert "<td>–</td>" in text
    assert "<b>" not in text


def test_titles_cannot_bring_markup_to_the_cards(asked):
    evil = replace(shown(asked[1])[0], title="<script>alert(1)</script>")
    assert isinstance(evil, Shown)
    assert "<script" not in html.service_cards([evil])


def test_a_run_whose_latency_is_a_bound_has_not_the_best_latency(asked):
    good, bad = asked[1]
    late = {**good.manifest["metrics"], "latency_p99_s": 40.0, "failed_share": 0.5}
    bad = replace(bad, manifest={**bad.manifest, "metrics": late, "censored": ["latency_p99_s"]})
    text = html.table(shown([good, bad]))
    line = next(each for each in text.split("<tr") if "Latency p99 (s)" in each)
    first, second = line.split("<td")[1:]
    assert "tb-best" in first
    assert "tb-best" not in second


PREVIEW_BYTES = 8 << 20
"""Far more than a preview takes, and far less than the arrivals of the largest load, some GiB."""


@pytest.mark.parametrize("preset", PRESETS)
def test_the_largest_load_is_previewed_without_its_arrivals(preset):
    tracemalloc.start()
    frame = services_chooser.rates(preset, limits("scale")[1], limits("duration_s")[1], 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < PREVIEW_BYTES
    assert 0 < len(frame) <= 300


@pytest.mark.parametrize("preset", ["fixed", "exponential", "burst"])
@pytest.mark.parametrize("duration_s", [45.0, 1000.5])
def test_the_rates_are_those_of_a_runs_arrivals(preset, duration_s):
    spec = TypeAdapter(ArrivalSpec).validate_python({"kind": preset, "scale": 2.0})
    drawn = generate(spec, duration_s, [1.0], np.random.SeedSequence(3))
    frame = services_chooser.rates(preset, 2.0, duration_s, 0)
    edges = np.append(frame["at_s"], duration_s)
    expected = frame["rps"] * np.diff(edges)
    counts, _ = np.histogram(drawn.at_s, edges)
    # Five standard deviations of a Poisson count.
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected) + 1).all()


def test_wandering_rates_stay_between_their_bounds():
    frame = services_chooser.rates("alibaba_like", 2.0, 600.0, 0)
    assert frame["rps"].between(2 * 56, 2 * 548).all()
    assert frame["rps"].std() > 0
