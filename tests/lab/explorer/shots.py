"""Takes a screenshot of every page, light, dark and on a phone: `python -m tests.lab.explorer.shots`.

For: looking at the pages; nothing is asserted, but a page that can be scrolled sideways, that is high without
a list of its sections, or that cannot be opened again from its address is named. Every page shows an answer.
Names of looks and pages behind it choose among them. The pictures come into artefacts/pages/, and with
`docs` into docs/pictures/.
"""

import sys
from collections.abc import Collection
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as TooLate

from lab.ask.scenario import build
from lab.engine.local import Local
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from lab.sweep.sweep import sweep
from tests.lab.explorer.conftest import TEA, imitate
from tests.lab.explorer.journey import CHROMIUM, FLAGS, ROOT, serve
from tests.lab.explorer.test_sweep_page import plan

LOOKS = {"light": ("light", 1440, 900), "dark": ("dark", 1440, 900), "phone": ("light", 390, 844)}
"""Colour scheme, width and height of the window, px."""
PAGES = {
    "home": ("", "What if your infrastructure", ""),
    "containers": ("?ask=containers", "All figures", ""),
    "advise": ("advise?advice_source=ddp+training", "Take it away", "Run"),
    "services": ("services?app=teastore&duration_s=20", "All figures", "Run"),
    "fabric": ("?ask=fabric", "What happens after the fault", ""),
    "training": ("fabric?fabric_ask=Training+job", "Every iteration over time", "Run"),
    "collective": ("fabric?fabric_ask=Collective", "Every operation over time", "Run"),
    "fleet": ("fabric?fabric_ask=Fleet", "This fleet in other sizes", "Run"),
    "cluster": ("?ask=cluster", "Side by side", ""),
    "cloud": ("?ask=cloud", "Why this one", ""),
    "search": ("cloud?cloud_ask=Search", "Trial by trial", "Search"),
    "market": ("market", "What the job holds and does", "Run"),
    "sweep": ("sweep", "Means over the seeds", ""),
    "validation": ("validation", "Error of the twin", ""),
    "runs": ("runs", "Runs", ""),
    "containers-empty": ("containers", "Containers", ""),
    "advise-empty": ("advise", "Advise", ""),
    "services-empty": ("services", "Services", ""),
    "cloud-empty": ("cloud", "Cloud", ""),
}
"""The address, a heading of the answer, and the button that asks for it, by picture."""
DOCS = {"containers": "explorer", "cloud": "cloud"}
"""Pictures in docs/pictures/, by page; they show the window alone."""
_DOCS_PX = (1400, 1000)
_PATIENCE_S = 600
_SETTLE_MS = 1000
_SCREENS = 3
"""Most screens of a page without a list of its sections."""


def shoot(page: Page, name: str, folder: Path) -> None:
    """Takes a picture of all of the page."""
    width, window = page.viewport_size["width"], page.viewport_size["height"]
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    page.wait_for_timeout(_SETTLE_MS)
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)
    for _ in range(2):  # Charts are drawn, and the page grows, once they are in the window.
        height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        page.set_viewport_size({"width": width, "height": min(12_000, int(height) + 40)})
        page.wait_for_timeout(_SETTLE_MS)
        expect(page.get_by_test_id("stSkeleton")).to_have_count(0)
    page.screenshot(path=folder / f"{name}.png")
    inside = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
    sideways = f", {inside - width} px wider than the window" if inside > width else ""
    unlisted = height > _SCREENS * window and not page.get_by_text("On this page:").count()
    print(f"{name}: {height} px high{sideways}{', without contents' if unlisted else ''}", flush=True)


def answered(context: BrowserContext, address: str, name: str) -> Page:
    """Returns the page with its answer."""
    path, heading, button = PAGES[name]
    page = context.new_page()
    page.goto(f"{address}/{path}")
    if button:
        page.get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_role("heading", name=heading).first).to_be_visible()
    return page


def opened(chromium: Browser, scheme: str, width: int, height: int) -> BrowserContext:
    """Returns a window of this look."""
    context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    context.set_default_timeout(_PATIENCE_S * 1000)
    return context


def stored(root: Path) -> None:
    """Makes what no page makes: a sweep, and runs of both backends."""
    store = RunStore(root)
    sweep(plan(), store, Local(1))
    for run in run_scenario(build(TEA), store, jobs=1):
        for repeat in range(3):
            imitate(store, run, repeat)


def main(asked: Collection[str], folder: Path) -> None:
    """Takes the pictures of these pages in these looks, of all where none is named."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for name in PAGES if name in asked] or list(PAGES)
    looks = [look for look in LOOKS if look in asked] or list(LOOKS)
    # Kept, so that a second look need not wait for the same runs.
    scratch = folder.parent / "shots"
    scratch.mkdir(exist_ok=True)
    stored(scratch / "runs")
    with sync_playwright() as driver, serve(scratch / "runs", scratch) as address:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        expect.set_options(timeout=_PATIENCE_S * 1000)
        if "docs" in asked:
            for name, picture in DOCS.items():
                page = answered(opened(chromium, "light", *_DOCS_PX), address, name)
                page.wait_for_timeout(3 * _SETTLE_MS)
                page.screenshot(path=ROOT / "docs" / "pictures" / f"{picture}.png")
            return
        for name in names:
            try:
                first = answered(opened(chromium, *LOOKS["light"]), address, name)
                first.wait_for_timeout(_SETTLE_MS)
                for look in looks:
                    # The address keeps the last question.
                    page = opened(chromium, *LOOKS[look]).new_page()
                    page.goto(first.url)
                    expect(page.get_by_role("heading", name=PAGES[name][1]).first).to_be_visible()
                    shoot(page, f"{name}-{look}", folder)
                    page.context.close()
            except (AssertionError, TooLate) as problem:
                print(f"{name}: {str(problem)[:300]}", flush=True)
            first.context.close()
        chromium.close()


if __name__ == "__main__":
    main(sys.argv[1:], ROOT / "artefacts" / "pages")
