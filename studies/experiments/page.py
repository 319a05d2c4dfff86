"""docs/results/containers.md, requests-only.md, firm.md and fabric.md: experiments and their sensitivity.

For: `python -m studies containers`, `requests-only`, `firm` and `fabric`, which make the runs that their
store lacks and write the page with its charts; `python -m studies E2` prints one experiment. Not for:
computing or judging figures. The text depends on the runs alone; one figure of E7 is a time of this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lab.ask.calibration import Calibration
from lab.ask.scenario import expand
from lab.cli.options import Format, emit
from lab.cli.progress import Bar
from lab.containers.calibrate.values import load_calibration
from lab.fabric.calibrate.values import load_calibration as load_fabric
from lab.runs.formats import markdown
from lab.runs.page import svg
from lab.runs.store import RunStore
from studies import harness, pictures
from studies.experiments import present
from studies.experiments.catalogue import CONTAINERS, FABRIC, FIRM, RIVALS, experiment
from studies.experiments.evaluate import Evaluation, Moved, evaluate, scenario_of, sensitivity
from studies.experiments.firm import answer as firm_answer
from studies.experiments.model import Experiment, paragraphs
from studies.fabric import iterations
from studies.harness import Asked
from studies.judge import RULE, Verdict
from studies.reference_figures import source


@dataclass(frozen=True, slots=True)
class Page:
    """A results page of experiments.

    name, title: name of the file and its task; title of the page.
    experiments: the experiments in the page's order.
    answer: sentences that follow the counts of reproduced figures, if a source has such figures.
    origin: sentences on the origin of our figures.
    calibration: reads the machine that is imitated.
    code: files and folders on which a run's figures depend beside the scenario.
    says: makes the first sentences from the figures' means, by key.
    """

    name: str
    title: str
    experiments: Mapping[str, Experiment]
    answer: tuple[str, ...]
    origin: str
    calibration: Callable[[], Calibration]
    code: tuple[str, ...]
    says: Callable[[Mapping[str, float]], Sequence[str]]


_CONTAINERS_CODE = ("control", "twin/containers", "lab/containers", "scenarios/apps")


def _page(
    name: str,
    experiments: Mapping[str, Experiment],
    calibration: Callable[[], Calibration],
    code: tuple[str, ...],
    says: Callable[[Mapping[str, float]], Sequence[str]] = lambda _: (),
) -> Page:
    """Return a page with the title, the answer and the origin in texts/NAME.md."""
    title, *answer, origin = paragraphs(name)
    return Page(name, title, experiments, tuple(answer), origin, calibration, code, says)


PAGES = {
    page.name: page
    for page in (
        _page("containers", CONTAINERS, load_calibration, _CONTAINERS_CODE),
        _page("requests-only", RIVALS, load_calibration, _CONTAINERS_CODE),
        _page("firm", FIRM, load_calibration, _CONTAINERS_CODE, firm_answer),
        _page("fabric", FABRIC, load_fabric, ("twin/fabric", "lab/fabric")),
    )
}


@dataclass(frozen=True, slots=True)
class Reported:
    """An experiment with its figures, and how they move under changed assumptions."""

    evaluation: Evaluation
    moves: Sequence[Moved]


def make(asked: Asked) -> int:
    """Make every run of the page that its store lacks, and write the page with its charts."""
    page = PAGES[asked.name]
    store, check = _store(page, asked), harness.clock(asked.minutes)
    reported = []
    for item in page.experiments.values():
        began = time.monotonic()
        evaluation = evaluate(item, store, progress=check)
        moves = list(sensitivity(item, store, progress=check)) if item.sensitivity else []
        reported.append(Reported(evaluation, moves))
        harness.say(f"{item.name}: {len(evaluation.cases)} runs, {time.monotonic() - began:.0f} s")
    for report in reported:
        if report.evaluation.experiment.curve:
            harness.write(asked.out / _image(report.evaluation), svg(present.curves(report.evaluation)))
    text = document(page, reported, asked)
    if _verdicts(reported):
        harness.write(asked.out / f"{page.name}-ratios.svg", svg(pictures.ratios(text)))
    harness.publish(page.name, text, asked.out)
    return 0


def show(asked: Asked) -> int:
    """Print one experiment; with asked.sensitivity how its figures move; with asked.html a page, too."""
    item = experiment(asked.name)
    page = next((page for page in PAGES.values() if item.name in page.experiments), None)
    store = RunStore(asked.store) if page is None else _store(page, asked)
    check = harness.clock(asked.minutes)

    def told(bar: Bar) -> Callable[[str, float], None]:
        def progress(label: str, fraction: float) -> None:
            check()
            bar(label, fraction)

        return progress

    units = len(item.seeds) if item.compute else len(expand(scenario_of(item)))
    with Bar(units, wanted=True) as bar:
        evaluation = evaluate(item, store, progress=told(bar))
    moves: list[Moved] = []
    if asked.sensitivity:
        units = len(expand(scenario_of(item, item.sensitivity_seeds))) * (1 + len(item.sensitivity))
        with Bar(units, wanted=True) as bar:
            moves = list(sensitivity(item, store, progress=told(bar)))
    if asked.html is not None:
        harness.write(asked.html, present.document(evaluation, moves))
    emit(present.moved(evaluation, moves) if moves else present.result(evaluation), Format(asked.form))
    return 0


def _store(page: Page, asked: Asked) -> RunStore:
    return RunStore(asked.store or harness.store_of_code(page.name, page.code))


def document(page: Page, reported: Sequence[Reported], asked: Asked) -> str:
    """Return the page's text."""
    verdicts = _verdicts(reported)
    picture = f"![Every figure of ours beside the source's]({page.name}-ratios.svg)"
    parts = [*_summary(reported), picture, *_not_reproduced(reported)] if verdicts else []
    for report in reported:
        parts += _experiment(report)
    if page.name == "fabric":
        parts += iterations.section(asked.data)
    means = {item.figure.key: item.mean for report in reported for item in report.evaluation.measured}
    counts = (_counts(reported),) if verdicts else ()
    answer = (*page.says(means), *counts, *page.answer)
    return harness.page(page.name, page.title, answer, parts, _conditions(page, bool(verdicts)))


