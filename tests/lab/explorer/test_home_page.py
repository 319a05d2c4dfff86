"""The home page: a question of each pillar, and what a click on it begins."""

import pytest

from lab.explorer import home_page, session
from lab.explorer.selection import TraceChoices
from tests.lab.explorer.test_pages import texts


@pytest.fixture
def begun(monkeypatch):
    """Record the questions to the worker, without starting one."""
    requests: list[object] = []
    monkeypatch.setattr("lab.explorer.running.begin", lambda owner, request: requests.append(owner))
    return requests


def test_it_says_what_the_product_is_and_offers_a_question_of_each_pillar(open_app):
    app = open_app(at="")
    assert not app.exception
    assert "digital twin with a real testbed" in texts(app)
    assert [button.key for button in app.button] == [
        f"home_{name}" for name in ("containers", "fabric", "cloud", "cluster")
    ]


def test_a_click_asks_the_shipped_recording_whatever_was_chosen_before(open_app, begun, monkeypatch):
    monkeypatch.setattr(home_page, "shipped", lambda: ("ddp_training",))
    app = open_app(at="")
    app.session_state["selection-TraceChoices"] = TraceChoices(policies=("vpa",), runs=("old-vpa-1",))
    app.button(key="home_containers").click().run()
    assert not app.exception
    assert begun == [session.TRACES]
    assert app.session_state["selection-TraceChoices"].runs == ()
    assert app.title[0].value == "Containers"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fabric", "cloud", "cluster"])
def test_an_address_asks_a_question_like_its_button(open_app, begun, name, monkeypatch):
    monkeypatch.setattr("lab.explorer.cloud_page._ask", lambda chosen, question: begun.append(chosen))
    app = open_app(at="", ask=name)
    assert not app.exception
    assert app.title[0].value == name.capitalize()
    assert len(begun) == (name != "fabric")


def test_the_job_that_the_home_page_names_is_the_one_that_is_ranked(open_app):
    assert "spoken words" in texts(open_app(at=""))
    assert "Spoken words" in texts(open_app(at="cloud"))


def test_an_address_with_another_question_says_which_there_are(open_app):
    app = open_app(at="", ask="weather")
    assert "known are containers, fabric, cloud, cluster" in texts(app)
    assert app.title[0].value.startswith("What if")
