"""The page Fabric: a fault's timeline, and the timers' two sides."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture
def opened(sends, monkeypatch):
    monkeypatch.setenv("TWINBED_STORE", str(sends[0].root))

    def page() -> None:
        from lab.explorer import fabric_page

        fabric_page.page()

    return AppTest.from_function(page, default_timeout=PATIENCE_S).run()


def installed_ms(app: AppTest) -> float:
    rows = app.table[0].value
    return rows[rows["step"] == "installed"]["time (ms)"].astype(float).max()


def test_a_fault_is_followed_until_routes_are_installed(opened):
    assert not opened.exception
    steps = set(opened.table[0].value["step"])
    assert {"broken", "detected", "selected", "installed", "repaired"} <= steps
    assert 200 < installed_ms(opened) < 500
    assert "RDMA sends again after" in opened.get("html")[0].proto.body


def test_shorter_timers_are_faster(opened):
    before = installed_ms(opened)
    opened.slider(key="fabric_interval").set_value(10).run()
    assert not opened.exception
    assert installed_ms(opened) < before


def test_a_bond_has_no_timers_of_bfd(opened):
    opened.selectbox(key="fabric_scheme").set_value("bond").run()
    assert not opened.exception
    assert "Only the overlay's routing uses BFD." in [text.value for text in opened.markdown]


def test_the_ladder_of_an_adapter_is_shown_for_each_nccl(opened):
    charts = len(opened.get("vega_lite_chart"))
    ladder = json.loads(opened.get("vega_lite_chart")[-1].proto.spec)
    assert ladder["encoding"]["x"]["title"] == "After the last progress (s)"
    # A scheme that was measured with short timeouts only has no row for the others.
    opened.selectbox(key="fabric_adapter").set_value("cx6-20.40").run()
    assert not opened.exception
    assert len(opened.get("vega_lite_chart")) == charts
    said = [caption.value for caption in opened.caption if "was measured with 7 retries" in caption.value]
    assert [text.partition(":")[0] for text in said] == ["NCCL from 2.14.3", "NCCL from 2.23.4"]
