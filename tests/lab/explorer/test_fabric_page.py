"""The page Fabric: a fault at once, and stored fleets that are read once for all visitors."""

import pytest
from streamlit.testing.v1 import AppTest

from lab.explorer import fabric_page
from lab.runs.store import RunStore


@pytest.fixture
def open_fabric(monkeypatch, stored):
    monkeypatch.setenv("TWINBED_STORE", str(stored[0].root))
    fabric_page._fleet_rows.clear()

    def page() -> None:
        from lab.explorer import fabric_page

        fabric_page.page()

    return lambda: AppTest.from_function(page, default_timeout=60).run()


def test_it_shows_what_follows_a_fault(open_fabric):
    app = open_fabric()
    assert not app.exception
    assert [line.value for line in app.subheader] == [
        "What follows",
        "BFD's two sides",
        "When a queue pair sends again",
        "Fleets",
    ]
    app.selectbox(key="fabric_scheme").select("bond").run()
    assert not app.exception


def test_the_stored_runs_are_not_read_on_every_rerun(open_fabric, monkeypatch):
    read = []
    ids = RunStore.ids

    def counted(store: RunStore) -> list[str]:
        read.append(store.root)
        return ids(store)

    monkeypatch.setattr(RunStore, "ids", counted)
    app = open_fabric()
    app.slider(key="fabric_hold").set_value(50).run()
    app.slider(key="fabric_hold").set_value(60).run()
    assert not app.exception
    assert len(read) == 1


def test_a_run_that_is_removed_while_the_page_is_drawn_does_no_harm(open_fabric, monkeypatch):
    monkeypatch.setattr(RunStore, "ids", lambda _store: ["gone-0000000000"])
    app = open_fabric()
    assert not app.exception
    assert "No fleet is stored yet" in "\n".join(line.value for line in app.markdown)
