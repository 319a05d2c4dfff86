"""`twinbed report`: stored runs as one HTML file, or experiments with our figures beside the source's.

For: the verb's options and writing the file whole or not at all; lab.runs.report and studies.experiments do
the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.options import Format, FormatOption, NoProgressOption, StoreOption, emit, open_store
from twinbed import ScenarioError

if TYPE_CHECKING:
    from lab.runs.store import RunStore

_DEFAULT_FILE = Path("report.html")


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN…", help="Run ids, or beginnings of them that fit one run only."),
    ] = None,
    experiment: Annotated[
        list[str] | None,
        typer.Option(
            "--experiment",
            metavar="NAME",
            help="Instead of runs: a reference experiment (E1 … E8, T1 … T5, C1, C2, C4, F1 … F4, fleet, "
            "intervals, E2-profiling, beyond, telemetry-delay, telemetry-loss). Runs what the store lacks; "
            "prints our figures beside the source's. Repeatable.",
            show_default=False,
        ),
    ] = None,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity",
            help="With --experiment: how the figures move when one assumption is changed at a time.",
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="The file to write; one that is there is replaced. Of runs: report.html by default.",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Write a report: runs as one HTML file that needs no network, or experiments beside the source's."""
    if bool(runs) == bool(experiment):
        raise ScenarioError("report: give either runs or --experiment")
    if sensitivity and not experiment:
        raise ScenarioError("--sensitivity: only with --experiment")
    if runs:
        _of_runs(runs, html or _DEFAULT_FILE, open_store(store), form)
    else:
        _of_experiments(experiment or [], html, open_store(store), form, sensitivity, not no_progress)


def _of_runs(runs: list[str], html: Path, store: RunStore, form: Format) -> None:
    from lab.runs.report import document

    opened = [store.open(each) for each in runs]
    size = _write(html, document(opened))
    from lab.runs.formats import Column, Result

    columns = (Column("report", "Report"), Column("runs", "Runs"), Column("bytes", "Size", "bytes"))
    emit(Result(columns, ({"report": str(html), "runs": len(opened), "bytes": size},)), form)


def _of_experiments(
    names: list[str], html: Path | None, store: RunStore, form: Format, sensitivity: bool, bar: bool
) -> None:
    from lab.ask.scenario import expand
    from lab.cli.progress import Bar
    from studies.experiments import present
    from studies.experiments import sensitivity as varied
    from studies.experiments.catalogue import experiment
    from studies.experiments.evaluate import evaluate, scenario_of, units

    chosen = [experiment(name) for name in dict.fromkeys(names)]
    if sensitivity and len(chosen) > 1:
        raise ScenarioError("--sensitivity: one experiment at a time")
    evaluations, moved = [], []
    for each in chosen:
        with Bar(units(each), wanted=bar) as shown:
            evaluations.append(evaluate(each, store, progress=shown))
        if sensitivity:
            runs = len(expand(scenario_of(each, each.sensitivity_seeds)))
            with Bar(runs * (1 + len(each.sensitivity)), wanted=bar) as shown:
                moved = list(varied.sensitivity(each, store, progress=shown))
    if html is not None:
        from studies.experiments.page import document

        _write(html, document(evaluations, {chosen[0].name: moved} if moved else {}))
    emit(present.moved(evaluations[0], moved) if moved else present.result(evaluations), form)


def _write(path: Path, text: str) -> int:
    from lab.runs.files import write_whole

    return write_whole(path, lambda file: file.write(text.encode()))
