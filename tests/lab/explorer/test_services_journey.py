"""A journey through the page Services with a real browser."""

import re

import pytest

from tests.lab.explorer.journey import (
    MARKS,
    container_picker,
    no_traceback,
    point_at,
    press_run,
    run_button,
)

pytestmark = MARKS
playwright = pytest.importorskip("playwright.sync_api", reason="no browser tests: playwright is missing")
expect = playwright.expect


def pick(page, label: str, option: str) -> None:
    box = page.get_by_role("combobox", name=label)
    # A list of options that has to be scrolled to closes again.
    box.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    box.click()
    page.get_by_role("option", name=option).click()


def test_from_an_application_to_why_a_limit_changed_and_back_by_a_link(page, tmp_path):
    page.get_by_role("link", name="Services").click()
    expect(page.get_by_role("heading", name="Load of the clients")).to_be_visible()
    pick(page, "Application", "Online Boutique")
    pick(page, "Workload", "Burst")
    expect(page.get_by_role("heading", name="Calls between services of Online Boutique")).to_be_visible()
    expect(page.get_by_test_id("stGraphVizChart").locator("svg")).to_be_visible()
    expect(run_button(page)).to_be_enabled()
    press_run(page)
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    expect(page.get_by_role("heading", name="All figures")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/services\?.*app=hipster_shop.*"))
    expect(page).to_have_url(re.compile(r"runs=.*runs=.*runs=.*runs="))
    table = page.locator("table.tb-table")
    for policy in ("Escra", "Autopilot", "VPA", "Static"):
        expect(table.get_by_role("columnheader", name=policy)).to_be_visible()
    expect(table.get_by_role("row", name=re.compile("Latency p99 "))).to_be_visible()
    no_traceback(page)

    pick(page, "Container", "productcatalogservice")
    expect(page).to_have_url(re.compile("container=productcatalogservice"))
    expect(page.get_by_text("Why did the limit change here?")).to_be_visible()
    expect(page.get_by_text("throttled in the last period: raised").first).to_be_visible()
    page.get_by_text("p50", exact=True).click()
    expect(page).to_have_url(re.compile("percentile=p50"))
    point_at(page, page.get_by_test_id("stVegaLiteChart").nth(0))
    expect(page.locator("#vg-tooltip-element")).to_contain_text("Autopilot")
    with page.expect_download() as report:
        page.get_by_role("button", name="Report (HTML)").click()
    report.value.save_as(tmp_path / "report.html")
    assert "Latency over time" in (tmp_path / "report.html").read_text()

    figures = table.inner_text()
    page.goto(page.url)
    expect(table).to_be_visible()
    expect(page.get_by_role("heading", name="All figures")).to_be_visible()
    assert table.inner_text() == figures
    expect(container_picker(page)).to_have_value("productcatalogservice")
    expect(page.get_by_text("50 % of the requests that came")).to_be_visible()
    expect(page.get_by_text("are of other choices")).to_have_count(0)
    no_traceback(page)


def test_a_long_run_of_a_large_application_can_be_cancelled(page):
    page.get_by_role("link", name="Services").click()
    pick(page, "Application", "TrainTicket")
    length = page.get_by_role("spinbutton", name="Duration (s)")
    length.fill("600")
    length.press("Enter")
    expect(page).to_have_url(re.compile("duration_s=600"))
    press_run(page)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Cancelled.")).to_be_visible()
    expect(run_button(page)).to_be_enabled()
    no_traceback(page)
