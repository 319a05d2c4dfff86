"""A journey through the page Cloud with a real browser."""

import re

import pytest

from tests.lab.explorer.journey import MARKS, ROOT, ask_from_home, chart, no_traceback, upload

pytestmark = MARKS
playwright = pytest.importorskip("playwright.sync_api", reason="no browser tests: playwright is missing")
expect = playwright.expect

JOBS = ROOT / "scenarios" / "jobs"


def recommend_button(page):
    return page.get_by_role("button", name="Recommend", exact=True)


def recommend(page) -> None:
    recommend_button(page).click()


def answered(page):
    return page.get_by_role("heading", name="Why this one")


def test_from_one_click_to_a_cluster_and_what_if_its_price_moves(blank, address):
    page = blank
    ask_from_home(page, address, "Recommend a cluster")
    expect(answered(page)).to_be_visible()
    expect(page).to_have_url(re.compile(r"/cloud\?cloud_asked=yes"))
    # The job ships with its local run, and nothing else is known of it.
    expect(page.get_by_text("Times come from the analytic model")).to_be_visible()
    expect(page.get_by_role("heading", name="Cost and time of every candidate")).to_be_visible()
    expect(chart(page)).to_be_visible()
    expect(page.get_by_text(re.compile("catalogue rows of 2022-02-09"))).to_be_visible()
    no_traceback(page)

    slider = page.get_by_role("slider", name="times")
    slider.focus()
    for _ in range(8):
        slider.press("ArrowRight")
    # Three times 0.536 $/h: the next in the ranking is the best now.
    expect(page.get_by_text(re.compile(r"At 1\.608.*, the best is 1 × n1-highcpu-16"))).to_be_visible()
    no_traceback(page)


def test_a_job_and_a_local_run_of_ones_own(page, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("name: mine\nbatch: 16\nsamples: 20000000\n")
    page.get_by_role("link", name="Cloud").click()
    expect(page.get_by_text("and press Recommend")).to_be_visible()
    page.get_by_role("combobox", name="Job", exact=True).click()
    page.get_by_role("option", name="Upload your own job file").click()
    page.get_by_text("How it is predicted").click()
    expect(page.locator("input[type=file]")).to_have_count(2)
    upload(page, mine)
    expect(page.get_by_role("button", name="Remove mine.yaml")).to_be_visible()
    expect(recommend_button(page)).to_be_enabled()
    upload(page, JOBS / "images_vgg.local-run.parquet", nth=1)
    remove = page.get_by_role("button", name="Remove images_vgg.local-run.parquet")
    expect(remove).to_be_visible()
    recommend(page)
    expect(answered(page)).to_be_visible()
    expect(page.get_by_text("Times come from the analytic model")).to_be_visible()
    expect(page.get_by_role("heading", name="What if the price moves")).to_be_visible()
    no_traceback(page)

    remove.click()
    expect(page.get_by_text("The choices on the left have changed since this answer")).to_be_visible()
    expect(remove).not_to_be_visible()
    upload(page, {"name": "no.parquet", "mimeType": "", "buffer": b"no parquet"}, nth=1)
    expect(page.get_by_text(re.compile("no.parquet: not a readable Parquet file"))).to_be_visible()
    expect(recommend_button(page)).to_be_disabled()
