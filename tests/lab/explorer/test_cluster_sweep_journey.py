"""Journeys through Cluster and Sweep with a real browser."""

import re

import pytest

from lab.engine.local import Local
from lab.runs.store import RunStore
from lab.sweep.sweep import sweep
from tests.lab.explorer.journey import MARKS, ask_from_home, chart, no_traceback, press_run
from tests.lab.explorer.test_sweep_page import plan

pytestmark = MARKS
playwright = pytest.importorskip("playwright.sync_api", reason="no browser tests: playwright is missing")
expect = playwright.expect


def test_from_one_click_to_more_servers_beside(blank, address):
    page = blank
    ask_from_home(page, address, "Schedule a queue of jobs")
    expect(page.get_by_role("heading", name="Side by side")).to_be_visible()
    table = page.locator("table.tb-table")
    expect(table.get_by_role("columnheader", name="Gavel")).to_be_visible()
    expect(page.get_by_role("heading", name="Who ran where")).to_be_visible()
    expect(page.get_by_test_id("stVegaLiteChart")).to_have_count(4)
    expect(chart(page)).to_be_visible()
    expect(page).to_have_url(re.compile(r"/cluster\?question=cluster-"))
    no_traceback(page)

    servers = page.get_by_role("spinbutton", name="Servers with 4 v100")
    servers.fill("4")
    servers.press("Enter")
    press_run(page)
    expect(page).to_have_url(re.compile(r"beside=cluster-"))
    expect(table.get_by_role("columnheader", name="count=4").first).to_be_visible()
    no_traceback(page)


def test_a_sweep_of_the_store_is_drawn(blank, address, shown_store):
    page = blank
    sweep(plan(), RunStore(shown_store), Local(1))
    page.goto(f"{address}/sweep")
    expect(page.get_by_text("Ended. 16 of 16 runs.")).to_be_visible()
    expect(page.get_by_role("heading", name="Trade-off between the two figures")).to_be_visible()
    expect(page.get_by_test_id("stVegaLiteChart").last.locator("svg, canvas").first).to_be_visible()
    no_traceback(page)
