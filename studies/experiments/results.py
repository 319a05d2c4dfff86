"""docs/results: every experiment beside the source, what is not reproduced, what it depends on.

For: `python -m studies.experiments PAGE`, which runs what its store lacks and writes the page (one for
containers, one for the fabric) and its charts. Not for: computing or judging figures. The text depends on
the runs alone; one figure of E7 is this machine's time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.ask.calibration import Calibration
from lab.containers.calibrate.values import load_calibration
from lab.fabric.calibrate.values import load_calibration as load_fabric
from lab.runs.files import write_whole
from lab.runs.formats import markdown
from lab.runs.page import svg
from lab.runs.store import RunStore
from studies.experiments import present, sensitivity
from studies.experiments.catalogue import CONTAINERS, FABRIC
from studies.experiments.charts import curves
from studies.experiments.evaluate import Evaluation, evaluate
from studies.experiments.model import Experiment
from studies.experiments.sensitivity import Moved
from studies.experiments.verdict import RULE, Verdict
from studies.fabric import beside_data
from studies.reference_figures import source

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "results"
STORES = ROOT / "build" / "results"
"""Runs are kept, one store per version of the code, so that making the page again runs only what is new."""


@dataclass(frozen=True, slots=True)
class Page:
    """name: of the file and the make target; intro: what all figures of ours come from; code: files and
    folders that a run's figures depend on besides the scenario, which is in the run's id; more: what the page
    ends with, of the folder of public data sets (None: there is none)."""

    name: str
    title: str
    experiments: Mapping[str, Experiment]
    intro: str
    calibration: Callable[[], Calibration]
    code: tuple[str, ...]
    more: Callable[[Path | None], Iterator[str]] | None = None


PAGES = {
    each.name: each
    for each in (
        Page(
            "containers",
            "Containers: the source's evaluation on the twin",
            CONTAINERS,
            "Every figure of ours is from the request-level twin with its declared defaults: nothing was "
            "tuned to the source's figures, and the applications' CPU demands are our assumption "
            "(docs/reference/apps.md).",
            load_calibration,
            (
                "control",
                "twin/containers",
                "lab/containers/input/services",
                "lab/containers/metrics.py",
                "scenarios/apps",
            ),
        ),
        Page(
            "fabric",
            "Fabric: the source's evaluation on the twin",
            FABRIC,
            "Every figure of ours comes from protocols (BFD, BGP's steps, RDMA's retransmission) and the "
            "calibration's values, each with its source in "
            "lab/fabric/calibrate/calibration_default.toml: nothing was tuned to the source's figures.",
            load_fabric,
            ("twin/fabric", "lab/fabric"),
            beside_data.section,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Reported:
    """An experiment with its figures, and how they moved."""

    evaluation: Evaluation
    moved: Sequence[Moved]


def document(page: Page, reported: Sequence[Reported]) -> str:
    """The page's text."""
    parts = [*_head(page), *_summary(reported), *_not_reproduced(reported)]
    for each in reported:
        parts += _experiment(each)
    if page.more is not None:
        given = os.environ.get("TWINBED_DATA")
        parts += page.more(None if given is None else Path(given))
    return "\n\n".join(parts) + "\n"


def main(name: str) -> None:
    """Runs everything of the page that is not in its store, and writes it with its charts."""
    page = PAGES[name]
    store = RunStore(_store(page))
    reported = []
    for experiment in page.experiments.values():
        began = time.monotonic()
        evaluation = evaluate(experiment, store)
        moved = list(sensitivity.sensitivity(experiment, store)) if experiment.sensitivity else []
        reported.append(Reported(evaluation, moved))
        _say(f"{experiment.name}: {len(evaluation.cases)} runs, {time.monotonic() - began:.0f} s")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for each in reported:
        if each.evaluation.experiment.curve:
            _write(FOLDER / _image(each.evaluation), svg(curves(each.evaluation)))
    _write(FOLDER / f"{page.name}.md", document(page, reported))


