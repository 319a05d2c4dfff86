"""The page Fabric: a fault's timeline, and the timers' two sides."""

import pytest
from streamlit.testing.v1 import AppTest

pytestmark = pytest.mark.slow


@pytest.fixture
def opened(sends, monkeypatch):
    monkeypatch.setenv("TWINBED_STORE", str(sends[0].root))

    def page() -> None:
        from lab.explorer import fabric_page

        fabric_page.page()

    return AppTest.from_function(page, default_timeout=60).run()


def installed_ms(app: AppTest) -> float:
    rows = app.dataframe[0].value
    return float(rows[rows["step"] == "installed"]["ms after the fault"].max())


def test_a_fault_is_followed_until_routes_are_installed(opened):
    assert not opened.exception
    steps = set(opened.dataframe[0].value["step"])
    assert {"broken", "detected", "selected", "installed", "repaired"} <= steps
    assert 200 < installed_ms(opened) < 500
    assert "sends again after" in opened.caption[0].value
    assert "twinbed run scenarios/fleet.yaml" in opened.code[0].value


def test_shorter_timers_are_faster(opened):
    before = installed_ms(opened)
    opened.slider(key="fabric_interval").set_value(10).run()
    assert not opened.exception
    assert installed_ms(opened) < before


def test_a_bond_has_no_timers_of_bfd(opened):
    opened.selectbox(key="fabric_scheme").set_value("bond").run()
    assert not opened.exception
    assert "Only the overlay's routing uses BFD." in [text.value for text in opened.markdown]
