"""Tabs and uploads of all visitors together are bounded; who comes too late gets one line."""

import gc
from dataclasses import dataclass, field

import pytest
from starlette.exceptions import HTTPException
from streamlit.runtime.uploaded_file_manager import UploadedFileRec
from streamlit.testing.v1 import local_script_runner

from lab.explorer import limits, server, session, uploads
from lab.explorer.session import Tabs
from tests.lab.explorer.test_pages import GOOD, upload


@dataclass
class Tab:
    there: bool = True
    name: str = field(default_factory=lambda: str(id(object())))

    def present(self) -> bool:
        return self.there


def test_a_tab_too_many_is_not_admitted_until_another_is_closed():
    tabs, first, second = Tabs(1), Tab(name="a"), Tab(name="b")
    assert tabs.admit(first.name, first.present)
    assert tabs.admit(first.name, first.present)
    assert not tabs.admit(second.name, second.present)
    first.there = False
    assert tabs.admit(second.name, second.present)
    assert not tabs.admit(first.name, Tab().present)


def test_a_visitor_beyond_the_tabs_gets_one_line_and_nothing_else(open_app, monkeypatch):
    monkeypatch.setattr(session, "TABS", Tabs(0))
    app = open_app()
    assert [error.value for error in app.error] == [
        f"{limits.TABS} tabs are open here, which is the most. Reload this one in some minutes."
    ]
    assert not app.title
    assert not app.selectbox


def record(data: bytes, name: str = "mine.csv") -> UploadedFileRec:
    return UploadedFileRec(name, name, "text/csv", data)


def test_uploads_have_so_many_bytes_together_whoever_sends_them(monkeypatch):
    gc.collect()
    monkeypatch.setattr(limits, "UPLOADS_BYTES", 10)
    store = uploads.BoundedUploads("")
    store.add_file("first", record(b"123456"))
    store.add_file("second", record(b"12345"))
    (refused,) = store.get_files("second", ["mine.csv"])
    assert refused.data == b""
    store.remove_session_files("first")
    store.add_file("second", record(b"12345"))
    assert store.get_files("second", ["mine.csv"])[0].data == b"12345"


def test_what_a_session_keeps_counts_once_until_it_lets_go(monkeypatch):
    gc.collect()
    monkeypatch.setattr(limits, "UPLOADS_BYTES", 10)
    store = uploads.BoundedUploads("")
    content = bytes(range(6))
    store.add_file("first", record(content))
    kept = uploads.Upload("mine.csv", content)
    store.add_file("second", record(b"1234"))
    assert store.get_files("second", ["mine.csv"])[0].data == b"1234"
    store.remove_session_files("first")
    store.add_file("second", record(b"12345", "more.csv"))
    assert store.get_files("second", ["more.csv"])[0].data == b""
    del kept
    store.add_file("second", record(b"12345", "more.csv"))
    assert store.get_files("second", ["more.csv"])[0].data == b"12345"


def test_files_without_content_are_counted_too(monkeypatch):
    monkeypatch.setattr(limits, "UPLOADS", 1)
    store = uploads.BoundedUploads("")
    store.add_file("first", record(b""))
    with pytest.raises(HTTPException):
        store.add_file("second", record(b""))


@pytest.fixture
def no_room(monkeypatch):
    monkeypatch.setattr(limits, "UPLOADS_BYTES", 1)
    monkeypatch.setattr(local_script_runner, "MemoryUploadedFileManager", uploads.BoundedUploads)


@pytest.mark.usefixtures("no_room")
def test_an_upload_without_room_is_one_line(open_app):
    app = upload(open_app(), "mine.csv", GOOD.encode())
    (error,) = app.error
    assert error.value.startswith("mine.csv: no room is left for it")
    assert "\n" not in error.value
    assert app.button(key="run").disabled
    assert session._UPLOAD not in app.session_state or app.session_state[session._UPLOAD][1] is None


def test_the_server_that_is_started_has_that_store():
    assert server.command(1)[1:4] == ["-m", "lab.explorer.serving", "run"]
