"""The common parts of journeys with a real browser: whether a browser is installed, how it starts, and its
server."""

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.explorer import server as explorer
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
APP = str(ROOT / "app.py")
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

MARKS = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which(CHROMIUM) is None, reason=f"no browser: {CHROMIUM} is missing"),
]


def run_button(page):
    return page.get_by_role("button", name="Run", exact=True)


def press_run(page):
    from playwright.sync_api import expect

    # While a page is drawn again, its old button may stand beside the new one.
    expect(run_button(page)).to_have_count(1)
    run_button(page).click()


def ask_from_home(page, address: str, button: str) -> None:
    """Asks a question by one click on the home page."""
    page.goto(address)
    page.get_by_role("button", name=button).click()


def chart(page):
    return page.get_by_test_id("stVegaLiteChart").first.locator("svg, canvas").first


def container_picker(page):
    return page.get_by_role("combobox", name="Container")


def upload(page, file, nth: int = 0) -> None:
    """Sends a file through the page's nth uploader: a path, or a dict with name, mimeType and buffer.

    Call it after something that the last run of the page's script shows. A file that is given while a run
    begins is lost: Streamlit drops the address to which the browser would send it, with all messages of the
    former run that still wait.
    """
    from playwright.sync_api import expect

    place = page.locator("input[type=file]").nth(nth)
    expect(place).to_be_attached()
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    with page.expect_response(lambda response: response.request.method == "PUT"):
        place.set_input_files(file)


def no_traceback(page) -> None:
    assert page.get_by_text("Traceback").count() == 0
    assert page.get_by_test_id("stException").count() == 0


def point_at(page, element) -> None:
    """Moves the pointer into the middle of the element."""
    element.scroll_into_view_if_needed()
    box = element.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2 - 9, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


@contextmanager
def serve(store: Path, folder: Path, named_in: Path | None = None) -> Iterator[str]:
    """The address of a server of the explorer over a store; its log is kept in the folder.

    named_in: a file that names another store at any time; None: there is only this one.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (folder / "log").open("w+")
    own = str(Path(__file__).with_name("served.py")) if named_in else APP
    server = subprocess.Popen(
        [own if word == APP else word for word in explorer.command(port)],
        cwd=ROOT,
        env={
            **os.environ,
            # Whoever starts the server may have switched them off.
            "STREAMLIT_SERVER_ENABLE_CORS": "false",
            "STREAMLIT_SERVER_ENABLE_XSRF_PROTECTION": "false",
            "TWINBED_STORE": str(store),
            "TWINBED_MEASUREMENTS": str(folder / "measurements.duckdb"),
            "STORE_NAMED_IN": str(named_in),
        },
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        _wait_until_healthy(f"http://127.0.0.1:{port}/_stcore/health", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(PATIENCE_S)
        log.close()


def _wait_until_healthy(url: str, server: subprocess.Popen) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.read().strip() == b"ok":
                    return
        except OSError:
            time.sleep(0.2)
    pytest.fail("the explorer's server did not come up")
