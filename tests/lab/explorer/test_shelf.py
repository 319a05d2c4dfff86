"""The uploads and answers that a server keeps for the reload of an address."""

import pytest
from streamlit.testing.v1 import AppTest

from lab.explorer import advise_page, session, uploads
from lab.explorer.job import Status
from lab.explorer.shelf import Shelf
from lab.explorer.uploads import Upload
from tests.lab.explorer.test_pages import GOOD, texts
from tests.patience import PATIENCE_S


def test_the_longest_unused_goes_first():
    shelf: Shelf[str] = Shelf(2, 100.0)
    first, second = shelf.put("a"), shelf.put("b")
    assert shelf.get(first) == "a"
    third = shelf.put("c")
    assert (shelf.get(first), shelf.get(second), shelf.get(third)) == ("a", None, "c")
    shelf.drop(third)
    assert shelf.get(third) is None
    shelf.clear()
    assert shelf.get(first) is None


def test_what_is_unused_for_too_long_goes(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("lab.explorer.shelf.time.monotonic", lambda: now[0])
    shelf: Shelf[str] = Shelf(9, 100.0)
    name = shelf.put("a")
    now[0] = 101.0
    shelf.put("b")
    assert shelf.get(name) is None


def test_uploads_that_an_address_names_give_way_to_new_ones(monkeypatch):
    # Far larger than what other tests of this process may still hold.
    monkeypatch.setattr(uploads.limits, "UPLOADS_BYTES", 20_000_000)
    name = uploads.SHELF.put(Upload("old.csv", bytes(15_000_000)))
    store = uploads.BoundedUploads("")
    store.add_file("one", uploads.UploadedFileRec("id", "new.csv", "text/csv", bytes(14_000_000)))
    assert len(store.get_files("one", ["id"])[0].data) == 14_000_000
    assert uploads.SHELF.get(name) is None


def test_a_reload_finds_the_upload_again(open_app):
    name = uploads.SHELF.put(Upload("mine.csv", GOOD.encode()))
    app = open_app(recording="upload", upload=name)
    assert not app.exception
    assert "Uploaded: mine.csv" in texts(app)
    assert "1 container, 20 s" in texts(app)
    assert not app.button(key="run").disabled
    assert app.query_params["upload"] == name


def test_an_upload_that_is_gone_is_asked_for_again(open_app):
    app = open_app(recording="upload", upload="nothing")
    assert not app.exception
    assert "upload it again" in texts(app)
    assert app.button(key="run").disabled


class _Running:
    """A job that goes on until it is told to end."""

    def __init__(self) -> None:
        self.state = Status(phase="running", label="escra", fraction=0.4)

    def status(self) -> Status:
        return self.state


@pytest.fixture
def running_job(stored):
    job, visitor = _Running(), session.Presence()
    kept = session._KeptJob(job, session.TRACES, visitor)  # type: ignore[arg-type]
    return job, session._JOBS.put(kept)


def test_a_reload_finds_the_running_job_again_and_gets_its_result(open_app, running_job, stored):
    job, name = running_job
    app = open_app(job=name)
    assert not app.exception
    assert app.button(key="run").disabled
    assert app.query_params["job"] == name
    job.state = Status(phase="done", runs=(stored[1][0].id,))
    app.run()
    assert app.query_params["runs"] == stored[1][0].id
    assert "job" not in app.query_params
    assert session._JOBS.get(name) is None


def test_a_job_that_is_gone_leaves_the_address(open_app):
    app = open_app(job="nothing")
    assert not app.exception
    assert not app.button(key="run").disabled
    assert "job" not in app.query_params


def test_a_visitor_is_there_in_any_of_their_tabs(monkeypatch):
    there = {"first": True, "second": True}
    monkeypatch.setattr(session, "_presence", lambda: lambda: there["first"])
    visitor = session.Presence()
    monkeypatch.setattr(session, "_presence", lambda: lambda: there["second"])
    visitor.follow()
    there["first"] = False
    assert visitor()
    there["second"] = False
    assert not visitor()


def test_an_advice_that_is_gone_is_asked_for_again():
    def page() -> None:
        from lab.explorer import advise_page

        advise_page.page()

    app = AppTest.from_function(page, default_timeout=PATIENCE_S)
    app.query_params["answer"] = "nothing"
    app.run()
    assert not app.exception
    assert "not kept here any more" in app.warning[0].value
    assert advise_page._ANSWERS.kept() is None
