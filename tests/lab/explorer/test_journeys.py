"""Two journeys through the explorer with a real browser."""

import re
from urllib.parse import quote_plus

import numpy as np
import pytest

from lab.containers.metrics import METRICS
from tests.lab.explorer.journey import (
    MARKS,
    ask_from_home,
    chart,
    container_picker,
    no_traceback,
    press_run,
    run_button,
    upload,
)
from traces.load import shipped

pytestmark = MARKS
playwright = pytest.importorskip("playwright.sync_api", reason="no browser tests: playwright is missing")
expect = playwright.expect


@pytest.fixture
def entrance():
    return "containers"


@pytest.mark.skipif(not shipped(), reason="no recordings ship with this checkout")
def test_from_one_click_to_results_that_a_link_brings_back(page, address):
    expect(run_button(page)).to_be_enabled()
    expect(page.get_by_test_id("stVegaLiteChart")).to_have_count(1)
    ask_from_home(page, address, "Replay a training job")
    expect(page.get_by_role("heading", name="All figures")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/containers\?(?=.*\bruns=)(?=.*\brecording=ddp_training)"))
    table = page.locator("table.tb-table")
    for policy in ("Escra", "Autopilot", "VPA", "Static"):
        expect(table.get_by_role("columnheader", name=policy)).to_be_visible()
    of_replays = [metric for metric in METRICS if metric.section != "requests"]
    expect(table.get_by_role("row")).to_have_count(1 + len(of_replays))
    expect(chart(page)).to_be_visible()
    no_traceback(page)

    before = container_picker(page).input_value()
    container_picker(page).click()
    options = page.get_by_role("option")
    names = options.all_inner_texts()
    other = next(name for name in names if name != before) if len(names) > 1 else before
    options.get_by_text(other, exact=True).click()
    expect(page).to_have_url(re.compile(f"[?&]container={re.escape(quote_plus(other))}(&|$)"))
    expect(page).to_have_url(re.compile(r"runs=.*runs=.*runs=.*runs="))
    figures = table.inner_text()

    page.goto(page.url)
    expect(table).to_be_visible()
    assert table.inner_text() == figures
    expect(container_picker(page)).to_have_value(other)
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    page.get_by_text("Memory", exact=True).click()
    expect(page.get_by_text("MiB unused on average").first).to_be_visible()
    no_traceback(page)
    page.goto(address)
    expect(page.get_by_text("runs are stored here")).to_be_visible()


def tick(page, row: int) -> None:
    """The box before a row of the runs' table, which is a canvas: it is found by its place, once the page
    stands still."""
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    table = page.get_by_test_id("stDataFrame")
    expect(table.locator("canvas").first).to_be_visible()
    table.scroll_into_view_if_needed()
    table.click(position={"x": 17, "y": 35 * (row + 1) + 17})


def csv_of(seconds: int) -> bytes:
    """A service of two containers, one sample a second."""
    lines = ["container,time_s,cpu_cores,memory_bytes"]
    for name, level in (("web", 0.8), ("db", 0.3)):
        use = level * (1 + 0.6 * np.sin(np.arange(seconds) / 9))
        lines += [f"{name},{second},{cores:.4f},{80_000_000 + second}" for second, cores in enumerate(use)]
    return ("\n".join(lines) + "\n").encode()


def csv_file(name: str, content: bytes) -> dict:
    return {"name": name, "mimeType": "text/csv", "buffer": content}


def test_going_back_shows_what_each_address_says_until_it_leaves(page):
    trace = page.get_by_role("combobox", name="Trace")
    expect(page).to_have_url(re.compile("recording=bursty_service$"))
    trace.click()
    page.get_by_role("option", name="compile batch").click()
    expect(page).to_have_url(re.compile("recording=compile_batch$"))
    page.get_by_role("link", name="Cloud").click()
    expect(page.get_by_role("heading", name="Cloud")).to_be_visible()
    for address, shown in (
        ("=compile_batch", "compile batch"),
        ("=bursty_service", "bursty service"),
        ("/containers", "bursty service"),
    ):
        page.go_back()
        expect(trace).to_have_value(shown)
        expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
        expect(page).to_have_url(re.compile(f"{address}$"))
    page.go_back()
    assert page.url == "about:blank"


def test_a_wrong_file_that_is_removed_is_forgotten(page):
    page.get_by_role("combobox", name="Trace").click()
    page.get_by_role("option", name="Upload your own trace").click()
    upload(page, csv_file("wrong.csv", b"{}"))
    expect(page.get_by_text("wrong.csv:")).to_be_visible()
    page.get_by_role("button", name="Remove wrong.csv").click()
    expect(page.get_by_text("wrong.csv")).to_have_count(0)


def test_a_trace_of_ones_own_is_checked_run_downloaded_and_a_run_cancelled(page, tmp_path):
    picker = page.get_by_role("combobox", name="Trace")
    picker.click()
    page.get_by_role("option", name="Upload your own trace").click()
    upload(page, csv_file("service.csv", csv_of(60)))
    expect(page.get_by_text("2 containers, 60 s")).to_be_visible()
    press_run(page)
    expect(page.get_by_role("heading", name="All figures")).to_be_visible()
    with page.expect_download() as comparison:
        page.get_by_role("button", name="Comparison (CSV)").click()
    comparison.value.save_as(tmp_path / "comparison.csv")
    lines = (tmp_path / "comparison.csv").read_text().splitlines()
    assert len(lines) == 5
    assert "cpu_slack_p50_cores" in lines[0]
    assert "service-escra-" in lines[1]
    with page.expect_download() as report:
        page.get_by_role("button", name="Report (HTML)").click()
    report.value.save_as(tmp_path / "report.html")
    assert "service-escra-" in (tmp_path / "report.html").read_text()

    upload(page, csv_file("broken.csv", csv_of(60).replace(b"web,7,", b"web,7,-")))
    message = page.get_by_test_id("stAlert").filter(has_text="broken.csv")
    expect(message).to_have_count(1)
    expect(message).to_contain_text("cpu_cores")
    expect(run_button(page)).to_be_disabled()
    no_traceback(page)

    upload(page, csv_file("long.csv", csv_of(20_000)))
    expect(page.get_by_text("2 containers, 5.56 h")).to_be_visible()
    press_run(page)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Cancelled.")).to_be_visible()
    expect(run_button(page)).to_be_enabled()
    no_traceback(page)

    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_text("Tick several to compare them.")).to_be_visible()
    tick(page, 0)
    expect(page.get_by_role("button", name="Delete 1 run…")).to_be_visible()
    # A filter that hides the ticked run keeps it ticked. The page says so, and what is deleted is named.
    expect(page).to_have_url(re.compile("runs="))
    ticked = re.findall(r"runs=([^&]+)", page.url)[0]
    words = page.get_by_label("Name or id contains")
    words.fill("escra" if "escra" not in ticked else "static")
    words.press("Enter")
    expect(page.get_by_text(re.compile(r"^1 of \d+ runs.*Not listed: 1 ticked run\."))).to_be_visible()
    page.get_by_role("button", name="Delete 1 run…").click()
    expect(page.get_by_role("dialog").get_by_text(ticked)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    words.fill("")
    words.press("Enter")
    expect(page.get_by_text(re.compile(r"^(\d+) of \1 runs"))).to_be_visible()
    expect(page.get_by_role("button", name="Delete 1 run…")).to_be_visible()
    tick(page, 1)
    expect(page.get_by_role("heading", name="All figures")).to_be_visible()
    expect(page).to_have_url(re.compile(r"runs=.*runs="))
    no_traceback(page)
    page.get_by_role("button", name="Delete 2 runs…").click()
    page.get_by_role("button", name="Delete 2 runs", exact=True).click()
    expect(page.get_by_text("Deleted 2 runs.")).to_be_visible()
    no_traceback(page)