def _store(page: Page) -> Path:
    """The page's store of the code as it is; stores of older code are removed, they can only mislead."""
    digest = hashlib.sha256()
    for part in page.code:
        path = ROOT / part
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in (".py", ".yaml"):
                digest.update(file.read_bytes())
    stores = STORES / page.name
    stores.mkdir(parents=True, exist_ok=True)
    kept = stores / digest.hexdigest()[:10]
    for other in stores.iterdir():
        if other != kept:
            shutil.rmtree(other)
    return kept


def _head(page: Page) -> Iterator[str]:
    calibration = page.calibration()
    yield f"<!-- Made by `make results-{page.name}`; edit lab/experiments, not this file. -->"
    yield f"# {page.title}"
    yield (
        f"Compared with: {source(next(iter(page.experiments)))}. {page.intro} The machine imitated is "
        f"calibration `{calibration.name}` of {calibration.date}: {calibration.kernel}; {calibration.cpu}."
    )
    yield f"**When a figure counts as reproduced.** {RULE} The rule was fixed before the first result."


def _summary(reported: Sequence[Reported]) -> Iterator[str]:
    kinds = [Verdict.SIZE, Verdict.DIRECTION, Verdict.NOT, Verdict.OPEN]
    lines = [f"| experiment | figures | {' | '.join(kinds)} |", f"|---|---:|{'---:|' * len(kinds)}"]
    for each in reported:
        verdicts = [measured.judgement.verdict for measured in each.evaluation.measured if measured.judgement]
        if verdicts:
            experiment = each.evaluation.experiment
            counts = " | ".join(str(verdicts.count(kind)) for kind in kinds)
            lines.append(f"| {experiment.name}: {experiment.title} | {len(verdicts)} | {counts} |")
    yield "## Summary"
    yield "\n".join(lines)


def _not_reproduced(reported: Sequence[Reported]) -> Iterator[str]:
    """Every figure that is not reproduced at all; the reasons stand with the experiment."""
    evaluations = [each.evaluation for each in reported]
    found = present.judged(evaluations)
    kept = tuple(row for row in found.rows if row["verdict"] == Verdict.NOT)
    columns = tuple(column for column in found.columns if column.key != "verdict")
    yield "## Not reproduced"
    yield "Why, and what it depends on, stands with each experiment below."
    yield markdown(replace(found, columns=columns, rows=kept, notes=(), legend="", facts={})).strip()


def _experiment(reported: Reported) -> Iterator[str]:
    evaluation = reported.evaluation
    experiment = evaluation.experiment
    yield f"## {experiment.name}: {experiment.title}"
    yield f"`twinbed report --experiment {experiment.name}`"
    if evaluation.scenario is not None:
        yield evaluation.scenario.question.strip()
    found = present.result([evaluation])
    # Method and discussion are prose of the page, the rule and the meaning of ± stand above.
    yield markdown(replace(found, notes=(), legend="", facts={})).strip()
    runs = f"{len(evaluation.cases):,} runs of `scenarios/{experiment.scenario}`"
    seeds = ", ".join(map(str, evaluation.seeds))
    yield f"*{runs}, seeds {seeds}; mean ± half of the 95 % interval (Student's t). {experiment.method}*"
    yield from experiment.discussion
    if experiment.curve:
        yield f"![{experiment.title}]({_image(evaluation)})"
    if reported.moved:
        yield f"### {experiment.name}: what it depends on"
        yield f"`twinbed report --experiment {experiment.name} --sensitivity`"
        # A line per change: there are more changes than a page is wide.
        tried = replace(present.moved(evaluation, reported.moved), aside=None)
        yield " ".join(tried.notes)
        tried = replace(tried, notes=())
        yield markdown(tried).strip()


def _image(evaluation: Evaluation) -> str:
    return f"{evaluation.experiment.name}.svg"


def _write(path: Path, text: str) -> None:
    write_whole(path, lambda file: file.write(text.encode()))
    _say(str(path))


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
