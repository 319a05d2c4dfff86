"""The page Cloud: from a job to a ranking with its reasons, and one line for whatever cannot be."""

from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from control.jobs import LocalRun
from lab.cloud.input import local_run_file
from lab.cloud.input.price_list import in_use
from lab.cloud.input.store import Measurements, Run
from lab.cloud.run import recommending
from tests.lab.cloud.run.test_ladder import HEAD
from tests.lab.explorer.test_pages import charts
from tests.patience import PATIENCE_S

TRIALS = ((1, 9000.0), (2, 5200.0), (4, 3400.0))
TWICE = (("m1", "a", "NVIDIA T4"), ("m1", "b", "NVIDIA L4"), ("b-only", "b", "NVIDIA L4"))
"""Name, provider and GPU of types in one region."""


@pytest.fixture
def database(tmp_path):
    """Trials of two jobs: CherryPick, which answers at once, needs some."""
    found = Measurements(tmp_path / "m.duckdb")
    found.add(
        Run(job, "n1-standard-8", count, time_s, 0.379998 * count, 8, 30)
        for job in ("audio_cnn", "mine")
        for count, time_s in TRIALS
    )
    return found


@pytest.fixture
def open_cloud(monkeypatch, database):
    """Opens the page, which answers in this process; test_answering.py has the child that does it."""
    monkeypatch.setenv("TWINBED_MEASUREMENTS", str(database.path))

    def answer(question, most, _present):
        return recommending.answer(question, in_use(), database, most=most)

    monkeypatch.setattr("lab.explorer.answering.recommended", answer)

    def page() -> None:
        from lab.explorer import cloud_page

        cloud_page.page()

    def opened(method: str = "cherrypick") -> AppTest:
        app = AppTest.from_function(page, default_timeout=PATIENCE_S).run()
        return app.selectbox(key="cloud_method").select(method).run()

    return opened


def recommend(app: AppTest) -> AppTest:
    return app.button(key="cloud_recommend").click().run()


def said(app: AppTest) -> str:
    text = "\n".join(str(each.value) for kind in (app.markdown, app.caption, app.info) for each in kind)
    return text.replace("\\", "")


def test_nothing_is_answered_before_it_is_asked_for(open_cloud):
    app = open_cloud()
    assert not app.exception
    assert "press **Recommend**" in said(app)
    assert not app.table


def test_a_cloud_and_a_gpu_leave_only_their_regions_and_types(open_cloud):
    app = open_cloud().selectbox(key="cloud_provider").select("aws").run()
    assert not app.exception
    assert "us-east-1" in (regions := app.selectbox(key="cloud_region_aws").options)
    assert "us-central1" not in regions
    app.selectbox(key="cloud_gpu_model_aws").select("NVIDIA T4").run()
    region = app.selectbox(key="cloud_region_aws_NVIDIA-T4").select("us-east-1").run()
    types = region.multiselect(key="cloud_types_us-east-1_aws_NVIDIA-T4").options
    assert types
    assert all(name.startswith("g4dn.") for name in types)


@pytest.mark.parametrize("column", ["provider", "gpu_model"])
def test_types_of_one_name_are_told_apart_by_their_providers(open_cloud, monkeypatch, tmp_path, column):
    plain = "here,on-demand,1,USD,2024-01-01,4,16,1"
    rows = [f"{name},{own},{plain},{gpu},1e9,x,1,0,here,yes" for name, own, gpu in TWICE]
    (tmp_path / "prices.csv").write_text("\n".join((HEAD, *rows)))
    monkeypatch.setattr("lab.explorer.cloud_page.in_use", lambda: in_use(tmp_path / "prices.csv"))
    value = {"provider": "b", "gpu_model": "NVIDIA L4"}[column]
    app = open_cloud().selectbox(key=f"cloud_{column}").select(value).run()
    assert not app.exception
    suffix = "_b" if column == "provider" else "_NVIDIA-L4"
    assert app.multiselect(key=f"cloud_types_here{suffix}").options == ["b-only", "b/m1"]


