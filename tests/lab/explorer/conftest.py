"""A page under test, over stored runs, in this process or in a real browser."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from journey import CHROMIUM, FLAGS, PATIENCE_S, ROOT
from streamlit.testing.v1 import AppTest

import traces.load

APP = str(ROOT / "app.py")


@pytest.fixture(scope="session")
def recordings(trace_path) -> Path:
    """A folder with one recording, `sample`: 3 containers, 30 s."""
    return trace_path.parent


@pytest.fixture
def open_app(monkeypatch, stored, recordings) -> Callable[..., AppTest]:
    """Opens the explorer in this process over the stored runs, at an address (key=value or key=[values])."""
    monkeypatch.setenv("TWINBED_STORE", str(stored[0].root))
    monkeypatch.setattr(traces.load, "RECORDED", recordings)

    def opened(**query: str | list[str]) -> AppTest:
        app = AppTest.from_file(APP, default_timeout=60)
        for key, value in query.items():
            app.query_params[key] = value
        return app.run()

    return opened


@pytest.fixture
def open_services(monkeypatch, asked) -> Callable[..., AppTest]:
    """Opens the page Services in this process over the stored runs, at an address."""
    monkeypatch.setenv("TWINBED_STORE", str(asked[0].root))

    def page() -> None:
        from lab.explorer import services_page

        services_page.page()

    def opened(**query: str | list[str]) -> AppTest:
        app = AppTest.from_function(page, default_timeout=60)
        for key, value in query.items():
            app.query_params[key] = value
        return app.run()

    return opened


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    """A server of the explorer over an empty store, on a free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path_factory.mktemp("server") / "log").open("w+")
    server = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)],
        cwd=ROOT,
        env={**os.environ, "TWINBED_STORE": str(tmp_path_factory.mktemp("store") / "runs")},
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


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no browser tests: playwright is missing")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, address) -> Iterator[object]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    context.set_default_timeout(PATIENCE_S * 1000)
    playwright = pytest.importorskip("playwright.sync_api")
    playwright.expect.set_options(timeout=PATIENCE_S * 1000)
    opened = context.new_page()
    opened.goto(address)
    yield opened
    context.close()


@pytest.fixture(autouse=True)
def _main_stays_what_it_is():
    """Streamlit replaces `__main__` by the page, which processes that later tests spawn would run."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main
