"""The page Fabric: a fault at once under every scheme; jobs, collectives and fleets as stored questions."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from lab.ask.scenario import build
from lab.explorer import fabric_jobs, questions
from lab.explorer.worker import Request
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from tests.lab.explorer.test_pages import charts, texts
from tests.lab.explorer.test_pages import html as markup


@pytest.fixture(scope="module")
def fabrics(tmp_path_factory):
    """A training job and two fleets, each under two schemes. Not to be changed."""
    store = RunStore(tmp_path_factory.mktemp("fabrics"))
    training = {"parameters": 1e6, "micro_batch_s": 0.1, "data": 4, "iterations": 60}
    faults = {"kind": "single", "at_s": 3.0, "down_s": 2.0}
    for name, part in (
        ("training", {"topology": {"hosts": 4}, "faults": faults, "training": training}),
        ("fleet", {"fleet": {"gpus": 64, "days": 2.0}}),
        ("fleet", {"fleet": {"gpus": 128, "days": 2.0}}),
    ):
        run_scenario(
            build({"name": name, "fabric": part, "policies": ["thorn", "bond"], "seeds": [0]}), store
        )
    return store


@pytest.fixture
def open_fabric(open_stored, tmp_path):
    def page() -> None:
        from lab.explorer import fabric_page

        fabric_page.page()

    def opened(store: RunStore | None = None, **query: str) -> AppTest:
        fabric_jobs._fleet_rows.clear()
        return open_stored(page, store or RunStore(tmp_path / "none"), **query)

    return opened


def test_a_fault_is_answered_first_under_every_scheme_and_then_step_by_step(open_fabric):
    app = open_fabric()
    assert not app.exception
    assert markup(app).count('tb-card"') == 4
    assert markup(app).index("Thorn") < markup(app).index("Bond")
    assert "RDMA sends again after" in markup(app)
    assert [line.value for line in app.subheader] == [
        "Where the fault is",
        "What happens after the fault",
        "BFD's two sides",
        "When a queue pair sends again",
    ]
    app.selectbox(key="fabric_scheme").select("bond").run()
    assert not app.exception
    assert markup(app).index("Bond") < markup(app).index("Thorn")


def test_the_address_keeps_the_question_and_a_wrong_value_is_passed_over(open_fabric):
    app = open_fabric(fabric_scheme="Bond", fabric_hosts="8", fabric_hold="60", fabric_host="7")
    assert app.selectbox(key="fabric_scheme").value == "bond"
    assert (app.number_input(key="fabric_host").value, app.slider(key="fabric_hold").value) == (7, 60)
    app = open_fabric(fabric_scheme="magic", fabric_hosts="1e400", fabric_hold="x", fabric_ask="weather")
    assert not app.exception
    assert app.selectbox(key="fabric_ask").value == "fault"


@pytest.mark.parametrize("job", list(fabric_jobs.JOBS))
def test_a_job_of_each_sort_is_asked_from_the_page(open_fabric, job, monkeypatch):
    asked: list[Request] = []
    monkeypatch.setattr(fabric_jobs.running, "start", lambda _owner, request: asked.append(request()))
    app = open_fabric(fabric_ask=fabric_jobs.JOBS[job])
    assert not app.exception
    assert "press **Run**" in texts(app)
    app.multiselect(key=f"fabric_{job}_schemes").set_value(["thorn", "none"]).run()
    app.button(key="run").click().run()
    (request,) = asked
    assert request.scenario["policies"] == ["thorn", "none"]
    assert job in request.scenario["fabric"]


def test_a_training_job_shows_its_schemes_from_the_fault_to_the_lost_iteration(open_fabric, fabrics):
    app = open_fabric(fabrics, fabric_ask="Training job")
    assert not app.exception
    assert [line.value for line in app.subheader] == [
        "Side by side",
        "From the first fault to the lost iteration",
        "Every iteration over time",
    ]
    assert len(charts(app)) == 2
    key = app.selectbox(key="fabric_question").value
    assert app.query_params["question"] == key
    assert (
        open_fabric(fabrics, fabric_ask="Training job", question=key).selectbox(key="fabric_question").value
        == key
    )


def test_fleets_are_read_once_for_all_visitors(open_fabric, fabrics, monkeypatch):
    app = open_fabric(fabrics, fabric_ask="Fleet")
    assert not app.exception
    assert [line.value for line in app.subheader] == [
        "Side by side",
        "Lost GPU-hours by cause",
        "This fleet in other sizes",
    ]
    legend = json.loads(charts(app)[-1].proto.spec)["encoding"]["color"]["scale"]
    assert legend["domain"] == ["Bond", "Thorn"]
    assert len(set(legend["range"])) == 2
    monkeypatch.setattr(RunStore, "ids", lambda _store: pytest.fail("the store was read again"))
    app.number_input(key="fabric_days").set_value(3.0).run()
    assert not app.exception


def test_a_new_fleet_is_among_the_sizes_at_once(open_fabric, tmp_path):
    store = RunStore(tmp_path / "fleets")

    def fleet(gpus: int, **changes: int) -> None:
        part = {"fleet": {"gpus": gpus, "days": 2.0, **changes}}
        run_scenario(build({"name": "fleet", "fabric": part, "policies": ["thorn"], "seeds": [0]}), store)
        questions.stored.clear()  # As the page does when a job has ended.

    fleet(64)
    app = open_fabric(store, fabric_ask="Fleet")
    alone = "No other size of this fleet is stored"
    assert alone in texts(app)
    fleet(128, spares=4)
    assert alone in texts(app.run())
    fleet(128)
    assert alone not in texts(app.run())


def test_a_run_that_is_removed_while_the_page_is_drawn_does_no_harm(open_fabric, monkeypatch):
    monkeypatch.setattr(RunStore, "ids", lambda _store: ["gone-0000000000"])
    app = open_fabric(fabric_ask="Fleet")
    assert not app.exception
    assert "No fleet is stored yet" in texts(app)
