"""A journey through the page Validation with a real browser."""

import re

import pytest

from tests.lab.explorer.journey import MARKS, no_traceback

pytestmark = MARKS
playwright = pytest.importorskip("playwright.sync_api", reason="no browser tests: playwright is missing")
expect = playwright.expect


@pytest.fixture
def shown_store(validated):
    return validated.root


def test_from_the_list_of_errors_to_one_containers_limit_and_back_by_a_link(page):
    page.get_by_role("link", name="Validation").click()
    expect(page.get_by_role("heading", name="Error of the twin")).to_be_visible()
    table = page.locator("table.tb-verdicts").first
    expect(table.get_by_role("row", name="Latency p50 (s)")).to_contain_text("inside limit")
    expect(page.get_by_test_id("stVegaLiteChart").nth(4)).to_be_visible()
    page.get_by_text("Static · factor=1.5", exact=True).first.click()
    expect(page).to_have_url(re.compile("policy=static"))
    expect(page.get_by_role("heading", name="All cells of this scenario")).to_be_visible()
    page.goto(page.url)
    expect(page.get_by_role("heading", name="Error of the twin")).to_be_visible()
    no_traceback(page)