@pytest.mark.slow
def test_a_shipped_job_gets_a_ranking_with_its_reasons_until_prices_or_choices_move(open_cloud):
    app = recommend(open_cloud())
    assert not app.exception
    assert not app.error
    assert [each.value for each in app.subheader] == [
        "Why this one",
        "Cost and time of every candidate",
        "Ranking",
        "What if the price moves",
    ]
    table = app.table[0].value
    assert len(table) == 7 * 8
    outside = table["reason"].str.contains("outside what was measured")
    tried = table["configuration"].isin([f"{workers} × n1-standard-8" for workers in (1, 2, 3, 4)])
    assert (outside == ~tried).all()
    assert list(table["it is"]).count("recommended") == 1
    assert "has no local run" not in said(app)
    assert "Next in the ranking" in said(app)
    assert charts(app)

    # Were its type five times as dear, another would be the best; and another question has no answer yet.
    best = table["configuration"].iloc[0].split(" × ")[1]
    app.selectbox(key="cloud_moved").select(best)
    app.text_input(key="cloud_deadline").set_value("2h")
    app.select_slider(key="cloud_factor").set_value(5.0).run()
    assert not app.exception
    assert best not in next(line for line in said(app).splitlines() if "$/h each (" in line)
    assert len(charts(app)) == 2
    assert "have changed since this answer" in said(app)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "deadline", "line"),
    [
        ("cost-opt", "", "parameter server"),
        ("cherrypick", "soon", "deadline soon: expected a number and a unit"),
    ],
)
def test_what_cannot_be_answered_is_one_line(open_cloud, method, deadline, line):
    app = open_cloud(method)
    app.text_input(key="cloud_deadline").set_value(deadline).run()
    if not app.button(key="cloud_recommend").disabled:
        recommend(app)
    assert not app.exception
    assert len(app.error) == 1
    assert line in app.error[0].value
    assert "\n" not in app.error[0].value


@pytest.mark.slow
def test_a_rule_without_times_states_its_cluster_and_draws_nothing(open_cloud):
    app = open_cloud("cost-opt")
    app.selectbox(key="cloud_server_us-central1").select("n1-standard-4").run()
    recommend(app)
    assert not app.exception
    assert not app.error
    assert "neither its time nor its cost is predicted" in said(app)
    assert len(app.table[0].value) == 1
    assert not charts(app)


@pytest.mark.slow
def test_a_bound_that_no_cluster_keeps_is_said_first(open_cloud):
    app = open_cloud()
    app.text_input(key="cloud_deadline").set_value("1s")
    recommend(app.run())
    assert not app.exception
    (warning,) = app.warning
    assert warning.value.startswith("No cluster is likely to keep the deadline of 1 s")


@pytest.mark.slow
def test_trials_with_batches_are_ranked_and_their_prices_move(open_cloud, database):
    """Scavenger's candidates have a batch, which the question on the left does not state."""
    database.add(
        Run("audio_cnn", "n1-standard-8", count, time_s / 2, 0.38 * count, 8, 30, batch=64, noise=200.0)
        for count, time_s in TRIALS
    )
    app = recommend(open_cloud("scavenger"))
    assert not app.exception
    assert not app.error
    assert "batch 64" in said(app)
    assert "What if the price moves" in [each.value for each in app.subheader]


def parquet(path: Path) -> bytes:
    ones = np.ones((5, 3))
    run = LocalRun(1.0, ones, ones, ones, ones, np.full(20, 0.1), 32, 1000)
    local_run_file.write(run, ("master", "worker1", "worker2"), {}, path)
    return path.read_bytes()


@pytest.mark.slow
def test_an_own_job_with_its_local_run(open_cloud, tmp_path):
    app = open_cloud()
    app.selectbox(key="cloud_job").select("upload").run()
    assert app.button(key="cloud_recommend").disabled
    given = b"name: mine\nbatch: 32\nsamples: 1000000\nlocal_run: mine.parquet\n"
    app.file_uploader(key="cloud_job_file").set_value(("mine.yaml", given, "text/yaml")).run()
    assert "upload it, too" in app.error[0].value
    run = ("mine.parquet", parquet(tmp_path / "run.parquet"), "application/octet-stream")
    app.file_uploader(key="cloud_local_run").set_value(run).run()
    recommend(app)
    assert not app.exception
    assert not app.error
    assert "has no local run" not in said(app)
    assert "3 trials of this job" in said(app)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "name", "content"),
    [("cloud_job_file", "mine.yaml", b"nme: mine\n"), ("cloud_local_run", "run.parquet", b"no parquet")],
)
def test_a_bad_upload_is_one_line_that_names_the_file(open_cloud, key, name, content):
    app = open_cloud()
    if key == "cloud_job_file":
        app.selectbox(key="cloud_job").select("upload").run()
    app.file_uploader(key=key).set_value((name, content, "application/octet-stream")).run()
    assert not app.exception
    assert app.error[0].value.replace("\\", "").startswith(f"{name}: ")
    assert "\n" not in app.error[0].value
    assert app.button(key="cloud_recommend").disabled
