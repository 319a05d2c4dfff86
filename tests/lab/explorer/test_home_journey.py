"""A journey from the home page to four answers with a real browser."""

import re

import pytest

from tests.lab.explorer.journey import MARKS, PATIENCE_S, no_traceback
from traces.load import shipped

pytestmark = MARKS
playwright = pytest.importorskip("playwright.sync_api", reason="no browser tests: playwright is missing")
expect = playwright.expect


def chart(page):
    return page.get_by_test_id("stVegaLiteChart").first.locator("svg, canvas").first


@pytest.mark.skipif(not shipped(), reason="no recordings ship with this checkout")
def test_every_question_is_one_click_from_a_chart(page, address):
    for button, heading, path in (
        ("Replay a training job", "All figures", r"/containers\?(?=.*\bruns=)(?=.*\brecording=ddp_training)"),
        ("Break a link", "What follows", "/fabric$"),
        ("Recommend a cluster", "Why this one", r"/cloud\?cloud_asked=yes"),
        ("Schedule a queue of jobs", "Side by side", r"/cluster\?question=cluster-"),
    ):
        page.goto(address)
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
        expect(chart(page)).to_be_visible()
        expect(page).to_have_url(re.compile(path))
        no_traceback(page)
    page.goto(address)
    expect(page.get_by_text("runs are stored here")).to_be_visible()


def test_a_phone_in_the_dark_shows_the_questions_one_below_the_other(browser, address):
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    context.set_default_timeout(PATIENCE_S * 1000)
    page = context.new_page()
    page.goto(address)
    first, second = (page.get_by_role("button", name=name) for name in ("Replay a", "Break a link"))
    expect(second).to_be_visible()
    assert first.bounding_box()["y"] < second.bounding_box()["y"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()
