"""With a real browser: text has enough contrast in both themes, and a phone shows verdicts as cards."""

import pytest

from lab.explorer import html
from lab.explorer.advise_results import VERDICTS
from tests.lab.explorer.contrast import weak
from tests.lab.explorer.journey import MARKS, no_traceback

pytestmark = MARKS
playwright = pytest.importorskip("playwright.sync_api", reason="no browser tests: playwright is missing")
expect = playwright.expect


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(blank, address, scheme):
    page = blank
    page.emulate_media(color_scheme=scheme)
    assert page.evaluate(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
    for path, heading in (("services?app=teastore", "Calls between"), ("cloud?cloud_asked=yes", "What if")):
        page.goto(f"{address}/{path}")
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
        expect(page.get_by_test_id("stVegaLiteChart").first.locator("svg")).to_be_visible()
        no_traceback(page)
        assert weak(page) == []
        page.get_by_role("link", name="Home").focus()
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_phone_shows_a_row_of_verdicts_as_a_card(browser):
    page = browser.new_page(viewport={"width": 390, "height": 844})
    heads = ("Container", "CPU request / limit (cores)", "Late on a full host (% of work)", "Verdict")
    row = ("a-workload-with-a-long-name-7f9c", ["12.5 → 0.687 / 25 → none", "0.8"], [VERDICTS["care"]])
    page.set_content(str(html.parts().verdicts(heads, [row])))
    assert page.evaluate("document.querySelector('.tb-scroll').scrollWidth") <= 390
    for which, head in (("", heads[1]), ("[style]", heads[-1])):
        shown = page.evaluate(f"getComputedStyle(document.querySelector('td{which}'), '::before').content")
        assert shown == f'"{head}"'
    page.close()


def test_figures_stay_inside_a_narrow_card(browser):
    page = browser.new_page(viewport={"width": 240, "height": 400})
    below = [("Packets from the host lost for", "301 ms"), ("Restarts", "0")]
    page.set_content(html.cards_of([html.Card("#000", "Thorn", "354 ms", "without packets", "", below)]))
    card, figure = (page.locator(which).first.bounding_box() for which in (".tb-card", ".tb-card dd"))
    assert figure["x"] + figure["width"] < card["x"] + card["width"]
    page.close()


def test_a_phone_in_the_dark_shows_the_questions_one_below_the_other(blank, address):
    page = blank
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    page.goto(address)
    first, second = (page.get_by_role("button", name=name) for name in ("Replay a", "Break a link"))
    expect(second).to_be_visible()
    assert first.bounding_box()["y"] < second.bounding_box()["y"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
