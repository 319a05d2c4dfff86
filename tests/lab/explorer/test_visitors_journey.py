"""Visitors with a real browser: an address brings no link, and who closes the tab leaves no work behind."""

import re
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.lab.explorer.journey import (
    MARKS,
    PATIENCE_S,
    ROOT,
    ask_from_home,
    chart,
    no_traceback,
    press_run,
    serve,
    upload,
)
from tests.lab.explorer.test_journeys import csv_file, csv_of

pytestmark = MARKS
playwright = pytest.importorskip("playwright.sync_api", reason="no browser tests: playwright is missing")
expect = playwright.expect

EVIL = "![x](https://evil.example/x.png) [y](https://evil.example) https://evil.example www.evil.example"


def test_an_address_brings_neither_link_nor_image(blank, address):
    page = blank
    query = urlencode({"recording": EVIL, "policies": EVIL, "budget": EVIL, "container": EVIL, "runs": EVIL})
    for path in ("containers", "services?app=evil&" + urlencode({"app": EVIL, "arrivals": EVIL})):
        page.goto(f"{address}/{path}{'&' if '?' in path else '?'}{query}")
        expect(page.get_by_text("The address").first).to_be_visible()
        expect(page.get_by_text("evil.example").first).to_be_visible()
        assert page.locator("a[href*='evil']").count() == 0
        assert page.locator("img[src*='evil']").count() == 0


def workers() -> set[int]:
    """The process ids of all explorers' workers on this machine."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"lab.explorer.worker" in (process / "cmdline").read_bytes():
                found.add(int(process.name))
        except OSError:
            continue
    return found


def test_who_closes_the_tab_leaves_no_worker_behind(blank, address):
    page = blank
    before = workers()
    page.goto(f"{address}/containers")
    page.get_by_role("combobox", name="Trace").click()
    page.get_by_role("option", name="Upload your own trace").click()
    upload(page, csv_file("long.csv", csv_of(20_000)))
    expect(page.get_by_text("2 containers, 5.56 h")).to_be_visible()
    press_run(page)
    expect(page.get_by_text("of the whole")).to_be_visible()
    begun = workers() - before
    assert begun
    page.close()
    deadline = time.monotonic() + PATIENCE_S
    while workers() & begun and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not workers() & begun


def test_one_click_shows_what_follows_a_fault_of_a_fabric(blank, address):
    page = blank
    ask_from_home(page, address, "Break a link")
    expect(page.get_by_role("heading", name="What happens after the fault")).to_be_visible()
    expect(chart(page)).to_be_visible()
    expect(page).to_have_url(re.compile("/fabric$"))
    expect(page.get_by_text("without packets").first).to_be_visible()
    page.get_by_role("combobox", name="Scheme").click()
    page.get_by_role("option", name="Bond").click()
    expect(page.get_by_text("Only the overlay's routing uses BFD.")).to_be_visible()
    page.get_by_role("combobox", name="Question").click()
    page.get_by_role("option", name="Fleet").click()
    expect(page.get_by_text("No fleet is stored yet")).to_be_visible()
    no_traceback(page)


def test_an_upload_for_which_the_server_has_no_room_is_one_line(browser, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "from lab.explorer import limits\nlimits.UPLOADS_BYTES = 100_000\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    with serve(tmp_path / "runs", tmp_path) as address:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.goto(f"{address}/containers")
        page.get_by_role("combobox", name="Trace").click()
        page.get_by_role("option", name="Upload your own trace").click()
        upload(page, csv_file("small.csv", csv_of(20)))
        expect(page.get_by_text("2 containers, 20 s")).to_be_visible()
        upload(page, csv_file("large.csv", csv_of(20_000)))
        expect(page.get_by_text("no room is left for it")).to_be_visible()
        page.close()
