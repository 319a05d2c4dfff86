"""A page under test, over stored runs, in this process or in a real browser."""

from functools import cache

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

import traces.load
from lab.ask.scenario import build
from lab.explorer import questions
from lab.runs.runner import run_scenario
from lab.runs.store import Run, RunStore
from tests.lab.explorer.journey import APP, CHROMIUM, FLAGS, PATIENCE_S, serve
from tests.lab.sample_cells import MANIFEST


@pytest.fixture(scope="session", autouse=True)
def _packages_are_scanned_once():
    """Every AppTest scans all installed packages for components of Streamlit, for a third of a second."""
    scan = manifest_scanner.scan_component_manifests
    manifest_scanner.scan_component_manifests = cache(scan)
    yield
    manifest_scanner.scan_component_manifests = scan


@pytest.fixture(scope="session")
def recordings(trace_path):
    """A folder with one recording, `sample`: 3 containers, 30 s."""
    return trace_path.parent


@pytest.fixture
def open_app(monkeypatch, stored, recordings):
    """Opens a page of the explorer in this process over the stored runs, at an address (key=value or
    key=[values]). Without a name it is the page Containers."""
    monkeypatch.setenv("TWINBED_STORE", str(stored[0].root))
    monkeypatch.setattr(traces.load, "RECORDED", recordings)

    def opened(at: str = "containers", **query: str | list[str]) -> AppTest:
        app = AppTest.from_file(APP, default_timeout=PATIENCE_S)
        # A page that is a function has no file by which switch_page could find it.
        app._page_hash = calc_hash(at)
        for key, value in query.items():
            app.query_params[key] = value
        return app.run()

    return opened


def opened(page, query: dict[str, str | list[str]]) -> AppTest:
    """A page, given as a function, in this process at an address."""
    app = AppTest.from_function(page, default_timeout=PATIENCE_S)
    for key, value in query.items():
        app.query_params[key] = value
    return app.run()


@pytest.fixture
def open_services(monkeypatch, asked):
    """Opens the page Services in this process over the stored runs, at an address."""
    monkeypatch.setenv("TWINBED_STORE", str(asked[0].root))

    def page():
        from lab.explorer import services_page

        services_page.page()

    return lambda **query: opened(page, query)


@pytest.fixture
def open_stored(monkeypatch):
    """Opens a page, given as a function, in this process over a store's questions, at an address."""

    def open_page(page, store, **query) -> AppTest:
        monkeypatch.setenv("TWINBED_STORE", str(store.root))
        questions.stored.clear()
        return opened(page, query)

    return open_page


TEA = {
    "name": "tea",
    "services": {
        "app": "teastore",
        "arrivals": {"kind": "fixed", "rate_rps": 40},
        "duration_s": 4,
        "hosts": 1,
    },
    "policies": ["escra", "static:factor=1.5"],
}
"""A short question about services."""


def imitate(store: RunStore, run: Run, repeat: int) -> None:
    """The run again, as if this machine had carried it out."""
    run_id = f"{run.id}{repeat}"
    manifest = {**run.manifest, "id": run_id, "backend": "testbed", "repeat": repeat, "testbed": MANIFEST}
    store.publish(manifest, {name: run.table(name) for name in run.tables})


@pytest.fixture(scope="session")
def validated(tmp_path_factory):
    """TeaStore under two policies, and each run three times as if it had been carried out here."""
    store = RunStore(tmp_path_factory.mktemp("validated"))
    for run in run_scenario(build(TEA), store, jobs=1):
        for repeat in range(3):
            imitate(store, run, repeat)
    return store


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    """The address of an explorer's server, and the file that names its store."""
    folder = tmp_path_factory.mktemp("server")
    named_in = folder / "named"
    named_in.write_text(str(folder / "runs"))
    with serve(folder / "runs", folder, named_in) as where:
        yield where, named_in


@pytest.fixture
def shown_store(tmp_path):
    """The folder of the runs that the server shows; it is empty."""
    return tmp_path / "runs"


@pytest.fixture
def address(server, shown_store):
    """The address of the explorer over the store."""
    where, named_in = server
    named_in.write_text(str(shown_store))
    return where


# The driver's event loop runs until it is closed, and tests of other packages have loops of their own.
@pytest.fixture(scope="package")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="no browser tests: playwright is missing")
    playwright.expect.set_options(timeout=PATIENCE_S * 1000)
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


STILL = """addEventListener("DOMContentLoaded", () => {
    const style = document.createElement("style");
    style.textContent = "*, *::before, *::after { animation: none !important; }";
    document.head.append(style);
})"""
"""A script that stops what turns or shimmers on a page while the page waits. To draw it takes a core."""


@pytest.fixture(scope="package")
def context(browser):
    """A window's profile. All journeys have the same, so that what the pages load is compiled only once."""
    opened = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    opened.set_default_timeout(PATIENCE_S * 1000)
    opened.add_init_script(STILL)
    yield opened
    opened.close()


@pytest.fixture
def entrance():
    """The page at which a journey begins: home, which is drawn in the least time."""
    return ""


@pytest.fixture
def blank(context):
    """A page on which nothing is open yet."""
    opened = context.new_page()
    yield opened
    opened.close()


@pytest.fixture
def page(blank, address, entrance):
    blank.goto(f"{address}/{entrance}")
    return blank
