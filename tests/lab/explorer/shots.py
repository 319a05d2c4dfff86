"""Takes a screenshot of every page, light, dark and on a phone: `python -m tests.lab.explorer.shots [LOOK]`.

For: looking at the pages; nothing is asserted, but a page that can be scrolled sideways on a phone is named.
Every page shows an answer. The pictures come into artefacts/pages/; those of `readme` are the README's.
"""

import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as TooLate

from lab.engine.local import Local
from lab.runs.store import RunStore
from lab.sweep.sweep import sweep
from tests.lab.explorer.journey import CHROMIUM, FLAGS, PATIENCE_S, ROOT, serve
from tests.lab.explorer.test_sweep_page import plan

LOOKS = {
    "light": ("light", 1440, 900),
    "dark": ("dark", 1440, 900),
    "phone": ("light", 390, 844),
    "readme": ("light", 1400, 1000),
}
"""Colour scheme, width and height of the window, px."""
QUESTIONS = {
    "containers": ("Replay a training job", "All figures"),
    "fabric": ("Break a link", "What follows"),
    "cloud": ("Recommend a cluster", "Why this one"),
    "cluster": ("Schedule a queue of jobs", "Side by side"),
}
"""The home page's button, and a heading of the answer, by page."""
RUN = {
    "services": ("services?duration_s=20", "All figures"),
    "advise": ("advise?advice_source=ddp_training", "Take it away"),
    "market": ("market", "What the job holds and does"),
    "training": ("fabric?fabric_ask=Training+job", "Every iteration over time"),
    "fleet": ("fabric?fabric_ask=Fleet", "All stored fleets"),
}
"""The address, and a heading of the answer to a press of Run, by picture."""
OTHERS = ("", "advise", "sweep", "validation", "runs")
README = {"containers": "explorer", "cloud": "cloud"}
"""Pictures in docs/pictures/, by page; they show the window alone."""
_SETTLE_MS = 1000


def shoot(page: Page, name: str, folder: Path) -> None:
    """Takes a picture of all of the page."""
    width = page.viewport_size["width"]
    page.wait_for_timeout(_SETTLE_MS)
    for _ in range(2):  # Charts are drawn, and the page grows, once they are in the window.
        height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        page.set_viewport_size({"width": width, "height": min(12_000, int(height) + 40)})
        page.wait_for_timeout(_SETTLE_MS)
    page.screenshot(path=folder / f"{name}.png")
    inside = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
    sideways = f", {inside - width} px wider than the window" if inside > width else ""
    print(f"{name}: {height} px high{sideways}", flush=True)


def asked(context: BrowserContext, address: str, names: Iterable[str]) -> Iterator[tuple[str, Page]]:
    """Yields the name and the page of the answers to questions of the home page."""
    for name in names:
        button, heading = QUESTIONS[name]
        page = context.new_page()
        page.goto(address)
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
        yield name, page


def answers(context: BrowserContext, address: str) -> Iterator[tuple[str, Page]]:
    """Yields the name and the page of each answer."""
    yield from asked(context, address, QUESTIONS)
    for name, (path, heading) in RUN.items():
        page = context.new_page()
        page.goto(f"{address}/{path}")
        heard = page.get_by_role("heading", name=heading)
        try:
            page.get_by_role("button", name="Run", exact=True).click(timeout=4 * _SETTLE_MS)
        except TooLate:  # A phone folds the left side away.
            page.get_by_test_id("stExpandSidebarButton").click()
            page.get_by_role("button", name="Run", exact=True).click()
            page.get_by_test_id("stSidebarCollapseButton").locator("button").click()
        expect(heard).to_be_visible()
        yield name, page
    for name in OTHERS:
        page = context.new_page()
        page.goto(f"{address}/{name}")
        expect(page.get_by_role("heading", name=re.compile(".")).first).to_be_visible()
        yield f"{name}-empty" if name == "advise" else name or "home", page


def readme(context: BrowserContext, address: str) -> None:
    """Takes the pictures of the README."""
    for name, page in asked(context, address, README):
        page.wait_for_timeout(3 * _SETTLE_MS)
        page.screenshot(path=ROOT / "docs" / "pictures" / f"{README[name]}.png")


def main(looks: Sequence[str], folder: Path) -> None:
    """Takes the pictures of every page, in these looks."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        sync_playwright() as driver,
        serve(Path(scratch) / "runs", Path(scratch)) as address,
    ):
        sweep(plan(), RunStore(Path(scratch) / "runs"), Local(1))
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        expect.set_options(timeout=PATIENCE_S * 1000)
        for look in looks:
            scheme, width, height = LOOKS[look]
            context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            context.set_default_timeout(PATIENCE_S * 1000)
            if look == "readme":
                readme(context, address)
                continue
            for name, page in answers(context, address):
                shoot(page, f"{name}-{look}", folder)
                page.close()
            context.close()
        chromium.close()


if __name__ == "__main__":
    main(sys.argv[1:] or list(LOOKS)[:3], ROOT / "artefacts" / "pages")
