"""The parts that all studies share: options of the command line, folders, stores, and the frame of a page.

For: studies.__main__ and every task. Not for: any figure, nor for judging one (studies.judge).
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from twinbed import InvariantError, ScenarioError, TwinbedError
from twinbed.writing import write_bytes

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
STORES = ROOT / "build" / "studies"
NO_DATA = "no data on this machine"
"""Text of a row whose public data set is missing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a task on the command line. An option that was not given has its default.

    name: name of the task.
    data: folder of the public data sets; None: they are not on this machine.
    store: folder of runs or measurements; None: the one of this code under build/studies.
    out: folder to which pages are written.
    minutes: time after which nothing is started, minutes.
    only: parts, settings, cells, tables or gaps, by the task; empty: all.
    repeats: number of runs of each cell on the testbed.
    duration: length of a run, s.
    page_only: whether to write the page and measure nothing.
    note: a sentence that the page shows from now on.
    again: whether to fill the second table of measured jobs, which repeats runs of the first one.
    few: number of past jobs, or of loads of an application, that are drawn and kept; None: all.
    recommenders, programs, seeds, past, jobs: see studies.cloud.searches.
    sensitivity, html, form: see studies.experiments.page.
    timeout: exponent of the ACK timeout of soft RoCE.
    """

    name: str = ""
    data: Path | None = None
    store: Path | None = None
    out: Path = RESULTS
    minutes: float = math.inf
    only: Sequence[str] = ()
    repeats: int | None = None
    duration: float | None = None
    page_only: bool = False
    note: str | None = None
    again: bool = False
    recommenders: Sequence[str] = ()
    programs: bool = False
    few: int | None = None
    seeds: int = 5
    past: Sequence[str] = ()
    jobs: bool = False
    sensitivity: bool = False
    html: Path | None = None
    form: str = "table"
    timeout: int | None = None

    def public_data(self, folder: str = "") -> Path:
        """Return the folder of the public data sets, or one in it. Raises ScenarioError without one."""
        if self.data is None:
            raise ScenarioError(f"{self.name}: public data are needed; give --data or set TWINBED_DATA")
        return self.data / folder


class TimeIsUpError(TwinbedError):
    """Raised when the time of --minutes is over. All finished runs and measurements are kept."""


def clock(minutes: float) -> Callable[..., None]:
    """Return a progress function that raises TimeIsUpError after `minutes` minutes."""
    end_s = time.monotonic() + 60 * minutes

    def check(*_: object) -> None:
        if time.monotonic() > end_s:
            raise TimeIsUpError(f"{minutes:g} minutes are over; the same command continues where it stopped")

    return check


def store_of_code(name: str, parts: Sequence[str]) -> Path:
    """Return the folder of the runs of the present code. Stores of other code stay untouched.

    parts: files and folders of the repository on which a run depends beside its scenario and calibration.
    Raises InvariantError for a part that does not exist.
    """
    digest = hashlib.sha256()
    for part in parts:
        path = ROOT / part
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        if not path.exists():
            raise InvariantError(f"studies: {part} is part of a store's code and does not exist")
        for file in files:
            if file.suffix in (".py", ".yaml"):
                digest.update(file.read_bytes())
    folder = STORES / name / digest.hexdigest()[:10]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def page(
    name: str, title: str, answer: Iterable[str], parts: Iterable[str], conditions: Iterable[str]
) -> str:
    """Return a results page in Markdown: the answer in three sentences, its picture if it has one, the parts,
    then the conditions."""
    from studies.pictures import PICTURES

    made = f"<!-- Made by `python -m studies {name}`; edit studies/, not this file. -->"
    picture = [_link(name)] if name in PICTURES else []
    body = [" ".join(answer), *picture, *parts]
    return "\n\n".join([made, f"# {title}", *body, "## Conditions", *conditions]) + "\n"


def _link(name: str) -> str:
    """Return the line that shows a page's picture."""
    from studies.pictures import PICTURES

    return f"![{PICTURES[name].caption}]({name}.svg)"


def publish(name: str, text: str, folder: Path) -> None:
    """Write a page, and its picture if it has rows to draw, into a folder, and print their paths."""
    from lab.runs.page import svg
    from studies.pictures import PICTURES, NoRowsError

    if name in PICTURES:
        try:
            write(folder / f"{name}.svg", svg(PICTURES[name].draw(text)))
        except NoRowsError as reason:
            say(f"{name} has no picture: {reason}")
            text = text.replace(f"{_link(name)}\n\n", "")
    write(folder / f"{name}.md", text)


def table(header: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> str:
    """Return a Markdown table. left: number of text columns at the left; the others are figures."""
    rules = ["---"] * left + ["---:"] * (len(header) - left)
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in (header, rules, *rows))


def dash(value: float, form: str = ".3g") -> str:
    """Return the number as text, or a dash where it is not finite."""
    return format(value, form) if math.isfinite(value) else "–"


def write(path: Path, text: str) -> None:
    """Write a file whole and print its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, text.encode())
    say(str(path))


def say(line: str) -> None:
    """Write a line of progress to standard error."""
    sys.stderr.write(line + "\n")
