"""docs/results/containers.md: every experiment beside the source, what is not reproduced, what it depends on.

For: `python -m lab.experiments`, which runs what its store lacks and writes the page and its charts. Not for:
computing or judging figures. The text depends on the runs alone; one figure of E7 is this machine's time.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.calibration import load_calibration
from lab.experiments import present, sensitivity
from lab.experiments.catalogue import EXPERIMENTS
from lab.experiments.charts import curves
from lab.experiments.evaluate import Evaluation, evaluate
from lab.experiments.sensitivity import Moved
from lab.experiments.verdict import RULE, Verdict
from lab.files import write_whole
from lab.formats import markdown
from lab.page import svg
from lab.store import RunStore
from traces.reference import source

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "results"
STORES = ROOT / "build" / "results"
"""Runs are kept, one store per version of the code, so that making the page again runs only what is new."""
_CODE = ("control", "twin", "lab/services", "lab/metrics.py", "scenarios/apps")
"""What a run's figures depend on besides the scenario, which is in the run's id."""


@dataclass(frozen=True, slots=True)
class Reported:
    """An experiment with its figures, and how they moved."""

    evaluation: Evaluation
    moved: Sequence[Moved]


def document(reported: Sequence[Reported]) -> str:
    """The page's text."""
    parts = [*_head(), *_summary(reported), *_not_reproduced(reported)]
    for each in reported:
        parts += _experiment(each)
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Runs everything that is not in the store, and writes the page and its charts."""
    STORES.mkdir(parents=True, exist_ok=True)
    store = RunStore(_store())
    reported = []
    for experiment in EXPERIMENTS.values():
        began = time.monotonic()
        evaluation = evaluate(experiment, store)
        moved = list(sensitivity.sensitivity(experiment, store)) if experiment.sensitivity else []
        reported.append(Reported(evaluation, moved))
        _say(f"{experiment.name}: {len(evaluation.cases)} runs, {time.monotonic() - began:.0f} s")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for each in reported:
        if each.evaluation.experiment.curve:
            _write(FOLDER / _image(each.evaluation), svg(curves(each.evaluation)))
    _write(FOLDER / "containers.md", document(reported))


def _store() -> Path:
    """The store of the code as it is; stores of older code are removed, they can only mislead."""
    digest = hashlib.sha256()
    for part in _CODE:
        path = ROOT / part
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in (".py", ".yaml"):
                digest.update(file.read_bytes())
    kept = STORES / digest.hexdigest()[:10]
    for other in STORES.iterdir():
        if other != kept:
            shutil.rmtree(other)
    return kept


def _head() -> Iterator[str]:
    calibration = load_calibration()
    yield "<!-- Made by `make results-containers`; edit lab/experiments, not this file. -->"
    yield "# Containers: the source's evaluation on the twin"
    yield (
        f"Compared with: {source()}. Every figure of ours is from the request-level twin with its declared "
        "defaults: nothing was tuned to the source's figures, and the applications' CPU demands are our "
        "assumption (docs/reference/apps.md). The machine imitated is calibration "
        f"`{calibration.name}` of {calibration.date}: {calibration.kernel}; {calibration.cpu}."
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
    yield evaluation.scenario.question.strip()
    found = present.result([evaluation])
    # Method and discussion are prose of the page, the rule and the meaning of ± stand above.
    yield markdown(replace(found, notes=(), legend="", facts={})).strip()
    runs = f"{len(evaluation.cases):,} runs of `scenarios/{experiment.scenario}`"
    seeds = ", ".join(map(str, evaluation.scenario.seeds))
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
