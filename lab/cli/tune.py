"""`twinbed tune`: searches for the settings with the best value of a metric within limits.

For: the verb's options. Not for: the search (lab.sweep.tuning).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lab.cli.options import (
    EngineOption,
    Format,
    FormatOption,
    JobsOption,
    NoProgressOption,
    ScenarioArgument,
    SetOption,
    StoreOption,
    asked,
    emit,
    open_store,
    option,
)
from twinbed import ScenarioError

if TYPE_CHECKING:
    from lab.sweep.tuning import Trial


def tune(
    scenario: ScenarioArgument,
    over: Annotated[
        list[str],
        option(
            "KEY=LOW:HIGH[:log]",
            "A key, or a policy's parameter, and its range; KEY=A,B,C for choices. Repeatable.",
        ),
    ],
    minimise: Annotated[list[str] | None, option("METRIC", "The metric to minimise.")] = None,
    maximise: Annotated[list[str] | None, option("METRIC", "The metric to maximise.")] = None,
    subject_to: Annotated[
        list[str] | None, option("LIMIT", "A limit on a mean, 'latency_p99_s <= 0.2'. Repeatable.")
    ] = None,
    trials: Annotated[int, option("N", "Number of trials.", min=1, max=10_000)] = 50,
    seeds: Annotated[str, option("SEEDS", "Seeds of every trial: 0:20 (without 20) or 1,4,7.")] = "0:5",
    engine: EngineOption = "local",
    jobs: JobsOption = None,
    out: Annotated[Path | None, option("FILE", "Write a scenario file with the best settings.")] = None,
    set_: SetOption = None,
    store: StoreOption = None,
    form: FormatOption = Format.TABLE,
    no_progress: NoProgressOption = False,
) -> None:
    """Search for the settings of a policy that make a metric best within limits.

    Every trial has the same seeds. A trial that is clearly worse after three seeds is ended. The same command
    continues a search that was stopped. The exit code is 1 if no trial keeps the limits.
    The formats json and csv have every trial, the others those that no other beats.
    """
    from lab import kinds
    from lab.cli.progress import Rate
    from lab.engine.local import engine as chosen_engine
    from lab.engine.running import kept
    from lab.runs.files import check_place
    from lab.runs.runner import make
    from lab.sweep import tuned
    from lab.sweep.book import note_tuning
    from lab.sweep.points import seeds as seeds_of
    from lab.sweep.rules import Limit, metric_named
    from lab.sweep.tuning import Question, Range, best, checked, single
    from lab.sweep.tuning import tune as search

    aims = [*(minimise or []), *(maximise or [])]
    if len(aims) != 1:
        raise ScenarioError(
            "give one of --minimise METRIC and --maximise METRIC, once; --subject-to limits other metrics"
        )
    check_place(out, inputs=[scenario])
    ranges = [Range.parse(text) for text in over]
    if len({entry.key for entry in ranges}) < len(ranges):
        raise ScenarioError("--over: a key is given twice")
    loaded = asked(scenario, None, set_)
    if loaded.vary:
        raise ScenarioError(f"{loaded.name}: vary has no meaning for tune; fix it with --set KEY=VALUE")
    kind = kinds.of(loaded)
    aim = aims[0]
    metric = metric_named(kind, aim, f"--{'minimise' if minimise else 'maximise'} {aim}")
    limits = [Limit.parse(text, kind) for text in subject_to or []]
    tuned_one = single(loaded, ranges)
    ranges = [entry.fitted(tuned_one) for entry in ranges]
    question = Question(tuned_one, metric.key, 1 if minimise else -1, limits, ranges, trials, seeds_of(seeds))
    place, target = chosen_engine(engine, jobs), open_store(store)
    metrics = [metric_named(kind, key, key) for key in question.metrics]

    def note(trials: Sequence[Trial], again: Trial | None = None, *, ended: bool = False) -> None:
        note_tuning(tuned.noted(question, metrics, trials, again, ended=ended), target)

    with Rate(wanted=not no_progress, noun="trial") as rate, kept(place, make) as workers:
        made = search(question, target, workers, rate.tell, note)
        chosen = best(question, made)
        again = checked(question, chosen, target, workers) if chosen else None
    note(made, again, ended=True)
    if chosen is not None and out is not None:
        tuned.write(question, chosen, out)
    everything = form in (Format.JSON, Format.CSV)
    emit(tuned.result(question, made, chosen, again, metrics, everything=everything), form)
    if chosen is None:
        raise typer.Exit(1)