def _verdicts(reported: Sequence[Reported]) -> dict[str, list[Verdict]]:
    """Return the verdicts on the source's figures under each condition."""
    verdicts: dict[str, list[Verdict]] = {}
    for report in reported:
        for item in report.evaluation.measured:
            if item.judgement:
                verdicts.setdefault(item.figure.aside, []).append(item.judgement.verdict)
    return verdicts


def _counts(reported: Sequence[Reported]) -> str:
    """Return in a sentence how many of the source's figures are reproduced."""
    conditions = _verdicts(reported)
    parts = [
        f"{f'with `{condition}` ' if condition else ''}reproduces {verdicts.count(Verdict.SIZE)} in size and "
        f"{verdicts.count(Verdict.DIRECTION)} in direction only, and does not reproduce "
        f"{verdicts.count(Verdict.NOT)}"
        + (f" ({verdicts.count(Verdict.OPEN)} cannot be judged)" if Verdict.OPEN in verdicts else "")
        for condition, verdicts in conditions.items()
    ]
    number = max(map(len, conditions.values()), default=0)
    return f"Of the source's {number} figures, the twin {'; '.join(parts)}."


def _conditions(page: Page, judged: bool) -> Iterator[str]:
    calibration = page.calibration()
    if judged:
        yield f"Compared with: {source(next(iter(page.experiments)))}."
        yield f"**When a figure counts as reproduced.** {RULE} The rule was fixed before the first result."
    yield (
        f"{page.origin} The machine imitated is calibration `{calibration.name}` of {calibration.date}: "
        f"{calibration.kernel}; {calibration.cpu}."
    )
    yield (
        "A ± B is the mean over the seeds and half of its 95 % confidence interval (Student's t). > A and A "
        "to B are a lower bound and an interval: requests and messages that were never answered count, and "
        "all that is known of them is how long they had waited when the run ended."
    )


def _summary(reported: Sequence[Reported]) -> Iterator[str]:
    kinds = [Verdict.SIZE, Verdict.DIRECTION, Verdict.NOT, Verdict.OPEN]
    rows = []
    for report in reported:
        item = report.evaluation.experiment
        for condition, verdicts in _verdicts([report]).items():
            title = f"{item.name}: {item.title}" + (f" ({condition})" if condition else "")
            rows.append([title, len(verdicts), *map(verdicts.count, kinds)])
    yield "## Summary"
    yield harness.table(["experiment", "figures", *kinds], rows)


def _not_reproduced(reported: Sequence[Reported]) -> Iterator[str]:
    every = present.judged([report.evaluation for report in reported])
    rows = tuple(row for row in every.rows if str(row["verdict"]).startswith(Verdict.NOT))
    columns = tuple(column for column in every.columns if column.key != "verdict")
    yield "## Not reproduced"
    yield "Each experiment below says why, and what its figures depend on."
    yield markdown(replace(every, columns=columns, rows=rows, notes=(), legend="", facts={})).strip()


def _experiment(reported: Reported) -> Iterator[str]:
    evaluation = reported.evaluation
    item = evaluation.experiment
    yield f"## {item.name}: {item.title}"
    if evaluation.scenario is not None:
        yield evaluation.scenario.question.strip()
    # The page prints method, discussion and rule itself.
    yield markdown(replace(present.result(evaluation), notes=(), legend="", facts={})).strip()
    yield from item.discussion
    if item.curve:
        yield f"![{item.title}]({_image(evaluation)})"
    if reported.moves:
        yield f"### {item.name}: what it depends on"
        # Each change is a line of the table, because a page is too narrow for one column per change.
        moved = replace(present.moved(evaluation, reported.moves), aside=None)
        yield markdown(replace(moved, notes=())).strip()
        yield " ".join(moved.notes)
    runs = evaluation.basis.replace("scenarios/" + item.scenario, f"`scenarios/{item.scenario}`")
    yield f"*How: {runs} (`python -m studies {item.name}`). {item.method}*"


def _image(evaluation: Evaluation) -> str:
    return f"{evaluation.experiment.name}.svg"
