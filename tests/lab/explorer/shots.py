"""Takes a screenshot of every page, light, dark and on a phone: `python -m tests.lab.explorer.shots [LOOK]`.

For: looking at the pages; nothing is asserted, but a page that can be scrolled sideways on a phone is named.
The pages show the answers of the four questions of the home page. The pictures come into artefacts/pages/.
"""

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from tests.lab.explorer.journey import CHROMIUM, FLAGS, PATIENCE_S, ROOT, serve

LOOKS = {"light": ("light", 1440, 900), "dark": ("dark", 1440, 900), "phone": ("light", 390, 844)}
"""Colour scheme, width and height of the window, px."""
QUESTIONS = {
    "containers": ("Replay a training job", "All figures"),
    "fabric": ("Break a link", "What follows"),
    "cloud": ("Recommend a cluster", "Why this one"),
    "cluster": ("Schedule a queue of jobs", "Side by side"),
}
"""The home page's button, and a heading of the answer, by page."""
OTHERS = ("", "services", "advise", "market", "sweep", "validation", "runs")
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


def main(looks: Sequence[str], folder: Path) -> None:
    """Asks the four questions and takes the pictures of every page, in these looks."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        sync_playwright() as driver,
        serve(Path(scratch) / "runs", Path(scratch)) as address,
    ):
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        expect.set_options(timeout=PATIENCE_S * 1000)
        for look in looks:
            scheme, width, height = LOOKS[look]
            context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            context.set_default_timeout(PATIENCE_S * 1000)
            for name, (button, heading) in QUESTIONS.items():
                page = context.new_page()
                page.goto(address)
                page.get_by_role("button", name=button).click()
                expect(page.get_by_role("heading", name=heading)).to_be_visible()
                shoot(page, f"{name}-{look}", folder)
                page.close()
            for name in OTHERS:
                page = context.new_page()
                page.goto(f"{address}/{name}")
                expect(page.get_by_role("heading", name=re.compile(".")).first).to_be_visible()
                shoot(page, f"{name or 'home'}-{look}", folder)
                page.close()
            context.close()
        chromium.close()


if __name__ == "__main__":
    main(sys.argv[1:] or list(LOOKS), ROOT / "artefacts" / "pages")
