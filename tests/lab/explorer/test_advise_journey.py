"""A journey through the page Advise with a real browser."""

import json
import re

import pytest

from lab.containers.advise import model
from tests.lab.explorer.histories import shop
from tests.lab.explorer.journey import MARKS, no_traceback, press_run, run_button, upload

pytestmark = MARKS
playwright = pytest.importorskip("playwright.sync_api", reason="no browser tests: playwright is missing")
expect = playwright.expect


def choose(page, name: str) -> None:
    page.get_by_role("combobox", name="History").click()
    page.get_by_role("option", name=name).click()


def saved(page, label: str, folder):
    with page.expect_download() as offered:
        page.get_by_role("button", name=label, exact=True).click()
    path = folder / offered.value.suggested_filename
    offered.value.save_as(path)
    return path


def test_from_ones_own_history_to_a_patch(page, tmp_path):
    mine = tmp_path / "shop.om"
    mine.write_text(shop())
    page.get_by_role("link", name="Advise").click()
    expect(page.get_by_text("Choose a history and press Run")).to_be_visible()
    expect(run_button(page)).to_be_disabled()

    choose(page, "Ask a Prometheus")
    page.get_by_role("textbox", name="Address").fill("http://127.0.0.1:9")
    page.get_by_role("textbox", name="Address").press("Enter")
    expect(run_button(page)).to_be_enabled()
    press_run(page)
    expect(page.get_by_text("no server listens there")).to_be_visible()
    no_traceback(page)

    choose(page, "Upload a history")
    upload(page, mine)
    expect(run_button(page)).to_be_enabled()
    press_run(page)
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    table = page.locator("table.tb-verdicts")
    expect(table.get_by_role("row", name="shop/web/app")).to_contain_text("apply")
    expect(page.get_by_test_id("stVegaLiteChart").first.locator("svg, canvas").first).to_be_visible()
    expect(page.get_by_text("of the largest of 2 replicas")).to_be_visible()
    no_traceback(page)

    advice = model.read(saved(page, "Advice (JSON)", tmp_path))
    assert [row.name for row in advice.rows] == ["shop/web/app"]
    assert "shop/web/app" in saved(page, "Page (HTML)", tmp_path).read_text()
    patch = saved(page, "Kubernetes", tmp_path).read_text()
    assert "kind: StatefulSet" in patch
    assert json.dumps(advice.rows[0].advised.cpu_request_cores)

    page.get_by_text("Memory", exact=True).click()
    slider = page.get_by_role("slider", name="Risk")
    slider.focus()
    slider.press("ArrowLeft")
    expect(page.get_by_text("press Run for an answer to those")).to_be_visible()
    # Half an answer is told so, and takes no file away.
    for name, number in (("Hosts", "2"), ("Cores of each", "0.5")):
        page.get_by_role("spinbutton", name=name).fill(number)
        page.get_by_role("spinbutton", name=name).press("Enter")
        expect(page.get_by_text("Give both the number of hosts")).to_have_count(1 if name == "Hosts" else 0)
    expect(page).to_have_url(re.compile(r"advice_host_cores=0\.5&advice_hosts=2&advice_risk=4\.5"))
    press_run(page)
    expect(page.get_by_text("Hosts: 2 of 0.5 cores. Risk: 4.5 % of periods throttled")).to_be_visible()
    no_traceback(page)
